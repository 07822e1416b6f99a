"""Decisions of the reading loop, apart from doing: what may be spent, whether pictures pay, what is cut first.

The profitability gate (`mode="auto"`) counts before anything is sent. With T the full-text prompt, V the prompt with
pictures and C the longest call, pictures are taken where V + C + the observation fits under T:

* pages chosen without the model: the observation is known, the sum is exact;
* pages chosen by the model: room must be left for the largest single page, and the observation that follows is cut to
  T - V - call. So the prompt never exceeds the full-text prompt, whatever the model selects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field

from seer.protocol.turns import observation, render_observation
from seer.schema import Excerpt, Record

Mode = Literal["select", "visual", "text", "auto"]


class ReadingPolicy(Record):
    """How a question is read. The defaults are the paper's single round."""

    mode: Mode = "select"
    """select: look, select, retrieve, reason. visual: pictures alone. text: the whole text. auto: what is cheaper."""
    rounds: int = Field(1, ge=1, le=32)
    """How often the model may select. After the first round it may also answer at once."""
    max_pages: int | None = Field(8, ge=1)
    """Pages a round. The trained model of the paper hardly ever takes more than three."""
    selector_pages: int = Field(2, ge=1)
    """Pages for selectors other than the model; the paper's model takes 1.59 on average."""
    retrieve: bool = True
    """False: the selection is acknowledged but no text is given (the paper's A.4, k = 0)."""
    max_retrieved_tokens: int | None = Field(None, ge=1)
    """Cap on the observations of one question together; see `fit_excerpts` for what is cut first."""
    on_invalid_call: Literal["drop", "reject", "reask"] = "drop"
    """drop: use what is valid in the call. reject: fail the question. reask: ask up to `reasks` times more, then drop."""
    reasks: int = Field(1, ge=1, le=8)
    chat: bool = True
    """False: mode text lets the model go on with the bare text, outside any chat template, as base models want it."""
    think: bool = True
    """False: the trace goes from the observation straight to the answer (a model trained so)."""
    max_call_tokens: int = Field(256, ge=16)
    max_new_tokens: int = Field(1024, ge=1)
    temperature: float = Field(0.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    seed: int = 0


Count = Callable[[str], int]


def choose_mode(full_text: int, visual: int, call: int, observation_tokens: int) -> Literal["select", "text"]:
    """The gate: pictures only where prompt, call and observation together do not exceed the full-text prompt."""
    return "select" if visual + call + observation_tokens <= full_text else "text"


def fit_excerpts(excerpts: Sequence[Excerpt], max_tokens: int, count: Count, question: str) -> tuple[Excerpt, ...]:
    """Cut excerpts until their observation takes at most `max_tokens`.

    1. Every page gets a fair share; pages that need less give the rest to the others.
    2. A page above its share is trimmed to neighbouring lines around the line that shares most words with the question.
    3. A page of which no line fits is left out.
    """
    kept = tuple(excerpts)
    budget = max_tokens
    while kept:
        taken = count(f"\n{render_observation(observation(kept))}\n")
        if taken <= max_tokens:
            return kept
        budget -= taken - max_tokens if kept != tuple(excerpts) else 0
        if budget < 1:
            return ()
        trimmed = _trim_to_shares(excerpts, budget, count, question)
        # joined text may take a token more than its parts: go on with what is over taken off
        budget -= 1
        kept = trimmed
    return ()


def _trim_to_shares(excerpts: Sequence[Excerpt], max_tokens: int, count: Count, question: str) -> tuple[Excerpt, ...]:
    needs = [count(_observed(excerpt)) for excerpt in excerpts]
    shares = fair_shares(needs, max_tokens)
    trimmed = []
    for excerpt, need, share in zip(excerpts, needs, shares, strict=True):
        cut = excerpt if need <= share else trim_to_lines(excerpt, share, count, question)
        if cut is not None:
            trimmed.append(cut)
    return tuple(trimmed)


def fair_shares(needs: Sequence[int], total: int) -> list[int]:
    """Split `total` so that small needs are met and the rest is shared equally.

    >>> fair_shares([100, 900, 900], 1000)
    [100, 450, 450]
    """
    shares = [0] * len(needs)
    left = total
    order = sorted(range(len(needs)), key=lambda i: needs[i])
    for done, i in enumerate(order):
        shares[i] = min(needs[i], left // (len(order) - done))
        left -= shares[i]
    return shares


def trim_to_lines(excerpt: Excerpt, max_tokens: int, count: Count, question: str) -> Excerpt | None:
    """Neighbouring whole lines around the one nearest to the question; None where not one line fits."""
    lines = excerpt.text.splitlines(keepends=True)
    asked = set(re.findall(r"\w+", question.lower()))
    overlap = [len(asked & set(re.findall(r"\w+", line.lower()))) for line in lines]
    if not lines:
        return None
    first = last = max(range(len(lines)), key=lambda i: (overlap[i], -i))

    def cut(first: int, last: int) -> Excerpt:
        start = excerpt.start + sum(map(len, lines[:first]))
        return Excerpt(page=excerpt.page, start=start, text="".join(lines[first : last + 1]))

    def fits(first: int, last: int) -> bool:
        return count(_observed(cut(first, last))) <= max_tokens

    if not fits(first, last):
        return _trim_to_characters(cut(first, last), max_tokens, count)
    grew = True
    while grew:
        grew = False
        if last + 1 < len(lines) and fits(first, last + 1):
            last, grew = last + 1, True
        if first > 0 and fits(first - 1, last):
            first, grew = first - 1, True
    return cut(first, last)


def _trim_to_characters(excerpt: Excerpt, max_tokens: int, count: Count) -> Excerpt | None:
    """The longest beginning that fits, for a line that is too long by itself."""
    low, high = 0, len(excerpt.text)
    while low < high:
        middle = (low + high + 1) // 2
        shorter = Excerpt(page=excerpt.page, start=excerpt.start, text=excerpt.text[:middle])
        if count(_observed(shorter)) <= max_tokens:
            low = middle
        else:
            high = middle - 1
    return Excerpt(page=excerpt.page, start=excerpt.start, text=excerpt.text[:low]) if low else None


def _observed(excerpt: Excerpt) -> str:
    return f"\n{render_observation(observation([excerpt]))}"


def chunk_pages(costs: Sequence[int], room: int) -> list[range]:
    """Split pages, each costing `costs[i]` tokens, into runs of neighbours that fit `room`. Page numbers from 1.

    A page that costs more than `room` stands alone in its run.

    >>> chunk_pages([500, 400, 300, 1500, 200], room=1000)
    [range(1, 3), range(3, 4), range(4, 5), range(5, 6)]
    """
    runs: list[range] = []
    first, used = 1, 0
    for number, cost in enumerate(costs, 1):
        if number > first and used + cost > room:
            runs.append(range(first, number))
            first, used = number, 0
        used += cost
    runs.append(range(first, len(costs) + 1))
    return runs
