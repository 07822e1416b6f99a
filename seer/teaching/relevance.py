"""The answer-conditioned judge: a teacher is shown each page alone, with question and gold answer, and says YES or NO.

    judged = await judge_pages(teacher, question, answers, [page.text for page in document.pages], reasks=2)
    judged.pages          the necessary ones, or None where a page stayed undecided

The data pipeline labels what it trains on with it, `seer eval label` what it evaluates on. Labels need the gold answer,
so that no reader may see them.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from seer.teaching.teachers import Teacher
from seer.teaching.verdicts import judge_messages, parse_verdict

Problem = Literal["unparsed", "refused", "too_long"]
_TOO_LONG = re.compile(r"context length|context window|maximum length|max_model_len|too (long|large|many tokens)", re.I)


@dataclass(frozen=True)
class PageVerdict:
    """What a teacher said of one page; `necessary` None: nothing clear, and why."""

    necessary: bool | None
    notes: Counter[str]
    problem: Problem | None = None
    detail: str = ""


@dataclass(frozen=True)
class JudgedPages:
    """What a teacher said of a document. `notes` count its replies, and those of no use by what was wrong with them."""

    pages: tuple[int, ...] | None
    """Numbers of the necessary pages, from 1, ascending; None where a page stayed undecided."""
    notes: Mapping[str, int]
    problem: Problem | None = None
    detail: str = ""
    """Of the first page that stayed undecided."""


async def judge_pages(
    teacher: Teacher, question: str, answers: Sequence[str], page_texts: Sequence[str], reasks: int
) -> JudgedPages:
    """Ask about every page alone. An unclear reply is asked for again; what stays unclear is never guessed.

    Raises what `Teacher.ask` raises, after every page's call has ended.
    """
    asked = [judge_page(teacher, question, answers, text, reasks) for text in page_texts]
    verdicts: list[PageVerdict] = []
    for verdict in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(verdict, BaseException):
            raise verdict
        verdicts.append(verdict)
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
    """Ask about one page until the reply is clear, at most `reasks` times more."""
    messages = judge_messages(question, answers, page_text)
    notes: Counter[str] = Counter()
    last = ""
    for draw in range(reasks + 1):
        reply = await teacher.ask(messages, draw=draw)
        notes["judge_replies"] += 1
        if reply.error:
            return PageVerdict(None, notes, "too_long" if is_too_long(reply.error) else "refused", reply.error)
        verdict = parse_verdict(reply.text, reply.finish)
        if verdict in ("yes", "no"):
            return PageVerdict(verdict == "yes", notes)
        notes[f"judge_{'empty' if not reply.text.strip() else verdict}"] += 1
        last = reply.text
    return PageVerdict(None, notes, "unparsed", repr(last[:120]))


def is_too_long(error: str) -> bool:
    """Whether a server refused a request because it is longer than the teacher can read: no fault of anyone's."""
    return bool(_TOO_LONG.search(error))


@dataclass(frozen=True)
class Agreement:
    """A judge's pages against a reference, counted over pages."""

    both: int = 0
    judge_only: int = 0
    gold_only: int = 0
    neither: int = 0

    @classmethod
    def of(cls, judged: Sequence[int], gold: Sequence[int], num_pages: int) -> Agreement:
        """Of one document of `num_pages` pages."""
        said, marked = set(judged), set(gold)
        both = len(said & marked)
        return cls(both, len(said - marked), len(marked - said), num_pages - len(said | marked))

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(
            self.both + other.both,
            self.judge_only + other.judge_only,
            self.gold_only + other.gold_only,
            self.neither + other.neither,
        )

    @property
    def precision(self) -> float | None:
        said = self.both + self.judge_only
        return self.both / said if said else None

    @property
    def recall(self) -> float | None:
        gold = self.both + self.gold_only
        return self.both / gold if gold else None

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa: agreement above what the two rates give by chance."""
        total = self.both + self.judge_only + self.gold_only + self.neither
        if not total:
            return None
        observed = (self.both + self.neither) / total
        said, gold = (self.both + self.judge_only) / total, (self.both + self.gold_only) / total
        chance = said * gold + (1 - said) * (1 - gold)
        return 1.0 if chance == 1 else (observed - chance) / (1 - chance)
