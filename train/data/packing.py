"""Decide which samples share a forward pass, and how attention groups them. Plain arithmetic on lengths.

A micro-batch is one row of tokens: samples laid end to end, without padding. All operations except attention work on the
row as it is. Attention works on runs: neighbouring segments of equal length, which form one rectangular tensor. Sorting by
length makes runs few and large.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby


def pack(lengths: Sequence[int], budget_tokens: int) -> list[list[int]]:
    """Distribute samples over micro-batches of at most `budget_tokens` tokens.

    Returns the sample indices of each batch. This is best-fit decreasing: samples go longest first, each into the fullest
    batch with room for it. Within a batch the longest come first as well, so equal lengths are neighbours. The result is a
    pure function of the lengths.

    Raises ValueError if a sample is longer than the budget.
    """
    # The index breaks ties, so that the order is the same in every run.
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    batches: list[list[int]] = []
    rooms: list[int] = []  # tokens still free in each batch
    for i in order:
        if lengths[i] > budget_tokens:
            raise ValueError(
                f"a sample of {lengths[i]} tokens fits no micro-batch of {budget_tokens}; raise the budget"
            )
        fitting = [b for b, room in enumerate(rooms) if room >= lengths[i]]
        if fitting:
            best = min(fitting, key=lambda b: rooms[b])
            batches[best].append(i)
            rooms[best] -= lengths[i]
        else:
            batches.append([i])
            rooms.append(budget_tokens - lengths[i])
    return batches


SQUARED_TOKENS = 57_000
"""The length at which attention costs as much as the matrices, for the shape of the 9B (see `train.planning.flops`)."""


def cost_of(length: int) -> float:
    """The relative cost of a sample's forward and backward pass: linear in its tokens, plus attention."""
    return length + length**2 / SQUARED_TOKENS


def balance(lengths: Sequence[int], ranks: int, budget_tokens: int) -> list[list[list[int]]]:
    """Distribute the samples of a step over ranks and their micro-batches, so that ranks wait little for each other.

    Returns, for each rank, its micro-batches as lists of sample indices. All ranks have the same number of micro-batches,
    as far as there are samples, and since sharded passes are collectives, those of one pass have about the same cost. There
    are as few passes as the budget allows. Each sample, longest first, goes to the cheapest micro-batch with room for it.
    The result is a pure function of the arguments.

    Raises ValueError if a sample is longer than the budget.
    """
    longest = max(lengths, default=0)
    if longest > budget_tokens:
        raise ValueError(f"a sample of {longest} tokens fits no micro-batch of {budget_tokens}; raise the budget")
    passes = max(1, -(-sum(lengths) // (budget_tokens * ranks)))
    # Bins that are filled evenly may lack room for the last samples; another pass gives it.
    while (bins := _spread_evenly(lengths, passes * ranks, budget_tokens)) is None:
        passes += 1
    filled = sorted((b for b in bins if b), key=lambda b: (-sum(cost_of(lengths[i]) for i in b), b))
    return [filled[rank::ranks] for rank in range(ranks)]


def _spread_evenly(lengths: Sequence[int], count: int, budget_tokens: int) -> list[list[int]] | None:
    """Samples in `count` micro-batches of about equal cost; None if one does not fit."""
    bins: list[list[int]] = [[] for _ in range(count)]
    tokens, costs = [0] * count, [0.0] * count
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        fitting = [b for b in range(count) if tokens[b] + lengths[i] <= budget_tokens]
        if not fitting:
            return None
        best = min(fitting, key=lambda b: costs[b])
        bins[best].append(i)
        tokens[best] += lengths[i]
        costs[best] += cost_of(lengths[i])
    return bins


def idle_share(assigned: Sequence[Sequence[Sequence[int]]], lengths: Sequence[int]) -> float:
    """The fraction of a step's time that ranks wait: in each pass, every rank waits for the one with most work."""
    passes = max(map(len, assigned), default=0)
    costs = [[sum(cost_of(lengths[i]) for i in b) for b in batches] for batches in assigned]
    slowest = sum(max(rank[k] if k < len(rank) else 0.0 for rank in costs) for k in range(passes))
    return 1 - sum(map(sum, costs)) / (len(assigned) * slowest) if slowest else 0.0


Runs = tuple[tuple[int, int], ...]
"""The segments of a row in order: (count, length) of each run of neighbours of equal length."""


def runs_of(lengths: Sequence[int]) -> Runs:
    """Group consecutive equal lengths.

    >>> runs_of([5, 5, 3, 5])
    ((2, 5), (1, 3), (1, 5))
    """
    return tuple((len(list(alike)), length) for length, alike in groupby(lengths))
