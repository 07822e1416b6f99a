"""The samples of a step, as a pure function of (seed, sets, step, rank). There is no state to save or lose.

Draws are numbered from 0. A fixed pattern assigns each draw to a set, so that after any number of draws every set has its
share to within one. Draw c from a set of n samples takes entry c % n of that set's permutation for epoch c // n. A run that
resumes at step s, on any number of ranks, trains on the same samples as a run that was not interrupted.

    plan = SamplePlan(sizes=(1000, 50), shares=(3, 1), per_step=(8, 8), mixing="sample", seed=0)
    plan.indices(step=17, rank=0, ranks=2)           # [(set, index), ...]
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np

Index = tuple[int, int]
"""(data set, sample within it)"""


@dataclass(frozen=True)
class SamplePlan:
    """The distribution of a run's draws over its data sets. Raises ValueError if a set is empty."""

    sizes: tuple[int, ...]
    """Samples in each set."""
    shares: tuple[int, ...]
    """Draws from each set in every period of sum(shares) draws."""
    per_step: tuple[int, ...]
    """Samples per step of each set; with `mixing = "sample"`, all entries are the global batch."""
    mixing: Literal["sample", "step"] = "sample"
    seed: int = 0
    shuffle: bool = True

    def __post_init__(self) -> None:
        assert len(self.sizes) == len(self.shares) == len(self.per_step) > 0, "one size, share and batch for each set"
        for number, size in enumerate(self.sizes):
            if size < 1:
                raise ValueError(f"data set {number} has no samples; give one with at least one trajectory")

    def step_indices(self, step: int) -> list[Index]:
        """All samples of a step, over all ranks."""
        if self.mixing == "step":
            # Here the pattern counts steps: the whole step comes from one set.
            chosen = pattern(self.shares)[step % sum(self.shares)]
            first = drawn(self.shares, step, chosen) * self.per_step[chosen]
            return [(chosen, self._entry(chosen, first + i)) for i in range(self.per_step[chosen])]
        batch, indices = self.per_step[0], []
        for draw in range(step * batch, (step + 1) * batch):
            chosen = pattern(self.shares)[draw % sum(self.shares)]
            indices.append((chosen, self._entry(chosen, drawn(self.shares, draw, chosen))))
        return indices

    def indices(self, step: int, rank: int = 0, ranks: int = 1) -> list[Index]:
        """The samples of one rank: every `ranks`-th sample of the step, so each sample goes to exactly one rank."""
        return self.step_indices(step)[rank::ranks]

    def epoch(self, step: int, chosen: int = 0) -> int:
        """The epoch of a set at the beginning of a step, counted from 0."""
        count = step if self.mixing == "step" else step * self.per_step[0]
        draws = drawn(self.shares, count, chosen) * (self.per_step[chosen] if self.mixing == "step" else 1)
        return draws // self.sizes[chosen]

    def _entry(self, chosen: int, draw: int) -> int:
        epoch, position = divmod(draw, self.sizes[chosen])
        if not self.shuffle:
            return position
        return int(permutation(self.seed, chosen, epoch, self.sizes[chosen])[position])


@functools.lru_cache(maxsize=32)
def permutation(seed: int, chosen: int, epoch: int, size: int) -> np.ndarray:
    """The order of a set's samples in one epoch. Cached, since drawing it costs time in proportion to the set."""
    return np.random.default_rng([seed, chosen, epoch]).permutation(size)


@functools.lru_cache(maxsize=32)
def pattern(shares: tuple[int, ...]) -> tuple[int, ...]:
    """The set of each draw in a period of sum(shares) draws, with every set spread as evenly as integers allow.

    This is smooth weighted round-robin: each draw goes to the set furthest behind its share; ties go to the first.
    """
    total, credit, chosen = sum(shares), [0] * len(shares), []
    for _ in range(total):
        credit = [have + share for have, share in zip(credit, shares, strict=True)]
        best = max(range(len(shares)), key=lambda i: (credit[i], -i))
        credit[best] -= total
        chosen.append(best)
    return tuple(chosen)


@functools.lru_cache(maxsize=32)
def _counts(shares: tuple[int, ...]) -> np.ndarray:
    """int64 (total + 1, sets): row d counts the draws from each set among the first d draws of a period."""
    one_hot = np.eye(len(shares), dtype=np.int64)[list(pattern(shares))]
    return np.concatenate([np.zeros((1, len(shares)), np.int64), one_hot.cumsum(0)])


def drawn(shares: tuple[int, ...], draws: int, chosen: int) -> int:
    """The number of draws from set `chosen` among the first `draws` draws."""
    periods, rest = divmod(draws, sum(shares))
    return periods * shares[chosen] + int(_counts(shares)[rest, chosen])
