"""Phase 1: which pages does the answer need?

Three judges give the same thing, the numbers of the necessary pages:
- `gold`: pages that the source's own evidence touches;
- `answer`: pages on which an answer stands as words (distant supervision, as TriviaQA defines it);
- `teacher`: a model is shown each page alone, with the question and the gold answer, and says YES or NO.

The gold answer is used here only; phase 2 never sees it.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from data_pipeline.paging import pages_of
from data_pipeline.prompts import judge_messages, parse_verdict
from data_pipeline.records import Agreement, PageSpan, Rejection, Sample

if TYPE_CHECKING:
    from data_pipeline.teachers import Teacher


@dataclass(frozen=True)
class Relevance:
    """The necessary pages of a sample, ascending, and what it took to find them."""

    pages: tuple[int, ...]
    agreement: Agreement | None = None
    notes: dict[str, int] = field(default_factory=dict)


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
    """Asks a model about every page alone. An unclear reply is asked for again; what stays unclear is never guessed."""

    name = "teacher"

    def __init__(self, teacher: Teacher, reasks: int) -> None:
        self._teacher, self._reasks = teacher, reasks

    async def __call__(self, sample: Sample, pages: Sequence[PageSpan]) -> Relevance | Rejection:
        asked = [self._page(sample, page) for page in pages]
        replies = await asyncio.gather(*asked, return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
        judged = [reply for reply in replies if isinstance(reply, PageVerdict)]
        notes: Counter[str] = Counter()
        for verdict in judged:
            notes.update(verdict.notes)
        for page, verdict in zip(pages, judged, strict=True):
            if verdict.error:
                return sample.reject(
                    refusal_reason(verdict.error, "judge_failed"), f"page {page.number}: {verdict.error}"
                )
            if verdict.necessary is None:
                return sample.reject("judge_unparsed", f"page {page.number}: {verdict.last[:120]!r}").noting(notes)
        found = tuple(page.number for page, verdict in zip(pages, judged, strict=True) if verdict.necessary)
        return Relevance(found, notes=dict(notes))

    async def _page(self, sample: Sample, page: PageSpan) -> PageVerdict:
        messages = judge_messages(sample.question, sample.answers, sample.context[page.start : page.end])
        notes: Counter[str] = Counter()
        last = ""
        for draw in range(self._reasks + 1):
            reply = await self._teacher.ask(messages, draw=draw)
            notes["judge_replies"] += 1
            if reply.error:
                return PageVerdict(None, reply.error, "", notes)
            verdict = parse_verdict(reply.text, reply.finish)
            if verdict in ("yes", "no"):
                return PageVerdict(verdict == "yes", "", "", notes)
            notes[f"judge_{'empty' if not reply.text.strip() else verdict}"] += 1
            last = reply.text
        return PageVerdict(None, "", last, notes)


@dataclass(frozen=True)
class PageVerdict:
    """What a teacher said of one page; `necessary` None: nothing clear."""

    necessary: bool | None
    error: str
    last: str
    notes: Counter[str]


def refusal_reason(error: str, otherwise: str) -> str:
    """A request that is longer than the teacher can read is no fault of anyone's."""
    return "too_long_for_teacher" if _TOO_LONG.search(error) else otherwise


_TOO_LONG = re.compile(r"context length|context window|maximum length|max_model_len|too (long|large|many tokens)", re.I)


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
    """How a judge's pages compare with the source's evidence, page by page."""
    if gold is None:
        return None
    said, marked = set(found), set(gold)
    both = len(said & marked)
    return Agreement(both, len(said - marked), len(marked - said), len(pages) - len(said | marked))
