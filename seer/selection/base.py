"""Selectors that choose pages without the model: what a baseline or a forced selection needs.

A selector gets the document, the question and a budget of pages, and returns page numbers: ascending, unique, in range,
at most `budget`. The model's own selection is a tool call in the conversation and lives in `seer.reading.reader`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from seer.errors import InputError
from seer.schema import Document


class Selector(Protocol):
    name: str

    def select(self, document: Document, question: str, budget: int) -> tuple[int, ...]: ...


class Ranker(Protocol):
    """A selector that can order all pages, best first."""

    name: str

    def rank(self, document: Document, question: str) -> list[int]: ...


class TopRanked:
    """The best pages of a ranking."""

    def __init__(self, ranker: Ranker) -> None:
        self.ranker, self.name = ranker, ranker.name

    def select(self, document: Document, question: str, budget: int) -> tuple[int, ...]:
        return tuple(sorted(self.ranker.rank(document, question)[:budget]))


class FirstPages:
    """The first pages, in order."""

    name = "first"

    def select(self, document: Document, question: str, budget: int) -> tuple[int, ...]:
        return tuple(range(1, min(budget, len(document.pages)) + 1))


class AllPages:
    """Every page, whatever the budget: retrieval without selection."""

    name = "all"

    def select(self, document: Document, question: str, budget: int) -> tuple[int, ...]:
        return tuple(range(1, len(document.pages) + 1))


class RandomPages:
    """Pages by lot. The same seed, document and question give the same pages."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def select(self, document: Document, question: str, budget: int) -> tuple[int, ...]:
        text = f"{self.seed}\0{document.name}\0{len(document.text)}\0{question}"
        draw = random.Random(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
        return tuple(sorted(draw.sample(range(1, len(document.pages) + 1), min(budget, len(document.pages)))))


class OraclePages:
    """The gold pages, from a function that knows them. Its budget is the truth's."""

    name = "oracle"

    def __init__(self, gold: Callable[[Document, str], Iterable[int]]) -> None:
        self.gold = gold

    def select(self, document: Document, question: str, budget: int) -> tuple[int, ...]:
        return tuple(sorted({page for page in self.gold(document, question) if 1 <= page <= len(document.pages)}))


def fuse_ranks(rankings: Sequence[Sequence[int]], k: int = 60) -> list[int]:
    """Reciprocal rank fusion: score = Σ 1 / (k + rank). Ties go to the earlier page."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, page in enumerate(ranking, 1):
            scores[page] = scores.get(page, 0.0) + 1 / (k + rank)
    return sorted(scores, key=lambda page: (-scores[page], page))


class Hybrid:
    """Two rankings fused."""

    def __init__(self, first: Ranker, second: Ranker) -> None:
        self.first, self.second = first, second
        self.name = f"{first.name}+{second.name}"

    def rank(self, document: Document, question: str) -> list[int]:
        return fuse_ranks([self.first.rank(document, question), self.second.rank(document, question)])


class ModelPlusLexical:
    """The model's own selection, and BM25's best page where question and page share enough words.

    The paper finds the two complementary: BM25 is stronger where the question's words stand in the evidence (its A.9).
    """

    name = "model+bm25"

    def __init__(self, min_overlap: float = 0.6) -> None:
        """`min_overlap`: the share of the question's words that must stand on the page."""
        from seer.selection.lexical import BM25

        self.min_overlap = min_overlap
        self._ranker = BM25()

    def extend(self, document: Document, question: str, pages: tuple[int, ...]) -> tuple[int, ...]:
        """The model's pages and, where it pays, one more; ascending."""
        from seer.selection.lexical import words

        best = self._ranker.rank(document, question)[0]
        asked = set(words(question))
        shared = len(asked & set(words(document.page(best).text))) / len(asked) if asked else 0.0
        return tuple(sorted({*pages, best})) if shared >= self.min_overlap else pages


SELECTORS = ("model", "model+bm25", "bm25", "dense", "hybrid", "first", "random", "all", "oracle")


def build_selector(
    name: str, *, seed: int = 0, gold: Callable[[Document, str], Iterable[int]] | None = None
) -> Selector | ModelPlusLexical | None:
    """The selector of this name; None for `model`, whose selection is a call in the conversation."""
    if name == "model":
        return None
    if name == "model+bm25":
        return ModelPlusLexical()
    if name == "oracle":
        if gold is None:
            raise InputError("the oracle selector needs gold pages; give --gold-pages 1,3 or use another selector")
        return OraclePages(gold)
    if name == "random":
        return RandomPages(seed)
    if name in ("bm25", "dense", "hybrid"):
        from seer.selection.lexical import BM25

        if name == "bm25":
            return TopRanked(BM25())
        from seer.selection.dense import Dense

        return TopRanked(Dense() if name == "dense" else Hybrid(BM25(), Dense()))
    simple: dict[str, Selector] = {"first": FirstPages(), "all": AllPages()}
    if name not in simple:
        raise InputError(f"no selector '{name}'; known: {', '.join(SELECTORS)}")
    return simple[name]
