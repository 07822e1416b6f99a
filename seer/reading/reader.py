"""Reader: answers questions about documents with an engine, a selector and a policy.

    reader = Reader.from_checkpoint("path/to/checkpoint")
    answer = reader.ask(document, "What is the total?")
    answers = reader.ask_many([(document, "Who?"), (other, "When?")])

`seer.reading.conversation` holds the steps of one conversation; this module drives conversations to their answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from seer.engines.base import ConcurrentEngine, Engine, Generation, Request
from seer.errors import EngineError
from seer.reading.conversation import ReadingLoop, converse
from seer.reading.policy import ReadingPolicy
from seer.reading.state import OnStep, OnText
from seer.schema import Answer, Document
from seer.selection.base import ModelPlusLexical, Selector


def read_batch(conversations: Iterable[ReadingLoop], engine: Engine) -> list[Answer]:
    """Drive conversations to their answers, which are returned in the same order.

    On a ConcurrentEngine each conversation continues as soon as its own request is answered; on any other engine all
    conversations advance together. Raises what a conversation raises before its first request.
    """
    if isinstance(engine, ConcurrentEngine):
        return engine.run(_read_concurrently(conversations, engine))
    return _read_in_lockstep(conversations, engine)


async def read_one(
    conversation: ReadingLoop, ask: Callable[[Request], Awaitable[Generation]], *, in_thread: bool = False
) -> Answer:
    """Drive one conversation; `ask` answers a request. Cancelling this coroutine closes the conversation.

    With `in_thread`, the conversation's own work (counting, searching, drawing: up to a second for a long document) runs
    in a thread, so that it does not block the event loop.
    """
    generations: list[Generation] | None = None
    try:
        while True:
            if in_thread:
                advanced = await _advance_in_thread(conversation, generations)
            else:
                advanced = _advance(conversation, generations)
            if isinstance(advanced, Answer):
                return advanced
            generations = list(await asyncio.gather(*map(ask, advanced)))
    finally:
        conversation.close()


def _advance(conversation: ReadingLoop, generations: list[Generation] | None) -> list[Request] | Answer:
    """The conversation's next requests, or its answer. `generations` is None at the start."""
    try:
        return next(conversation) if generations is None else conversation.send(generations)
    except StopIteration as stop:
        answer: Answer = stop.value
        return answer


async def _advance_in_thread(conversation: ReadingLoop, generations: list[Generation] | None) -> list[Request] | Answer:
    work = asyncio.create_task(asyncio.to_thread(_advance, conversation, generations))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        # A running generator cannot be closed, so wait for it even if this task is cancelled again.
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({work})
        raise


async def _read_concurrently(conversations: Iterable[ReadingLoop], engine: ConcurrentEngine) -> list[Answer]:
    # A conversation starts, and draws its pages, only when the engine can serve it.
    room = asyncio.Semaphore(engine.max_concurrent)

    async def read(conversation: ReadingLoop) -> Answer:
        async with room:
            return await read_one(conversation, engine.generate_one)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(read(conversation)) for conversation in conversations]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None  # the same error as in lockstep, without its group
    return [task.result() for task in tasks]


def _read_in_lockstep(conversations: Iterable[ReadingLoop], engine: Engine) -> list[Answer]:
    """Advance all conversations together: each pass of the loop is one call of `engine.generate`."""
    answers: dict[int, Answer] = {}
    waiting: dict[int, tuple[ReadingLoop, list[Request]]] = {}
    for index, conversation in enumerate(conversations):
        try:
            waiting[index] = (conversation, next(conversation))
        except StopIteration as stop:
            answers[index] = stop.value
    while waiting:
        requests = [request for _, pending in waiting.values() for request in pending]
        try:
            generations = iter(engine.generate(requests))
        except EngineError as error:
            generations = iter([Generation.failed(error)] * len(requests))
        for index, (conversation, pending) in list(waiting.items()):
            try:
                waiting[index] = (conversation, conversation.send([next(generations) for _ in pending]))
            except StopIteration as stop:
                answers[index] = stop.value
                del waiting[index]
    return [answers[index] for index in sorted(answers)]


class Reader:
    """Answers questions about documents with an engine, a selector and a policy."""

    def __init__(
        self,
        engine: Engine,
        selector: Selector | ModelPlusLexical | None = None,
        policy: ReadingPolicy | None = None,
    ) -> None:
        self.engine, self.selector, self.policy = engine, selector, policy or ReadingPolicy()

    @classmethod
    def from_checkpoint(cls, path: str | Path, policy: ReadingPolicy | None = None, **options: Any) -> Reader:
        """A reader with a local GLM-4V-family checkpoint on transformers; `options` are those of `build_engine`.

        Raises ModelError if the checkpoint lacks a file, a token or a setting, and InputError for an unknown option.
        """
        from seer.engines.build import build_engine

        return cls(build_engine("hf", model=str(path), **options), policy=policy)

    def ask(
        self, document: Document, question: str, on_step: OnStep | None = None, on_text: OnText | None = None
    ) -> Answer:
        """Answer one question. `on_step` receives each step when it ends, `on_text` the answer's text as it is generated.

        Raises InputError for an empty question and for a document without pages.
        """
        conversation = converse(document, question, self.engine, self.selector, self.policy, on_step, on_text)
        return read_batch([conversation], self.engine)[0]

    def ask_many(self, questions: Sequence[tuple[Document, str]]) -> list[Answer]:
        """Answer many questions, each about its document; the answers are in the same order.

        Raises InputError for an empty question and for a document without pages.
        """
        return read_batch([converse(d, q, self.engine, self.selector, self.policy) for d, q in questions], self.engine)
