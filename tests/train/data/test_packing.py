"""Packing keeps every sample within the budget; runs keep segments; grouped attention equals attention with a block mask."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from train.data.packing import balance, idle_share, pack, runs_of
from train.model.attention import grouped_attention

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=20)


@given(lengths=LENGTHS, spare=st.integers(0, 100))
def test_pack_keeps_every_sample_within_the_budget(lengths: list[int], spare: int) -> None:
    budget = max(lengths) + spare
    batches = pack(lengths, budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in batch) <= budget for batch in batches)
    assert all(lengths[a] >= lengths[b] for batch in batches for a, b in itertools.pairwise(batch))
    # Best fit never leaves two batches that would fit into one.
    loads = sorted(sum(lengths[i] for i in batch) for batch in batches)
    assert len(loads) < 2 or loads[0] + loads[1] > budget
    assert batches == pack(lengths, budget)


def test_pack_rejects_sample_above_the_budget() -> None:
    with pytest.raises(ValueError, match="a sample of 9 tokens fits no micro-batch of 8"):
        pack([3, 9], 8)


@given(lengths=st.lists(st.integers(1, 4), max_size=20))
def test_runs_of_keeps_the_order_of_segments(lengths: list[int]) -> None:
    runs = runs_of(lengths)
    assert [length for count, length in runs for _ in range(count)] == lengths
    assert all(a[1] != b[1] for a, b in itertools.pairwise(runs))


@pytest.mark.parametrize("lengths", [[5], [4, 4, 4], [7, 1, 30, 8, 9, 7], [3, 50]])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("pairs", [4, 2])
def test_grouped_attention_equals_attention_with_block_mask(lengths: list[int], causal: bool, pairs: int) -> None:
    total, heads, kv_heads, size = sum(lengths), 4, 2, 8
    generator = torch.Generator().manual_seed(1)
    qkv = torch.randn(total, heads + 2 * kv_heads, size, generator=generator, requires_grad=True)
    angles = torch.randn(total, pairs, generator=generator)
    turns = torch.polar(torch.ones_like(angles), angles)
    ours = grouped_attention(qkv, turns, runs_of(lengths), kv_heads=kv_heads, causal=causal, scale=0.3)

    qk, v = qkv.split([heads + kv_heads, kv_heads], 1)
    even, odd = qk[..., : 2 * pairs : 2], qk[..., 1 : 2 * pairs : 2]
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    rotated = torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)
    q, k = torch.cat([rotated, qk[..., 2 * pairs :]], -1).split([heads, kv_heads], 1)
    segment = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    mask = segment[:, None] == segment[None, :]
    if causal:
        mask &= torch.ones(total, total).tril().bool()
    expected = functional.scaled_dot_product_attention(
        *(x.transpose(0, 1)[None] for x in (q, k, v)), attn_mask=mask, scale=0.3, enable_gqa=True
    )[0].transpose(0, 1)
    torch.testing.assert_close(ours, expected)
    direction = torch.randn(ours.shape, generator=generator)
    got, wanted = (torch.autograd.grad((x * direction).sum(), qkv)[0] for x in (ours, expected))
    torch.testing.assert_close(got, wanted, atol=2e-5, rtol=2e-5)


# ── Ranks ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ranks", [1, 2, 7, 64])
@pytest.mark.parametrize("seed", range(5))
def test_balance_assigns_every_sample_once_within_the_budget(ranks: int, seed: int) -> None:
    lengths = np.random.default_rng(seed).integers(1, 1000, 8 * ranks).tolist()
    assigned = balance(lengths, ranks, 1000)
    assert len(assigned) == ranks and all(assigned)
    assert sorted(i for batches in assigned for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in batch) <= 1000 for batches in assigned for batch in batches)
    assert balance(lengths, ranks, 1000) == assigned


@pytest.mark.parametrize(
    "lengths", [[1000] * 8, [1] * 8, [1000, 1, 1, 1, 1, 1, 1, 1], [600, 600, 600, 400, 400, 400, 1, 1]]
)
def test_balance_of_extreme_lengths_gives_every_rank_work(lengths: list[int]) -> None:
    assigned = balance(lengths, 4, 1000)
    assert all(batches and all(batches) for batches in assigned)


def test_balance_rejects_a_sample_above_the_budget() -> None:
    with pytest.raises(ValueError, match="a sample of 11 tokens fits no micro-batch of 10; raise the budget"):
        balance([3, 11], 2, 10)


def test_idle_share_is_the_waiting_time_of_a_pass() -> None:
    assert idle_share([[[0]], [[1]]], [100, 100]) == 0
    assert idle_share([[[0]], [[]]], [100]) == pytest.approx(0.5)
    assert idle_share([[[0], [1]], [[2]]], [100, 100, 100]) == pytest.approx(0.25)


def page_tokens(shared_data: Path) -> list[int]:
    """Token counts of real training documents as pages: a token for 3.14 text tokens (as in the paper) of four characters,
    and 400 tokens of question, calls and answer."""
    records = [
        json.loads(line)
        for path in sorted((shared_data / "train_sources").glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    characters = [sum(len(v if isinstance(v, str) else json.dumps(v)) for v in r.values()) for r in records]
    return [min(16384, 400 + int(count / 4 / 3.14)) for count in characters]


def test_balance_of_real_lengths_on_64_ranks_leaves_at_most_5_percent_idle(shared_data: Path) -> None:
    """512 real documents a step as pages; before, each rank took every 64th sample."""
    lengths = page_tokens(shared_data)
    before, after = [], []
    for step in range(4):
        drawn = np.random.default_rng(step).choice(lengths, 512).tolist()
        every = [list(range(rank, 512, 64)) for rank in range(64)]
        turns = [[[own[i] for i in batch] for batch in pack([drawn[i] for i in own], 16384)] for own in every]
        before.append(idle_share(turns, drawn))
        after.append(idle_share(balance(drawn, 64, 16384), drawn))
    print(f"idle before {np.mean(before):.3f}, after {np.mean(after):.3f}")
    assert max(after) <= 0.05
    assert min(before) > 2 * max(after)
