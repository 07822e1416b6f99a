"""Page beliefs: Beta distributions that evidence updates, and the score by which a round chooses its pages.

beliefs = PageBeliefs(num_pages=12, alpha=1, beta=1, radius=2, decay=0.5)
beliefs.update(useful=(4,), irrelevant=(9,))
scores = mix_scores(similarities, beliefs.sample(generator), lambda_of_round(2, 3, 0.5))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class PageBeliefs:
    """One Beta(α, β) for each page, from page 1. Updates are conjugate: evidence is added to α or β."""

    def __init__(self, num_pages: int, alpha: float, beta: float, radius: int, decay: float) -> None:
        self.alpha: Floats = np.full(num_pages, alpha)
        self.beta: Floats = np.full(num_pages, beta)
        self.radius, self.decay = radius, decay

    def update(self, useful: Iterable[int], irrelevant: Iterable[int]) -> None:
        """Add the evidence of a round: α + 1 for useful pages, β + 1 for irrelevant ones.

        A useful page also adds decay**d to α of the pages at distance d ≤ radius. Negative evidence does not spread.
        """
        for page in useful:
            self.alpha[page - 1] += 1.0
            for distance in range(1, self.radius + 1):
                for neighbour in (page - distance, page + distance):
                    if 1 <= neighbour <= len(self.alpha):
                        self.alpha[neighbour - 1] += self.decay**distance
        for page in irrelevant:
            self.beta[page - 1] += 1.0

    def add_prior(self, pages: Iterable[int], evidence: float) -> None:
        """Add `evidence` to α of pages that the schema makes likely."""
        for page in pages:
            self.alpha[page - 1] += evidence

    def sample(self, generator: np.random.Generator) -> Floats:
        """Return one sample θ of each page's belief: Thompson sampling."""
        return generator.beta(self.alpha, self.beta)

    def mean(self) -> Floats:
        """Return the mean α / (α + β) of each page's belief."""
        return self.alpha / (self.alpha + self.beta)


def lambda_of_round(number: int, rounds: int, max_lambda: float) -> float:
    """Return the weight λ of the beliefs in a round, from 1: linear from 0 to `max_lambda` in the last round."""
    return 0.0 if rounds == 1 else max_lambda * (number - 1) / (rounds - 1)


def mix_scores(similarities: Sequence[float], beliefs: Sequence[float] | Floats, weight: float) -> Floats:
    """Return (1 − λ) · c + λ · θ for each page; the similarities c are scaled to the range from 0 to 1 first."""
    values = np.asarray(similarities, np.float64)
    spread = values.max() - values.min() if len(values) else 0.0
    scaled = (values - values.min()) / spread if spread > 0 else np.zeros_like(values)
    return (1.0 - weight) * scaled + weight * np.asarray(beliefs, np.float64)
