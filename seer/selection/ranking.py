"""The contract of rankers, which order the pages of a document by relevance to a question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from seer.schema import Document


class Ranker(Protocol):
    """Orders all pages of a document by relevance."""

    name: str

    def rank(self, document: Document, question: str) -> list[int]:
        """Return all page numbers, best first."""
        ...


class Scorer(Ranker, Protocol):
    """A ranker whose scores are known."""

    def scores(self, document: Document, question: str) -> list[float]:
        """Return the score of every page in page order; higher is better."""
        ...


def rank_by(scores: Sequence[float]) -> list[int]:
    """Return all page numbers by falling score. Ties go to the earlier page.

    >>> rank_by([0.5, 2.0, 0.5])
    [2, 1, 3]
    """
    return sorted(range(1, len(scores) + 1), key=lambda number: (-scores[number - 1], number))
