"""Uncertainty of scores: seeded bootstrap intervals and paired permutation tests.

The overall score of a benchmark is a mean of category means of task means, so a sample of a small task in a small
category has more weight. Scores are given by task and id, together with the category of each task. To analyse a single
task, give it a separate category.

Samples are resampled within each task, never across tasks, which keeps the size of every task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seer.errors import InputError

if TYPE_CHECKING:
    import numpy as np

Scores = Mapping[str, Mapping[str, float]]
"""Scores in [0, 1] by task, then by id."""

NUM_RESAMPLES = 2000
_BATCH = 100
"""Resamples per batch, to limit memory."""


@dataclass(frozen=True)
class Interval:
    """A mean and the central `level` of its bootstrap distribution, in points from 0 to 100."""

    mean: float
    low: float
    high: float
    level: float


@dataclass(frozen=True)
class Comparison:
    """Difference of the second run minus the first, in points, over the samples of both."""

    difference: Interval
    p_value: float
    """Two-sided: fraction of random swaps of the two runs, sample by sample, with a difference at least as large."""
    num_samples: int
    num_better: int
    num_worse: int
    num_unpaired: int
    """Samples in only one of the runs, which are excluded."""


def macro_weights(categories: Mapping[str, str]) -> dict[str, float]:
    """Return the weight of each task in the mean of category means: 1 / (tasks in its category x number of categories)."""
    sizes = Counter(categories.values())
    return {name: 1 / (sizes[category] * len(sizes)) for name, category in categories.items()}


def bootstrap_interval(
    scores: Scores,
    categories: Mapping[str, str],
    *,
    seed: int = 0,
    level: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
) -> Interval:
    """Return the percentile bootstrap interval of the mean of category means.

    `categories` gives the category of each task. Raises InputError if there are no scores.
    """
    import numpy as np

    filled = {name: list(by_id.values()) for name, by_id in scores.items() if by_id}
    if not filled:
        raise InputError("there are no scores to draw from; give at least one task with a sample")
    weights = macro_weights({name: categories[name] for name in filled})
    columns = {name: 100 * np.asarray(values) for name, values in filled.items()}
    mean, means = _resample(columns, weights, np.random.default_rng(seed), num_resamples)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(mean, float(low), float(high), level)


def compare(
    first: Scores,
    second: Scores,
    categories: Mapping[str, str],
    *,
    seed: int = 0,
    level: float = 0.95,
    num_resamples: int = NUM_RESAMPLES,
) -> Comparison:
    """Compare two runs over their common samples: bootstrap interval and sign-flip permutation test.

    `categories` gives the category of each task. Raises InputError if the runs have no sample in common.
    """
    import numpy as np

    paired: dict[str, list[float]] = {}
    num_unpaired = 0
    for name in [*first, *(name for name in second if name not in first)]:
        one, other = first.get(name, {}), second.get(name, {})
        common = [identifier for identifier in one if identifier in other]
        num_unpaired += len(one) + len(other) - 2 * len(common)
        if common:
            paired[name] = [other[identifier] - one[identifier] for identifier in common]
    if not paired:
        raise InputError("the two runs have no sample in common; compare runs over the same inputs")
    weights = macro_weights({name: categories[name] for name in paired})
    rng = np.random.default_rng(seed)
    columns = {name: 100 * np.asarray(values) for name, values in paired.items()}
    mean, means = _resample(columns, weights, rng, num_resamples)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    every = np.concatenate(list(columns.values()))
    return Comparison(
        difference=Interval(mean, float(low), float(high), level),
        p_value=_sign_flip_p(columns, weights, mean, rng, num_resamples),
        num_samples=int(every.size),
        num_better=int((every > 0).sum()),
        num_worse=int((every < 0).sum()),
        num_unpaired=num_unpaired,
    )


def _resample(
    columns: Mapping[str, np.ndarray],
    weights: Mapping[str, float],
    rng: np.random.Generator,
    num_resamples: int,
) -> tuple[float, np.ndarray]:
    """Return the weighted mean of all tasks, and an array of the weighted means of `num_resamples` resamples."""
    import numpy as np

    # Tasks are resampled one after the other and their weighted means added up. The batches bound the index array, whose
    # shape is (resamples in the batch, samples of the task).
    means = np.zeros(num_resamples)
    mean = 0.0
    for name, values in columns.items():
        mean += weights[name] * float(values.mean())
        for start in range(0, num_resamples, _BATCH):
            size = min(_BATCH, num_resamples - start)
            drawn = values[rng.integers(0, values.size, (size, values.size))]
            means[start : start + size] += weights[name] * drawn.mean(axis=1)
    return mean, means


def _sign_flip_p(
    columns: Mapping[str, np.ndarray],
    weights: Mapping[str, float],
    observed: float,
    rng: np.random.Generator,
    num_resamples: int,
) -> float:
    """Return the p value of a sign-flip test: without a difference, both orders of each pair are equally likely."""
    import numpy as np

    # The contribution of each pair to the overall difference. A flipped pair contributes the negative, so one product of
    # signs (permutations, pairs) with the contributions gives the difference of every permutation.
    contributions = np.concatenate([weights[name] * values / values.size for name, values in columns.items()])
    as_large = 0
    for start in range(0, num_resamples, _BATCH):
        signs = rng.integers(0, 2, (min(_BATCH, num_resamples - start), contributions.size)) * 2 - 1
        # The tolerance counts permutations that are equal to the observed difference up to rounding.
        as_large += int((np.abs(signs @ contributions) >= abs(observed) - 1e-9).sum())
    # Count the observed arrangement as one of the permutations, so p is never 0.
    return (as_large + 1) / (num_resamples + 1)
