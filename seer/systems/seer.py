"""Seer's reading loop as a system, also that of the systems that differ from it only in their reading policy.

system = ReadingSystem("seer", Reader(engine, selector, policy), style="seer")
answers = system.answer_batch([Task(id="1", context=text, question="Who?")])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seer.errors import SeerError
from seer.reading.conversation import ReadingLoop, converse
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import Reader, read_batch
from seer.rendering.styles import with_newline
from seer.schema import Answer, Failure, PageStyle, Status
from seer.selection.base import ModelPlusLexical, OraclePages, Selector
from seer.selection.passages import PASSAGE_PAGES
from seer.systems.base import Task


class ReadingSystem:
    """The reading loop with a fixed policy: Seer, its ablations, and the visual and text baselines."""

    def __init__(self, name: str, reader: Reader, style: str | PageStyle) -> None:
        self.name, self.reader, self.style = name, reader, style

    def answer_batch(self, tasks: Sequence[Task]) -> list[Answer]:
        from seer.rendering import render_text

        answers: dict[int, Answer] = {}
        conversations = {}
        for index, task in enumerate(tasks):
            try:
                style = with_newline(self.style, task.newline)
                document = task.document or render_text(task.context, style, name=task.id)
                selector = _for_task(self.reader.selector, task)
                policy = self._policy(task)
                conversations[index] = _with_failure_as_answer(
                    converse(document, task.question, self.reader.engine, selector, policy, query=task.query)
                )
            except SeerError as error:
                answers[index] = Answer(text="", status=Status.FAILED, cause=str(error), failure=Failure.of(error))
        read = read_batch(conversations.values(), self.reader.engine)
        answers.update(zip(conversations, read, strict=True))
        return [answers[index] for index in range(len(tasks))]

    def _policy(self, task: Task) -> ReadingPolicy:
        changes: dict[str, Any] = {"chat": self.reader.policy.chat and task.chat}
        if task.max_new_tokens is not None:
            changes["max_new_tokens"] = task.max_new_tokens
        if self.reader.policy.retrieve == "task":
            changes["retrieve"] = task.retrieve
            if task.retrieve == "passages":
                changes["selector_pages"] = max(self.reader.policy.selector_pages, PASSAGE_PAGES)
        if task.selector_pages is not None:
            changes["selector_pages"] = task.selector_pages
        return self.reader.policy.model_copy(update=changes)


def _with_failure_as_answer(conversation: ReadingLoop) -> ReadingLoop:
    """Convert an exception into a failed answer so that other conversations continue."""
    try:
        return (yield from conversation)
    except SeerError as error:
        return Answer(text="", status=Status.FAILED, cause=str(error), failure=Failure.of(error))


def _for_task(selector: Selector | ModelPlusLexical | None, task: Task) -> Selector | ModelPlusLexical | None:
    """Return the selector to use for this task: the oracle gets the task's own gold pages."""
    if isinstance(selector, OraclePages):
        return OraclePages(lambda document, question: task.gold_pages)
    return selector
