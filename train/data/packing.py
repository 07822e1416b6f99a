"""Decide which samples share a forward pass, and how attention groups them. Integer arithmetic only.

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


Runs = tuple[tuple[int, int], ...]
"""The segments of a row in order: (count, length) of each run of neighbours of equal length."""


def runs_of(lengths: Sequence[int]) -> Runs:
    """Group consecutive equal lengths.

    >>> runs_of([5, 5, 3, 5])
    ((2, 5), (1, 3), (1, 5))
    """
    return tuple((len(list(alike)), length) for length, alike in groupby(lengths))
