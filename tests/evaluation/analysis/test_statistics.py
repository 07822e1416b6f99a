"""Bootstrap intervals and paired tests: exact where possible, seeded, and paired by sample."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.evaluation.analysis.statistics import bootstrap_interval, compare, macro_weights

CATEGORIES = {"hotpotqa": "multi", "musique": "multi", "trec": "few", "lcc": "code"}


scores = st.dictionaries(
    st.sampled_from(["hotpotqa", "musique", "trec", "lcc"]),
    st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 1), min_size=1),
    min_size=1,
)


def numbered(values: list[float]) -> dict[str, float]:
    return {str(n): value for n, value in enumerate(values)}


def test_macro_weights_give_mean_of_category_means():
    assert macro_weights({"a": "x", "b": "x", "c": "y"}) == {"a": 0.25, "b": 0.25, "c": 0.5}


@settings(max_examples=40, deadline=None)
@given(scores)
def test_bootstrap_interval_is_deterministic_and_within_range(values):
    interval = bootstrap_interval(values, CATEGORIES, num_resamples=200)
    weights = macro_weights({name: CATEGORIES[name] for name in values})
    mean = sum(weights[name] * 100 * math.fsum(by_id.values()) / len(by_id) for name, by_id in values.items())
    assert interval.mean == pytest.approx(mean)
    least = min(min(by_id.values()) for by_id in values.values())
    most = max(max(by_id.values()) for by_id in values.values())
    assert 100 * least - 1e-9 <= interval.low <= interval.high <= 100 * most + 1e-9
    assert bootstrap_interval(values, CATEGORIES, num_resamples=200) == interval


def test_bootstrap_interval_has_theoretical_width():
    interval = bootstrap_interval({"trec": numbered([0.0, 1.0] * 200)}, CATEGORIES, num_resamples=4000)
    expected = 1.96 * 100 * 0.5 / math.sqrt(400)
    assert (interval.high - interval.low) / 2 == pytest.approx(expected, rel=0.1)
    assert interval.mean == 50


def test_compare_of_equal_runs_is_zero():
    same = {"trec": numbered([0.0, 0.5, 1.0])}
    result = compare(same, same, CATEGORIES)
    assert (result.difference.mean, result.difference.low, result.difference.high) == (0, 0, 0)
    assert result.p_value == 1
    assert (result.num_better, result.num_worse, result.num_unpaired) == (0, 0, 0)


def test_compare_separates_clear_from_random_difference():
    draw = random.Random(5)
    first = numbered([draw.random() * 0.8 for _ in range(100)])
    better = {key: value + 0.2 * draw.random() for key, value in first.items()}
    result = compare({"trec": first}, {"trec": better}, CATEGORIES)
    assert result.difference.low > 0
    assert result.p_value < 0.01
    assert result.num_better == 100
    shuffled = dict(zip(first, draw.sample(list(first.values()), 100), strict=True))
    assert compare({"trec": first}, {"trec": shuffled}, CATEGORIES).p_value > 0.2


def test_compare_p_value_equals_exact_sign_flip_test():
    """Three samples, all better: two of the eight sign combinations have a difference as large."""
    result = compare({"trec": numbered([0, 0, 0])}, {"trec": numbered([0.1, 0.2, 0.3])}, CATEGORIES, num_resamples=8000)
    assert result.p_value == pytest.approx(2 / 8, abs=0.02)


@given(scores, scores)
@settings(max_examples=40, deadline=None)
def test_compare_of_swapped_runs_has_opposite_sign(first, second):
    if not any(set(first.get(name, {})) & set(second.get(name, {})) for name in first):
        with pytest.raises(InputError, match="no sample in common"):
            compare(first, second, CATEGORIES, num_resamples=10)
        return
    there = compare(first, second, CATEGORIES, num_resamples=50)
    back = compare(second, first, CATEGORIES, num_resamples=50)
    assert there.difference.mean == pytest.approx(-back.difference.mean)
    assert there.num_unpaired == back.num_unpaired
    every = sum(len(by_id) for run in (first, second) for by_id in run.values())
    assert 2 * there.num_samples + there.num_unpaired == every


def test_bootstrap_interval_rejects_empty_scores():
    with pytest.raises(InputError, match="no scores"):
        bootstrap_interval({}, {})
