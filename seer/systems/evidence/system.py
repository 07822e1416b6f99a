"""The base of systems that answer by several free chats: concurrency, steps, failures, and answers with citations.

    class Mine(EvidenceSystem):
        name = "mine"

        async def answer(self, question: Question) -> Verdict:
            replies = await question.caller().ask(chat, schema, read)
            question.record("read", replies, outputs={"text": ...}, pages=(1, 2))
            return Verdict("42", pages=(1, 2), quotes=((1, "the total is 42"),))

A subclass describes one question; the base runs many at once. A failure becomes a failed answer that keeps its steps.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from seer.engines.base import ConcurrentEngine, Engine, Generation, Request
from seer.engines.batched import BatchedEngine
from seer.errors import InputError, SeerError
from seer.models.counting import load_counter
from seer.reading.citations import find_citations
from seer.rendering.styles import with_newline
from seer.schema import (
    Answer,
    Citation,
    Document,
    Excerpt,
    Failure,
    PageStyle,
    Region,
    Status,
    Step,
    StepUsage,
    Usage,
)
from seer.systems.base import Task
from seer.systems.evidence.budget import Budget, Spending
from seer.systems.evidence.calls import Caller, Replies

OnStep = Callable[[Step], None]
NOT_ANSWERABLE = "Not answerable"
_QUESTIONS_AT_ONCE = 16
"""Questions of a batch that run at the same time on an engine that names no limit."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of one question, before its quotes are checked."""

    text: str
    """The answer; empty if the document does not answer the question."""
    pages: tuple[int, ...] = ()
    """The evidence pages."""
    quotes: tuple[tuple[int, str], ...] = ()
    """(page, words of the page) that support the answer; each is looked up in the page's text."""
    answerable: bool = True


@dataclass
class Question:
    """One question while it is answered: its document, its calls and the steps so far."""

    task: Task
    document: Document
    callers: Mapping[str, Caller]
    """By role; the role "" has the system's own engine."""
    spending: Spending
    models: Mapping[str, str]
    """Name of the engine and model of each role that has its own."""
    on_step: OnStep | None = None
    steps: list[Step] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The bare question, without a benchmark's instructions."""
        return self.task.query or self.task.question

    def caller(self, role: str = "") -> Caller:
        """Return the caller of a role: that of the role's own engine if it has one, else the system's."""
        return self.callers.get(role) or self.callers[""]

    def model_name(self, role: str = "") -> str:
        """Return the name of the engine and the model that answer a role's calls, for keys of what they make."""
        return self.models.get(role) or self.models[""]

    def record(
        self,
        name: str,
        replies: Replies[Any] | Sequence[Replies[Any]] = (),
        *,
        inputs: Mapping[str, JsonValue] | None = None,
        outputs: Mapping[str, JsonValue] | None = None,
        pages: Sequence[int] = (),
        regions: Sequence[Region] = (),
        seconds: float | None = None,
        deviations: Sequence[str] = (),
    ) -> None:
        """Add a step to the trace. `replies` are the calls that it made; calls that ran together count their tokens' sum.

        seconds: the step's duration; None takes the longest of its calls.
        """
        calls = [replies] if isinstance(replies, Replies) else list(replies)
        made = dict(outputs or {})
        if calls:
            made.setdefault("raw", "\n---\n".join(raw for call in calls for raw in call.raw))
        step = Step(
            name=name,
            inputs=dict(inputs or {}),
            outputs=made,
            pages=tuple(pages),
            regions=tuple(regions),
            usage=StepUsage(
                prompt=sum(call.usage.prompt for call in calls),
                completion=sum(call.usage.completion for call in calls),
                cached=sum(call.usage.cached for call in calls),
            ),
            seconds=max((call.seconds for call in calls), default=0.0) if seconds is None else seconds,
            finish=calls[-1].finish if calls else "",
            deviations=tuple(dict.fromkeys((*(d for call in calls for d in call.deviations), *deviations))),
        )
        self.steps.append(step)
        if self.on_step is not None:
            self.on_step(step)


