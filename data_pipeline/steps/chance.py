"""Chance that does not depend on order, process or run: a number in [0, 1) from a seed and names."""

from __future__ import annotations

import hashlib


def chance(seed: int, *names: str) -> float:
    """The same seed and names give the same number everywhere."""
    return draw_bits(seed, *names) / 2**64


def draw_bits(seed: int, *names: str) -> int:
    """64 bits from a seed and names."""
    text = "\0".join((str(seed), *names))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
