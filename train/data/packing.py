"""Which samples share a forward pass, and how attention walks over them. Pure integers.

A micro-batch is one row of tokens: samples laid end to end, no padding. Everything but attention works on that row as it
stands. Attention works on runs of it: neighbours of equal length, as one rectangle. What is laid out in order of length
makes few and large runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby


def pack(lengths: Sequence[int], budget_tokens: int) -> list[list[int]]:
    """Indices of samples → micro-batches of at most `budget_tokens`: longest first, each into the fullest that has room.

    Within a batch too the longest come first, so that equal lengths are neighbours. The same lengths give the same
    batches. Raises ValueError where a sample exceeds the budget.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    batches: list[list[int]] = []
    rooms: list[int] = []
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
"""Segments of a row, end to end: (how many, how long) of each run of equal neighbours."""


def runs_of(lengths: Sequence[int]) -> Runs:
    return tuple((len(list(alike)), length) for length, alike in groupby(lengths))
