"""The sampler is a pure function: each sample once per epoch, disjoint ranks, exact shares, steps in any order."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.data.sampler import SamplePlan, drawn, pattern, permutation

SHARES = st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple)


@given(size=st.integers(1, 60), batch=st.integers(1, 9), seed=st.integers(0, 5))
def test_sample_plan_visits_each_sample_once_per_epoch(size: int, batch: int, seed: int) -> None:
    plan = SamplePlan((size,), (1,), (batch,), seed=seed)
    steps = -(-2 * size // batch)
    visited = [index for step in range(steps) for _, index in plan.step_indices(step)]
    assert sorted(visited[:size]) == sorted(visited[size : 2 * size]) == list(range(size))


@given(shares=SHARES, ranks=st.integers(1, 5), step=st.integers(0, 400), batch=st.integers(1, 8))
def test_sample_plan_any_number_of_ranks_splits_a_step_without_overlap(shares, ranks, step, batch) -> None:
    plan = SamplePlan(tuple(range(10, 10 + len(shares))), shares, (batch,) * len(shares), seed=3)
    parts = [plan.indices(step, rank, ranks) for rank in range(ranks)]
    assert Counter(i for part in parts for i in part) == Counter(plan.step_indices(step))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_sample_plan_step_depends_on_its_number_only() -> None:
    """Steps across an epoch boundary, in any order: there is no state to lose (failures of torchdata, accelerate, verl)."""
    plan = SamplePlan((10,), (1,), (4,), seed=1)
    forwards = [plan.step_indices(step) for step in range(12)]
    permutation.cache_clear()
    backwards = [SamplePlan((10,), (1,), (4,), seed=1).step_indices(step) for step in reversed(range(12))]
    assert forwards == backwards[::-1]
    assert plan.epoch(0) == 0
    assert plan.epoch(5) == 2


@given(shares=SHARES, draws=st.integers(0, 200))
def test_pattern_keeps_every_share_to_within_one(shares: tuple[int, ...], draws: int) -> None:
    counts = [drawn(shares, draws, chosen) for chosen in range(len(shares))]
    assert sum(counts) == draws
    period = pattern(shares)
    assert counts == [sum(period[d % len(period)] == c for d in range(draws)) for c in range(len(shares))]
    # The count differs from the exact share by at most one for two sets, and by less than the number of sets for more.
    slack = 1 if len(shares) <= 2 else len(shares) - 1
    assert all(abs(n - draws * share / sum(shares)) <= slack for n, share in zip(counts, shares, strict=True))


def test_sample_plan_mixing_by_step_draws_each_step_from_one_set() -> None:
    plan = SamplePlan((100, 100), (3, 1), (2, 5), mixing="step")
    steps = [plan.step_indices(step) for step in range(8)]
    assert [len(step) for step in steps] == [2, 2, 5, 2] * 2 or Counter(map(len, steps)) == {2: 6, 5: 2}
    assert all(len({chosen for chosen, _ in step}) == 1 for step in steps)
    seen = [index for step in steps for index in step]
    assert len(seen) == len(set(seen))


def test_sample_plan_order_differs_by_seed_and_epoch() -> None:
    first = SamplePlan((50,), (1,), (50,), seed=0)
    assert first.step_indices(0) != first.step_indices(1)
    assert first.step_indices(0) != SamplePlan((50,), (1,), (50,), seed=1).step_indices(0)
    assert [i for _, i in SamplePlan((5,), (1,), (5,), shuffle=False).step_indices(3)] == list(range(5))


def test_sample_plan_rejects_empty_set() -> None:
    with pytest.raises(ValueError, match="data set 1 has no samples; give one with at least one trajectory"):
        SamplePlan((5, 0), (1, 1), (2, 2))
