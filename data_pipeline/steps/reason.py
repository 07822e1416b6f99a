"""Phase 2: the reasoning between retrieved text and answer.

`TeacherReasoner` asks a model that sees question, document and selected pages, never the gold answer; a reply is kept
only if its answer is the gold one (`data_pipeline.steps.filter`).

`TemplateReasoner` needs no model: it quotes, for each relevant page, the sentence that carries the evidence, and ends
with the gold answer. Its records say `reason = template`, so that nobody takes them for a model's thinking.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from data_pipeline.records import PageSpan, Rejection, Sample
from data_pipeline.settings import ReasonSpec
from data_pipeline.steps.annotate import answer_spans
from data_pipeline.steps.filter import matching_answer
from data_pipeline.steps.prompts import parse_reasoning, reason_messages, same_answer_messages
from seer.teaching.relevance import is_too_long
from seer.teaching.template import CHINESE, ENGLISH, quoted_lines, quoted_reasoning
from seer.teaching.verdicts import parse_verdict

if TYPE_CHECKING:
    from seer.teaching.teachers import Teacher

MAX_QUOTE_CHARS = 300


@dataclass(frozen=True)
class Reasoning:
    """What the model is to think and to answer."""

    think: str
    answer: str
    made_by: str
    notes: dict[str, int] = field(default_factory=dict)
    quotes: tuple[tuple[int, str], ...] = ()
    """Of reasoning by quotation: page and quote of each line, so that it can be told call by call."""


class Reasoner(Protocol):
    """Reasons over the pages that were found necessary."""

    name: str

    async def __call__(
        self, sample: Sample, pages: Sequence[PageSpan], relevant: Sequence[int]
    ) -> Reasoning | Rejection: ...


class TeacherReasoner:
    """Draws replies from a model until one answers right."""

    name = "teacher"

    def __init__(self, teacher: Teacher, spec: ReasonSpec) -> None:
        self._teacher, self._spec = teacher, spec

    async def __call__(
        self, sample: Sample, pages: Sequence[PageSpan], relevant: Sequence[int]
    ) -> Reasoning | Rejection:
        by_number = {page.number: page for page in pages}
        selected = [(number, sample.context[by_number[number].start : by_number[number].end]) for number in relevant]
        messages = reason_messages(sample.question, sample.kind, sample.context, selected)
        notes: Counter[str] = Counter()
        problem, detail = "reason_empty", ""
        for draw in range(self._spec.samples):
            reply = await self._teacher.ask(messages, draw=draw)
            notes["reason_replies"] += 1
            if reply.error:
                reason = "too_long_for_teacher" if is_too_long(reply.error) else "reason_failed"
                return sample.reject(reason, reply.error).noting(notes)
            parsed = parse_reasoning(reply.text, reply.think, reply.finish)
            if not parsed.problem:
                gold = await self._right(sample, parsed.answer, notes)
                if gold is not None:
                    return Reasoning(parsed.think, gold, f"teacher:{self._teacher.spec.model}", dict(notes))
            # a wrong answer says more about a record than an unreadable one
            if problem != "answer_differs":
                problem, detail = (
                    parsed.problem or "answer_differs",
                    f"{parsed.answer[:80]!r}, gold {sample.answers[0][:80]!r}",
                )
            notes[parsed.problem or "answer_differs"] += 1
        return sample.reject(problem, detail).noting(notes)

    async def _right(self, sample: Sample, answer: str, notes: Counter[str]) -> str | None:
        """The gold answer that this one equals, in the gold spelling; None where it equals none."""
        match = matching_answer(sample, answer, self._spec)
        if match is not None:
            notes[f"right_by_{match.rule}"] += 1
            return match.answer
        if not self._spec.use_answer_judge or sample.kind in ("summary", "code"):
            return None
        reply = await self._teacher.ask(same_answer_messages(sample.question, sample.answers, answer))
        if parse_verdict(reply.text, reply.finish) != "yes":
            return None
        notes["right_by_judge"] += 1
        return sample.answers[0]


class TemplateReasoner:
    """Quotes the evidence of each relevant page and concludes with the gold answer."""

    name = "template"

    async def __call__(
        self, sample: Sample, pages: Sequence[PageSpan], relevant: Sequence[int]
    ) -> Reasoning | Rejection:
        return template_reasoning(sample, pages, relevant)


def template_reasoning(sample: Sample, pages: Sequence[PageSpan], relevant: Sequence[int]) -> Reasoning | Rejection:
    """Reasoning by quotation. Rejects samples in which there is nothing short to quote."""
    wording = CHINESE if is_chinese(sample.question) else ENGLISH
    answer = sample.answers[0]
    if not sample.answerable:
        return Reasoning(wording.nothing, answer, "template")
    if sample.kind in ("summary", "code"):
        return sample.reject("nothing_to_quote", f"a {sample.kind} does not follow from one sentence")
    spans = [(item.start, item.end) for item in sample.evidence or ()] or answer_spans(sample)
    by_number = {page.number: page for page in pages}
    found = ((number, _quote(sample, spans, by_number[number])) for number in relevant)
    quotes = [(number, quote) for number, quote in found if quote]
    if not quotes:
        return sample.reject("nothing_to_quote")
    return Reasoning(quoted_reasoning(quotes, answer, wording), answer, "template", quotes=tuple(quotes))


def thoughts(sample: Sample, reasoning: Reasoning, rounds: Sequence[tuple[int, ...]]) -> list[str]:
    """What is thought after each call's pages were read; "" for nothing.

    A quotation follows the call that brought its page, so that the next call rests on what is written; a model's reasoning
    is one piece and stands at the end.
    """
    *before, last = [[quote for quote in reasoning.quotes if quote[0] in numbers] for numbers in rounds]
    if not last:
        return [*[""] * len(before), reasoning.think]
    wording = CHINESE if is_chinese(sample.question) else ENGLISH
    return [*(quoted_lines(quotes, wording) for quotes in before), quoted_reasoning(last, reasoning.answer, wording)]


def _quote(sample: Sample, spans: Sequence[tuple[int, int]], page: PageSpan) -> str:
    """The sentence on this page, within the evidence, that shares most words with question and answers."""
    found = [
        sentence
        for start, end in spans
        if start < page.end and end > page.start
        for sentence in _sentences(sample.context, start, end, page)
    ]
    if len(found) < 2:
        return found[0] if found else ""
    wanted = _words(" ".join((sample.question, *sample.answers)))
    return max(found, key=lambda sentence: len(wanted & _words(sentence)))


_SENTENCE_END = re.compile(r"[.!?]\s+|[。！？]|\n+")


def _sentences(text: str, start: int, end: int, page: PageSpan) -> list[str]:
    """Sentences of the page that [start, end) touches, in one line each, at most MAX_QUOTE_CHARS long."""
    stretch = text[page.start : page.end]
    start, end = start - page.start, end - page.start
    sentences, at = [], 0
    for match in _SENTENCE_END.finditer(stretch):
        # a full stop belongs to its sentence, a newline to none
        stop = match.start() + (not match[0].isspace())
        if stop > start and at < end:
            sentences.append(stretch[at:stop])
        at = match.end()
        if at >= end:
            break
    if at < end:
        sentences.append(stretch[at:])
    stripped = (sentence.strip()[:MAX_QUOTE_CHARS] for sentence in sentences)
    return [sentence.replace("“", '"').replace("”", '"') for sentence in stripped if sentence]


def _words(text: str) -> set[str]:
    """Words of spaced scripts, characters of Chinese and Japanese."""
    return set(re.findall(r"[\u3040-\u30ff\u4e00-\u9fff]|[^\W\u3040-\u30ff\u4e00-\u9fff]+", text.casefold()))


def is_chinese(text: str) -> bool:
    return not text.isascii() and len(re.findall(r"[\u4e00-\u9fff]", text)) * 2 > len(re.findall(r"\w", text))
