"""Selectors that choose pages without the model, for baselines and forced selections.

A selector receives the document, the question and a page budget and returns page numbers: ascending, unique, in range
and at most `budget`. The model's own selection is a tool call in the conversation; see `seer.reading.reader`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from seer.errors import InputError
from seer.schema import Document
from seer.selection.ranking import Ranker


class Selector(Protocol):
    """Chooses pages for a question."""

    name: str

    def select(self, document: Document, question: str, budget: int) -> tuple[int, ...]:
        """Return page numbers, ascending and unique. Classes whose budget is not the caller's say so."""
        ...


class TopRanked:
    """Selects the best pages of a ranking."""

    def __init__(self, ranker: Ranker) -> None:
        self.ranker, self.name = ranker, ranker.name

    def select(self, document: Document, question: str, budget: int) -> tuple[int, ...]:
        return tuple(sorted(self.ranker.rank(document, question)[:budget]))


class FirstPages:
    """Selects the first pages of the document."""

    name = "first"

    def select(self, document: Document, question: str, budget: int) -> tuple[int, ...]:
        return tuple(range(1, min(budget, len(document.pages)) + 1))


class AllPages:
    """Selects every page and ignores the budget: retrieval without selection."""

    name = "all"

    def select(self, document: Document, question: str, budget: int) -> tuple[int, ...]:
        return tuple(range(1, len(document.pages) + 1))


class RandomPages:
    """Selects pages at random. The same seed, document and question give the same pages."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def select(self, document: Document, question: str, budget: int) -> tuple[int, ...]:
        # A hash instead of one shared generator makes the draw independent of the order of questions.
        text = f"{self.seed}\0{document.name}\0{len(document.text)}\0{question}"
        draw = random.Random(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
        return tuple(sorted(draw.sample(range(1, len(document.pages) + 1), min(budget, len(document.pages)))))


class OraclePages:
    """Selects the gold pages, which a function supplies, and ignores the budget."""

    name = "oracle"

    def __init__(self, gold: Callable[[Document, str], Iterable[int]]) -> None:
        self.gold = gold

    def select(self, document: Document, question: str, budget: int) -> tuple[int, ...]:
        return tuple(sorted({page for page in self.gold(document, question) if 1 <= page <= len(document.pages)}))


def fuse_ranks(rankings: Sequence[Sequence[int]], k: int = 60) -> list[int]:
    """Merge rankings by reciprocal rank fusion: score = Σ 1 / (k + rank), rank from 1. Ties go to the earlier page.

    Source: Cormack, Clarke and Büttcher, SIGIR 2009, whose k is 60.
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, page in enumerate(ranking, 1):
            scores[page] = scores.get(page, 0.0) + 1 / (k + rank)
    return sorted(scores, key=lambda page: (-scores[page], page))


class Hybrid:
    """Ranks pages by the fusion of two rankings."""

    def __init__(self, first: Ranker, second: Ranker) -> None:
        self.first, self.second = first, second
        self.name = f"{first.name}+{second.name}"

    def rank(self, document: Document, question: str) -> list[int]:
        return fuse_ranks([self.first.rank(document, question), self.second.rank(document, question)])


class ModelPlusLexical:
    """Adds BM25's best page to the model's own selection if question and page share enough words.

    The paper finds the two complementary: BM25 is stronger if the evidence contains the question's words (section A.9).
    """

    name = "model+bm25"

    def __init__(self, min_overlap: float = 0.6) -> None:
        """min_overlap: the fraction of the question's words that the page must contain."""
        from seer.selection.lexical import BM25

        self.min_overlap = min_overlap
        self._ranker = BM25()

    def extend(self, document: Document, question: str, pages: tuple[int, ...]) -> tuple[int, ...]:
        """Return the model's pages, and BM25's best page if it qualifies; ascending."""
        from seer.selection.lexical import words

        best = self._ranker.rank(document, question)[0]
        question_words = set(words(question))
        common = question_words & set(words(document.page(best).text))
        shared = len(common) / len(question_words) if question_words else 0.0
        return tuple(sorted({*pages, best})) if shared >= self.min_overlap else pages


SELECTORS = ("model", "model+bm25", "bm25", "dense", "hybrid", "first", "random", "all", "oracle", "passages")


def build_selector(
    name: str, *, seed: int = 0, gold: Callable[[Document, str], Iterable[int]] | None = None
) -> Selector | ModelPlusLexical | None:
    """Return the selector of this name; None for `model`, whose selection is a call in the conversation.

    seed: of the random selector.
    gold: returns the gold pages of a document and question, for the oracle.

    Raises InputError for an unknown name, and for `oracle` without gold pages.
    """
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
    # These import their libraries here, because they are slow to import and the others need none.
    if name == "passages":
        from seer.selection.passages import PassagePages

        return PassagePages()
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