class EvidenceSystem(ABC):
    """Answers questions by free chats with any engine. Subclasses define `answer` for one question."""

    name: str

    def __init__(
        self,
        engine: Engine,
        *,
        roles: Mapping[str, Engine] | None = None,
        style: str | PageStyle = "seer",
        seed: int = 0,
    ) -> None:
        """Create a system.

        Args:
            engine: Answers every call.
            roles: Engines that answer the calls of some roles in its place, such as a cheaper one for "navigator".
            style: Page style of texts; documents with own pages keep them.
            seed: Seed of sampling, and of every random choice.
        """
        self.engine, self.roles = engine, dict(roles or {})
        self.style, self.seed = style, seed

    @property
    @abstractmethod
    def budget(self) -> Budget:
        """Limits of one question."""

    @abstractmethod
    async def answer(self, question: Question) -> Verdict:
        """Answer one question. May raise any SeerError, which becomes a failed answer."""

    def ask(self, document: Document, question: str, on_step: OnStep | None = None) -> Answer:
        """Answer one question about a document; `on_step` receives each step when it ends."""
        task = Task(id=document.name, context="", question=question, document=document)
        return self._run([task], on_step)[0]

    def answer_batch(self, tasks: Sequence[Task]) -> list[Answer]:
        return self._run(tasks, None)

    def _run(self, tasks: Sequence[Task], on_step: OnStep | None) -> list[Answer]:
        """Answer all tasks at once, as many at a time as the engine can serve."""
        batched: list[BatchedEngine] = []

        def sender(engine: Engine) -> Callable[[Request], Awaitable[Generation]]:
            if isinstance(engine, ConcurrentEngine):
                return engine.generate_one
            batched.append(BatchedEngine(engine))
            return batched[-1].generate_one

        engines = {"": self.engine, **self.roles}
        senders = {role: sender(engine) for role, engine in engines.items()}

        async def work() -> list[Answer]:
            room = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

            async def one(number: int, task: Task) -> Answer:
                async with room:
                    return await self._answer_one(f"{self.name}:{number}:{task.id}", task, senders, on_step)

            return await asyncio.gather(*(one(number, task) for number, task in enumerate(tasks)))

        try:
            return self.engine.run(work()) if isinstance(self.engine, ConcurrentEngine) else asyncio.run(work())
        finally:
            for engine in batched:
                engine.close()

    async def _answer_one(
        self,
        session: str,
        task: Task,
        senders: Mapping[str, Callable[[Request], Awaitable[Generation]]],
        on_step: OnStep | None,
    ) -> Answer:
        """Answer one task; its errors become a failed answer with the steps up to them."""
        started, spending = time.perf_counter(), Spending(self.budget)
        callers = {role: Caller(send, f"{session}:{role}", spending) for role, send in senders.items()}
        models = {role: _model_name(self.roles.get(role, self.engine)) for role in callers}
        question: Question | None = None
        try:
            if not (task.query or task.question).strip():
                raise InputError("the question is empty; give a question")
            document = task.document
            if document is None:
                document = await asyncio.to_thread(_lay_out, task, self.style)
            question = Question(task, document, callers, spending, models, on_step)
            verdict = await self.answer(question)
            text = verdict.text if verdict.answerable else verdict.text or NOT_ANSWERABLE
            question.record("answer", outputs={"text": text})
        except SeerError as error:
            steps = () if question is None else tuple(question.steps)
            return Answer(
                text="",
                status=Status.FAILED,
                cause=str(error),
                failure=Failure.of(error),
                usage=_usage(spending, ""),
                trace=steps,
                seconds=time.perf_counter() - started,
            )
        finally:
            for role, caller in callers.items():
                engine = self.roles.get(role, self.engine)
                for name in caller.sessions:
                    engine.forget(name)
        # Looking up quotes and counting the text's tokens takes a second for a long document.
        usage = await asyncio.to_thread(_usage, spending, document.text + task.question)
        return Answer(
            text=text,
            status=Status.ANSWERED if verdict.answerable else Status.NOT_ANSWERABLE,
            selected_pages=tuple(sorted(set(verdict.pages))),
            citations=await asyncio.to_thread(cite, document, verdict.quotes) if verdict.answerable else (),
            usage=usage,
            trace=tuple(question.steps),
            seconds=time.perf_counter() - started,
        )


def cite(document: Document, quotes: Sequence[tuple[int, str]]) -> tuple[Citation, ...]:
    """Return the citations of quotes that a model gave with page numbers.

    A quote is looked up on its page and, if it is not there, in the whole document, because models often miss the page.
    A quote that is nowhere becomes an unverified citation of the page that was named.
    """
    found: dict[tuple[int, int, str], Citation] = {}
    everywhere = [Excerpt(page=page.number, start=page.start, text=page.text) for page in document.pages]
    for number, quote in quotes:
        if not quote.strip() or not 1 <= number <= len(document.pages):
            continue
        # Quotation marks around the words make `find_citations` treat them as a claimed quote.
        claimed = "“" + quote.strip().replace("“", "").replace("”", "").replace("\n", " ")[:400] + "”"
        here = find_citations(document, [everywhere[number - 1]], claimed)
        verified = [citation for citation in here if citation.verified] or [
            citation for citation in find_citations(document, everywhere, claimed) if citation.verified
        ]
        for citation in verified or here:
            found.setdefault((citation.start, citation.end, "" if citation.verified else quote), citation)
    return tuple(sorted(found.values(), key=lambda citation: (not citation.verified, citation.start)))


def _model_name(engine: Engine) -> str:
    """Return the names of an engine and its model, as far as the engine knows it."""
    checkpoint = getattr(engine, "checkpoint", None)
    return f"{engine.name}:{getattr(engine, 'model', None) or getattr(checkpoint, 'path', '')}"


def _lay_out(task: Task, style: str | PageStyle) -> Document:
    """Lay out the text of a task."""
    from seer.rendering import render_text

    return render_text(task.context, with_newline(style, task.newline), name=task.id)


def _usage(spending: Spending, text: str) -> Usage:
    """Return the tokens of all calls together, beside those of the full text in a production tokenizer."""
    return Usage(
        prompt=spending.prompt,
        completion=spending.completion,
        cached=spending.cached,
        full_text=load_counter(None).count(text) if text else 0,
    )
