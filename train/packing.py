"""Which samples share a forward pass, and how attention walks over them. Pure integers.

A micro-batch is one row of tokens: samples laid end to end, no padding. Everything but attention works on that row as it
stands. Attention works on groups of segments: segments of like length, as one padded rectangle. Padding stands on the
right, where a causal query never looks, so no mask is needed and the result is exact.

Shapes: B segments in a group, T the longest of them, L tokens of the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def pack(lengths: Sequence[int], budget_tokens: int) -> list[list[int]]:
    """Indices of samples → micro-batches of at most `budget_tokens`: longest first, each into the fullest that has room.

    The same lengths give the same batches. Raises ValueError where a sample exceeds the budget.
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
    return [sorted(batch) for batch in batches]


@dataclass(frozen=True)
class Group:
    """Segments that attention takes as one rectangle (B, T)."""

    segments: tuple[int, ...]
    longest: int


def group_segments(lengths: Sequence[int], *, may_pad: bool, waste: float = 0.25) -> list[Group]:
    """Segments → groups, ascending by length; within a group padding is at most `waste` of each segment's length.

    may_pad: False groups equal lengths only (attention that looks both ways would see padding).
    """
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    groups: list[list[int]] = []
    for i in order:
        limit = lengths[groups[-1][0]] * (1 + waste if may_pad else 1) if groups else 0
        if groups and lengths[i] <= limit:
            groups[-1].append(i)
        else:
            groups.append([i])
    return [Group(tuple(sorted(group)), max(lengths[i] for i in group)) for group in groups]


@dataclass(frozen=True)
class AttentionPlan:
    """Groups as index arrays. `gather[g]` (B, T) picks rows of the packed row, `scatter` (L,) picks them back out of all
    groups laid end to end. Both are empty where the row already is one rectangle (`shape`)."""

    gather: tuple[np.ndarray, ...]
    scatter: np.ndarray
    shape: tuple[int, int] | None


def plan_attention(lengths: Sequence[int], *, may_pad: bool) -> AttentionPlan:
    """The plan for segments that stand end to end in a row."""
    if len(set(lengths)) == 1:
        return AttentionPlan((), np.zeros(0, np.int64), (len(lengths), lengths[0]))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    scatter = np.empty(int(starts[-1]), np.int64)
    gather, base = [], 0
    for group in group_segments(lengths, may_pad=may_pad):
        index = np.empty((len(group.segments), group.longest), np.int64)
        for row, segment in enumerate(group.segments):
            length, start = lengths[segment], starts[segment]
            index[row] = start + np.minimum(np.arange(group.longest), length - 1)  # padding repeats the last token
            scatter[start : start + length] = base + row * group.longest + np.arange(length)
        gather.append(index)
        base += index.size
    return AttentionPlan(tuple(gather), scatter, None)
