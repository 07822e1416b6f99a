"""The answer-conditioned judge: a teacher sees each page alone, with question and gold answer, and replies YES or NO.

    judged = await judge_pages(teacher, question, answers, [page.text for page in document.pages], reasks=2)
    judged.pages          the necessary pages, or None if a page stayed undecided

The data pipeline labels training data with it, `seer eval label` evaluation data. Labels depend on the gold answer, so no
reader may see them.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from seer.teaching.ledger import Reply
from seer.teaching.teachers import Teacher
from seer.teaching.verdicts import judge_chat, parse_verdict

Problem = Literal["unparsed", "refused", "too_long"]
# Ledgers of earlier versions hold the text of a refusal, but not its kind.
_TOO_LONG = re.compile(r"context length|context window|maximum length|max_model_len|too (long|large|many tokens)", re.I)


@dataclass(frozen=True)
class PageVerdict:
    """The judgement of one page."""

    necessary: bool | None
    """None if it is undecided."""
    notes: Counter[str]
    """Numbers of replies, and of unusable ones by their fault."""
    problem: Problem | None = None
    detail: str = ""
    """The refusal, or the last unclear reply."""


@dataclass(frozen=True)
class JudgedPages:
    """The judgement of a document."""

    pages: tuple[int, ...] | None
    """Numbers of the necessary pages, from 1, ascending; None if a page stayed undecided."""
    notes: Mapping[str, int]
    """Numbers of replies, and of unusable ones by their fault."""
    problem: Problem | None = None
    detail: str = ""
    """Detail of the first page that stayed undecided."""


async def judge_pages(
    teacher: Teacher, question: str, answers: Sequence[str], page_texts: Sequence[str], reasks: int
) -> JudgedPages:
    """Judge every page alone.

    Args:
        teacher: The judge.
        question: The question, without the task's instructions.
        answers: Gold answers, of which the first three are shown.
        page_texts: Texts of the pages, from page 1.
        reasks: Further draws after an unclear reply. A page that stays unclear is undecided, never guessed.

    Raises what `Teacher.ask` raises, after every page's call has ended.
    """
    calls = [judge_page(teacher, question, answers, text, reasks) for text in page_texts]
    verdicts: list[PageVerdict] = []
    # With return_exceptions, the calls of the other pages finish and reach the ledger before an error is raised.
    for verdict in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(verdict, BaseException):
            raise verdict
        verdicts.append(verdict)
    # The replies of all pages count, also if one of them stays undecided.
    notes: Counter[str] = Counter()
    for verdict in verdicts:
        notes.update(verdict.notes)
    for number, verdict in enumerate(verdicts, 1):
        if verdict.problem:
            return JudgedPages(None, dict(notes), verdict.problem, f"page {number}: {verdict.detail}")
    return JudgedPages(tuple(number for number, verdict in enumerate(verdicts, 1) if verdict.necessary), dict(notes))


async def judge_page(
    teacher: Teacher, question: str, answers: Sequence[str], page_text: str, reasks: int
) -> PageVerdict:
    """Judge one page: ask until the reply is clear, at most `reasks` further times. Raises what `Teacher.ask` raises."""
    chat = judge_chat(question, answers, page_text)
    notes: Counter[str] = Counter()
    last = ""
    for draw in range(reasks + 1):
        reply = await teacher.ask(chat, draw=draw)
        notes["judge_replies"] += 1
        if reply.error:
            return PageVerdict(None, notes, "too_long" if is_too_long(reply) else "refused", reply.error)
        verdict = parse_verdict(reply.text, reply.finish)
        if verdict in ("yes", "no"):
            return PageVerdict(verdict == "yes", notes)
        notes[f"judge_{'empty' if not reply.text.strip() else verdict}"] += 1
        last = reply.text
    return PageVerdict(None, notes, "unparsed", repr(last[:120]))


def is_too_long(refusal: Reply) -> bool:
    """Whether a request was refused because it is longer than the teacher can read."""
    return refusal.error_kind == "too_long" or bool(_TOO_LONG.search(refusal.error))


@dataclass(frozen=True)
class Agreement:
    """A judge's pages against a reference, counted over pages."""

    both: int = 0
    judge_only: int = 0
    gold_only: int = 0
    neither: int = 0

    @classmethod
    def of(cls, judged: Sequence[int], gold: Sequence[int], num_pages: int) -> Agreement:
        """The agreement over one document of `num_pages` pages."""
        chosen, marked = set(judged), set(gold)
        both = len(chosen & marked)
        return cls(both, len(chosen - marked), len(marked - chosen), num_pages - len(chosen | marked))

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(
            self.both + other.both,
            self.judge_only + other.judge_only,
            self.gold_only + other.gold_only,
            self.neither + other.neither,
        )

    @property
    def precision(self) -> float | None:
        """Fraction of the judge's pages that the reference has; None without pages of the judge."""
        chosen = self.both + self.judge_only
        return self.both / chosen if chosen else None

    @property
    def recall(self) -> float | None:
        """Fraction of the reference's pages that the judge has; None without pages of the reference."""
        gold = self.both + self.gold_only
        return self.both / gold if gold else None

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa: agreement beyond the one that the two rates give by chance; None without pages."""
        total = self.both + self.judge_only + self.gold_only + self.neither
        if not total:
            return None
        observed = (self.both + self.neither) / total
        chosen, gold = (self.both + self.judge_only) / total, (self.both + self.gold_only) / total
        chance = chosen * gold + (1 - chosen) * (1 - gold)
        return 1.0 if chance == 1 else (observed - chance) / (1 - chance)
