"""Phase 1: find the pages that the answer needs.

Each of three judges returns the numbers of the necessary pages:
- `gold`: pages that overlap the source's own evidence;
- `answer`: pages that contain an answer as whole words (distant supervision, as in TriviaQA);
- `teacher`: a model sees each page separately, with the question and the gold answer, and replies YES or NO.

The gold answer is used only in this phase; the teacher of phase 2 never sees it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from data_pipeline.records import PageSpan, Rejection, Sample
from data_pipeline.steps.paging import pages_overlapping
from seer.teaching.relevance import Agreement, Problem, judge_pages

if TYPE_CHECKING:
    from seer.teaching.teachers import Teacher


@dataclass(frozen=True)
class Relevance:
    """The necessary pages of a sample."""

    pages: tuple[int, ...]
    """Page numbers, ascending."""
    agreement: Agreement | None = None
    """Comparison with the source's evidence, if it marks any."""
    notes: Mapping[str, int] = field(default_factory=dict)
    """Counters of the judge, such as unclear replies."""


class Judge(Protocol):
    """Finds the necessary pages of a sample."""

    name: str
    """The value of `judge` in the provenance of a trajectory."""

    async def __call__(self, sample: Sample, pages: Sequence[PageSpan]) -> Relevance | Rejection:
        """Return the necessary pages, or a rejection if the judge cannot decide."""
        ...


def evidence_pages(sample: Sample, pages: Sequence[PageSpan]) -> tuple[int, ...] | None:
    """Return the pages that overlap the source's evidence, or None if the source marks none."""
    if sample.evidence is None:
        return None
    return pages_overlapping([(item.start, item.end) for item in sample.evidence], pages)


class GoldJudge:
    """Selects the pages that overlap the source's own evidence."""

    name = "gold"

    async def __call__(self, sample: Sample, pages: Sequence[PageSpan]) -> Relevance | Rejection:
        found = evidence_pages(sample, pages)
        return sample.reject("no_evidence") if found is None else Relevance(found)


class AnswerJudge:
    """Selects every page that contains a gold answer as whole words."""

    name = "answer"

    async def __call__(self, sample: Sample, pages: Sequence[PageSpan]) -> Relevance | Rejection:
        if not sample.answerable:
            return Relevance(())
        return Relevance(pages_overlapping(answer_spans(sample), pages))


class TeacherJudge:
    """Asks a model about each page separately."""

    name = "teacher"

    def __init__(self, teacher: Teacher, reasks: int) -> None:
        self._teacher, self._reasks = teacher, reasks

    async def __call__(self, sample: Sample, pages: Sequence[PageSpan]) -> Relevance | Rejection:
        texts = [sample.context[page.start : page.end] for page in pages]
        judged = await judge_pages(self._teacher, sample.question, sample.answers, texts, self._reasks)
        if judged.problem:
            return sample.reject(_REJECTION_REASONS[judged.problem], judged.detail).with_notes(judged.notes)
        return Relevance(judged.pages or (), notes=judged.notes)


_REJECTION_REASONS: dict[Problem, str] = {
    "unparsed": "judge_unparsed",
    "refused": "judge_failed",
    "too_long": "too_long_for_teacher",
}


def answer_spans(sample: Sample) -> list[tuple[int, int]]:
    """Return the spans of gold answers in the context, ascending: whole words, ignoring case.

    An answer of one Latin letter or mark is skipped, because it would occur on almost every page.
    """
    spans: list[tuple[int, int]] = []
    for answer in sample.answers:
        text = answer.strip()
        if len(text) < 2 and not text.isdigit() and not _is_cjk(text):
            continue
        # A word boundary only makes sense next to a letter or digit of a script that separates words.
        left = r"(?<!\w)" if text[:1].isalnum() and not _is_cjk(text[0]) else ""
        right = r"(?!\w)" if text[-1:].isalnum() and not _is_cjk(text[-1]) else ""
        pattern = left + re.escape(text) + right
        spans.extend(match.span() for match in re.finditer(pattern, sample.context, re.I))
    return sorted(set(spans))


def _is_cjk(character: str) -> bool:
    return bool(character) and unicodedata.name(character[0], "").startswith(("CJK", "HIRAGANA", "KATAKANA", "HANGUL"))


def agreement(found: Sequence[int], gold: Sequence[int] | None, pages: Sequence[PageSpan]) -> Agreement | None:
    """Compare a judge's pages with the pages of the source's evidence; None if the source marks no evidence."""
    return None if gold is None else Agreement.of(found, gold, len(pages))
