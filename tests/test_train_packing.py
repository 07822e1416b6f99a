"""Packing fits the budget and loses nothing; grouped attention equals attention under a block mask."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from train.attention import Groups, grouped_attention
from train.packing import group_segments, pack, plan_attention

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=20)


@given(lengths=LENGTHS, spare=st.integers(0, 100))
def test_packing_keeps_everything_within_the_budget(lengths: list[int], spare: int) -> None:
    budget = max(lengths) + spare
    batches = pack(lengths, budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in batch) <= budget for batch in batches)
    # two batches that would fit into one would have been one
    loads = sorted(sum(lengths[i] for i in batch) for batch in batches)
    assert len(loads) < 2 or loads[0] + loads[1] > budget
    assert batches == pack(lengths, budget)


def test_a_sample_beyond_the_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="a sample of 9 tokens fits no micro-batch of 8"):
        pack([3, 9], 8)


@given(lengths=LENGTHS, may_pad=st.booleans())
def test_groups_bound_padding(lengths: list[int], may_pad: bool) -> None:
    groups = group_segments(lengths, may_pad=may_pad)
    assert sorted(s for group in groups for s in group.segments) == list(range(len(lengths)))
    for group in groups:
        shortest = min(lengths[s] for s in group.segments)
        assert group.longest <= shortest * (1.25 if may_pad else 1)


@given(lengths=LENGTHS, may_pad=st.booleans())
def test_the_plan_brings_every_token_back_to_its_place(lengths: list[int], may_pad: bool) -> None:
    plan = plan_attention(lengths, may_pad=may_pad)
    row = np.arange(sum(lengths))
    if plan.shape:
        assert plan.shape[0] * plan.shape[1] == len(row)
    else:
        gathered = np.concatenate([row[g].reshape(-1) for g in plan.gather])
        assert (gathered[plan.scatter] == row).all()


@pytest.mark.parametrize("lengths", [[5], [4, 4, 4], [7, 1, 30, 8, 9, 7], [3, 50]])
@pytest.mark.parametrize("causal", [True, False])
def test_grouped_attention_equals_a_block_mask(lengths: list[int], causal: bool) -> None:
    total, heads, kv_heads, size = sum(lengths), 4, 2, 8
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(total, heads, size, generator=generator, requires_grad=True)
    k, v = (torch.randn(total, kv_heads, size, generator=generator, requires_grad=True) for _ in range(2))
    groups = Groups.of(plan_attention(lengths, may_pad=causal))
    ours = grouped_attention(q, k, v, groups, causal=causal, scale=0.3)

    segment = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    mask = segment[:, None] == segment[None, :]
    if causal:
        mask &= torch.ones(total, total).tril().bool()
    expected = functional.scaled_dot_product_attention(
        *(x.transpose(0, 1)[None] for x in (q, k, v)), attn_mask=mask, scale=0.3, enable_gqa=True
    )[0].transpose(0, 1)
    torch.testing.assert_close(ours, expected)
    direction = torch.randn(ours.shape, generator=generator)
    got = torch.autograd.grad((ours * direction).sum(), (q, k, v))
    wanted = torch.autograd.grad((expected * direction).sum(), (q, k, v))
    torch.testing.assert_close(got, wanted)
