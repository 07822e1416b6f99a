"""Random numbers that depend only on a seed and names, not on order, process or run."""

from __future__ import annotations

import hashlib


def chance(seed: int, *names: str) -> float:
    """Return a number in [0, 1) derived from a seed and names."""
    return draw_bits(seed, *names) / 2**64


def draw_bits(seed: int, *names: str) -> int:
    """Return a 64-bit integer derived from a seed and names."""
    text = "\0".join((str(seed), *names))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
