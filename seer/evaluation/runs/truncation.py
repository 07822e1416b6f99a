"""Cutting a text that is too long for a text model: the middle goes, as in LongBench.

Beginning and end each keep half of the tokens allowed. The benchmark cuts between tokens; here a cut may fall
between any two characters, since a tokenizer need only be able to count.
"""

from __future__ import annotations

from collections.abc import Callable


def cut_middle(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """`text` itself where it fits, else its longest beginning and end that hold half of `max_tokens` each."""
    if count(text) <= max_tokens:
        return text
    head_tokens = max_tokens // 2
    head = text[: _longest(len(text), lambda size: count(text[:size]) <= head_tokens)]
    rest = text[len(head) :]
    tail_tokens = max_tokens - head_tokens
    size = _longest(len(rest), lambda size: count(rest[len(rest) - size :]) <= tail_tokens)
    return head + rest[len(rest) - size :]


def _longest(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest size up to `limit` that fits, where every smaller one does too."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
