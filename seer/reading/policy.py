"""The reading policy, and the decisions of the reading loop as functions of numbers and text.

The profitability gate (`mode="auto"`) counts tokens before anything is sent. With T tokens in the full-text prompt, V in
the prompt with images, C in the longest call and O in the observation, it uses images if V + C + O <= T:

* A selector has chosen the pages: O is known, and the sum is exact.
* The model chooses the pages: O is the observation of the largest single page, and the actual observation is trimmed to
  T - V - call. The prompt therefore never exceeds the full-text prompt, whatever the model selects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from seer.protocol.turns import observation, render_observation
from seer.schema import Excerpt, Record
from seer.selection.passages import PASSAGE_PAGES, PASSAGE_TOKENS

Mode = Literal["select", "visual", "text", "auto"]


class ReadingPolicy(Record):
    """How a question is read. The defaults are the single round of the paper."""

    mode: Mode = "select"
    """select: look, select, retrieve, reason. visual: images only. text: the whole text. auto: select or text, whichever
    needs fewer tokens."""
    rounds: int = Field(1, ge=1, le=32)
    """Most rounds of selection. After the first round the model may answer instead of selecting again."""
    max_pages: int | None = Field(8, ge=1)
    """Most pages that the model may select in one round; None for no limit. The paper's trained model rarely selects more
    than three."""
    selector_pages: int = Field(2, ge=1)
    """Pages that a selector other than the model returns. The paper's model selects 1.59 on average. With passages the
    default is 3, since a further page then costs only a few tokens."""
    retrieve: bool | Literal["pages", "passages", "task"] = True
    """True or pages: the text of the selected pages. passages: the sentences of these pages that match the question best,
    within `max_retrieved_tokens`. task: passages for questions, pages for other
    tasks of a benchmark. False: the observation names the selected pages without their text (the paper's A.4, k = 0)."""
    max_retrieved_pages: int | None = Field(None, ge=1)
    """Most selected pages of one question whose text is retrieved, the first ones; the call keeps all of them. None for no
    limit. 1 is the reading of k = 1 in which the selection is free (`max_pages=1` is the other)."""
    max_retrieved_tokens: int | None = Field(None, ge=1)
    """Most tokens of all observations of one question; `fit_excerpts` describes how whole pages are trimmed. None means no
    limit for pages and 1,000 tokens for passages."""
    constraint: Literal["grammar", "none"] = "grammar"
    """grammar: an engine that can constrain allows valid select calls only. none: the model writes its calls freely, so
    that invalid ones can be counted (the paper's measure)."""
    on_invalid_call: Literal["drop", "reject", "reask"] = "drop"
    """drop: use the valid pages of the call. reject: fail the question. reask: request up to `reasks` further calls, then
    drop."""
    reasks: int = Field(1, ge=1, le=8)
    chat: bool = True
    """False: in mode text, the model continues the bare text outside any chat template, as base models expect."""
    think: bool = True
    """False: no thinking between observation and answer, for a model that is trained this way."""
    max_call_tokens: int = Field(256, ge=16)
    max_new_tokens: int = Field(1024, ge=1)
    temperature: float = Field(0.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    seed: int = 0

    @model_validator(mode="before")
    @classmethod
    def _select_more_pages_for_passages(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("retrieve") == "passages":
            return {"selector_pages": PASSAGE_PAGES, **values}
        return values

    @property
    def retrieves_passages(self) -> bool:
        """Whether passages are retrieved. A question that belongs to no benchmark task is a question."""
        return self.retrieve in ("passages", "task")

    @property
    def max_passage_tokens(self) -> int:
        """Most tokens of the passages of one question."""
        return self.max_retrieved_tokens or PASSAGE_TOKENS


Count = Callable[[str], int]
"""Number of tokens of a text."""


def choose_mode(full_text: int, visual: int, call: int, observation_tokens: int) -> Literal["select", "text"]:
    """The gate: "select" only if prompt, call and observation together do not exceed the full-text prompt.

    All arguments are numbers of tokens: `visual` of the prompt with images, `observation_tokens` of the observation.
    """
    return "select" if visual + call + observation_tokens <= full_text else "text"


def fit_excerpts(excerpts: Sequence[Excerpt], max_tokens: int, count: Count, question: str) -> tuple[Excerpt, ...]:
    """Trim excerpts until their observation takes at most `max_tokens`.

    1. Every page gets an equal share of the tokens; pages that need less leave the rest to the others.
    2. A page above its share is trimmed to whole lines around the line that has most words in common with the question.
    3. A line that is too long by itself is cut at its end; a page of which nothing fits is left out.
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
        # Joined text may take more tokens than its parts, so the next pass gets that much less.
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
    """Split `total` so that small needs are met in full and larger ones share the rest equally.

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
    """Consecutive lines around the one closest to the question, as many as fit into `max_tokens`.

    If that line does not fit, its longest beginning that does; None if not even one character fits.
    """
    lines = excerpt.text.splitlines(keepends=True)
    words = set(re.findall(r"\w+", question.lower()))
    overlap = [len(words & set(re.findall(r"\w+", line.lower()))) for line in lines]
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
    """The longest beginning of an excerpt that fits; None if not even one character does."""
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
    """Split the pages 1, 2, … into runs of consecutive pages whose `costs` (page 1 first) sum to at most `room`.

    A page that costs more than `room` is a run by itself.

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
