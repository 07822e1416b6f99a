"""Phase 1: which pages does the answer need?

Three judges give the same thing, the numbers of the necessary pages:
- `gold`: pages that the source's own evidence touches;
- `answer`: pages on which an answer stands as words (distant supervision, as TriviaQA defines it);
- `teacher`: a model is shown each page alone, with the question and the gold answer, and says YES or NO.

The gold answer is used here only; phase 2 never sees it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from data_pipeline.records import PageSpan, Rejection, Sample
from data_pipeline.steps.paging import pages_of
from seer.teaching.relevance import Agreement, Problem, judge_pages

if TYPE_CHECKING:
    from seer.teaching.teachers import Teacher


@dataclass(frozen=True)
class Relevance:
    """The necessary pages of a sample, ascending, and what it took to find them."""

    pages: tuple[int, ...]
    agreement: Agreement | None = None
    notes: Mapping[str, int] = field(default_factory=dict)


class Judge(Protocol):
    """Finds the necessary pages of one sample."""

    name: str

    async def __call__(self, sample: Sample, pages: Sequence[PageSpan]) -> Relevance | Rejection: ...


def gold_pages(sample: Sample, pages: Sequence[PageSpan]) -> tuple[int, ...] | None:
    """Pages that the source's evidence touches; None where it marks none."""
    if sample.evidence is None:
        return None
    return pages_of([(item.start, item.end) for item in sample.evidence], pages)


class GoldJudge:
    """The source's own evidence."""

    name = "gold"

    async def __call__(self, sample: Sample, pages: Sequence[PageSpan]) -> Relevance | Rejection:
        found = gold_pages(sample, pages)
        return sample.reject("no_evidence") if found is None else Relevance(found)


class AnswerJudge:
    """Every page on which a gold answer stands as whole words."""

    name = "answer"

    async def __call__(self, sample: Sample, pages: Sequence[PageSpan]) -> Relevance | Rejection:
        if not sample.answerable:
            return Relevance(())
        return Relevance(pages_of(answer_spans(sample), pages))


class TeacherJudge:
    """Asks a model about every page alone."""

    name = "teacher"

    def __init__(self, teacher: Teacher, reasks: int) -> None:
        self._teacher, self._reasks = teacher, reasks

    async def __call__(self, sample: Sample, pages: Sequence[PageSpan]) -> Relevance | Rejection:
        texts = [sample.context[page.start : page.end] for page in pages]
        judged = await judge_pages(self._teacher, sample.question, sample.answers, texts, self._reasks)
        if judged.problem:
            return sample.reject(_REASONS[judged.problem], judged.detail).noting(judged.notes)
        return Relevance(judged.pages or (), notes=judged.notes)


_REASONS: dict[Problem, str] = {
    "unparsed": "judge_unparsed",
    "refused": "judge_failed",
    "too_long": "too_long_for_teacher",
}


def answer_spans(sample: Sample) -> list[tuple[int, int]]:
    """Where gold answers stand in the context, as whole words, whatever their case."""
    spans: list[tuple[int, int]] = []
    for answer in sample.answers:
        text = answer.strip()
        if len(text) < 2 and not text.isdigit() and not _is_cjk(text):
            continue  # a single letter stands everywhere
        left = r"(?<!\w)" if text[:1].isalnum() and not _is_cjk(text[0]) else ""
        right = r"(?!\w)" if text[-1:].isalnum() and not _is_cjk(text[-1]) else ""
        pattern = left + re.escape(text) + right
        spans.extend(match.span() for match in re.finditer(pattern, sample.context, re.I))
    return sorted(set(spans))


def _is_cjk(character: str) -> bool:
    return bool(character) and unicodedata.name(character[0], "").startswith(("CJK", "HIRAGANA", "KATAKANA", "HANGUL"))


def agreement(found: Sequence[int], gold: Sequence[int] | None, pages: Sequence[PageSpan]) -> Agreement | None:
    """How a judge's pages compare with the source's evidence, page by page; None where the source marks none."""
    return None if gold is None else Agreement.of(found, gold, len(pages))
