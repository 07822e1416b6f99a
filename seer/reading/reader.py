"""Reading: an engine, a selector and a policy answer questions about documents.

    reader = Reader.from_checkpoint("path/to/checkpoint")
    answer = reader.ask(document, "What is the total?")
    answers = reader.ask_many([(document, "Who?"), (other, "When?")])

What happens in one conversation is in `seer.reading.conversation`; here conversations are driven.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from seer.engines.base import ConcurrentEngine, Engine, Generation, Request
from seer.errors import EngineError
from seer.reading.conversation import ReadingLoop, converse
from seer.reading.policy import ReadingPolicy
from seer.reading.state import OnStep, OnText
from seer.schema import Answer, Document
from seer.selection.base import ModelPlusLexical, Selector


def read_batch(conversations: Iterable[ReadingLoop], engine: Engine) -> list[Answer]:
    """Drive conversations to their answers, in order: each at its own pace where the engine can, else in lockstep."""
    if isinstance(engine, ConcurrentEngine):
        return engine.run(_read_concurrently(conversations, engine))
    return _read_in_lockstep(conversations, engine)


async def read_one(
    conversation: ReadingLoop, ask: Callable[[Request], Awaitable[Generation]], *, in_thread: bool = False
) -> Answer:
    """Drive one conversation; `ask` answers a request. Cancelling it closes the conversation.

    `in_thread`: what it counts, searches and draws itself, up to a second's work for a long document, keeps no event loop
    from its other work.
    """
    said: list[Generation] | None = None
    try:
        while True:
            asked = await _advance_in_thread(conversation, said) if in_thread else _advance(conversation, said)
            if isinstance(asked, Answer):
                return asked
            said = list(await asyncio.gather(*map(ask, asked)))
    finally:
        conversation.close()


def _advance(conversation: ReadingLoop, said: list[Generation] | None) -> list[Request] | Answer:
    """What the conversation asks next, or its answer. `said` is None at its beginning."""
    try:
        return next(conversation) if said is None else conversation.send(said)
    except StopIteration as stop:
        answer: Answer = stop.value
        return answer


async def _advance_in_thread(conversation: ReadingLoop, said: list[Generation] | None) -> list[Request] | Answer:
    step = asyncio.create_task(asyncio.to_thread(_advance, conversation, said))
    try:
        return await asyncio.shield(step)
    except asyncio.CancelledError:
        while not step.done():  # while it runs, the conversation cannot be closed, however often that is asked
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({step})
        raise


async def _read_concurrently(conversations: Iterable[ReadingLoop], engine: ConcurrentEngine) -> list[Answer]:
    # A conversation begins (and draws its pages) only when there is room for it.
    room = asyncio.Semaphore(engine.max_concurrent)

    async def read(conversation: ReadingLoop) -> Answer:
        async with room:
            return await read_one(conversation, engine.generate_one)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(read(conversation)) for conversation in conversations]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None  # what the same question raises in lockstep
    return [task.result() for task in tasks]


def _read_in_lockstep(conversations: Iterable[ReadingLoop], engine: Engine) -> list[Answer]:
    """Each round of the loop is one call of `engine.generate`."""
    answers: dict[int, Answer] = {}
    waiting: dict[int, tuple[ReadingLoop, list[Request]]] = {}
    for index, conversation in enumerate(conversations):
        try:
            waiting[index] = (conversation, next(conversation))
        except StopIteration as stop:
            answers[index] = stop.value
    while waiting:
        requests = [request for _, asked in waiting.values() for request in asked]
        try:
            generations = iter(engine.generate(requests))
        except EngineError as error:
            generations = iter([Generation.failed(error)] * len(requests))
        for index, (conversation, asked) in list(waiting.items()):
            try:
                waiting[index] = (conversation, conversation.send([next(generations) for _ in asked]))
            except StopIteration as stop:
                answers[index] = stop.value
                del waiting[index]
    return [answers[index] for index in sorted(answers)]


class Reader:
    """An engine, a selector and a policy: what answers questions about documents."""

    def __init__(
        self,
        engine: Engine,
        selector: Selector | ModelPlusLexical | None = None,
        policy: ReadingPolicy | None = None,
    ) -> None:
        self.engine, self.selector, self.policy = engine, selector, policy or ReadingPolicy()

    @classmethod
    def from_checkpoint(cls, path: str | Path, policy: ReadingPolicy | None = None, **options: object) -> Reader:
        """Read with a local GLM-4V-family checkpoint through transformers."""
        from seer.engines.hf.engine import HFEngine
        from seer.models.checkpoint import load

        return cls(HFEngine(load(path, **options)), policy=policy)  # type: ignore[arg-type]

    def ask(
        self, document: Document, question: str, on_step: OnStep | None = None, on_text: OnText | None = None
    ) -> Answer:
        """Answer one question. `on_step` sees each turn as it is said, `on_text` the last stage's text as it comes."""
        conversation = converse(document, question, self.engine, self.selector, self.policy, on_step, on_text)
        return read_batch([conversation], self.engine)[0]

    def ask_many(self, asked: Sequence[tuple[Document, str]]) -> list[Answer]:
        """Answer many questions in lockstep, in order."""
        return read_batch([converse(d, q, self.engine, self.selector, self.policy) for d, q in asked], self.engine)
