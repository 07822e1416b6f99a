"""Hashed n-grams of texts: what the leakage guard compares.

Texts are levelled to their letters and digits, so that case, space and punctuation hide nothing, and cut into n-grams
of characters, hashed to 64 bits. Many texts go through at once: numpy's price is paid by the call.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

QUESTION_GRAM_CHARS = 16
CONTEXT_GRAM_CHARS = 48
DENSE_CONTEXT_GRAM_CHARS = 16
"""For Chinese and other scripts in which a character says as much as a short word."""
_KEEP_ONE_OF = 16
_LARGEST = (1 << 64) - 1


# ── Letters ──────────────────────────────────────────────────────────────────────────────────────


@functools.cache
def _levels() -> NDArray[np.uint64]:
    """Code point (of the Basic Multilingual Plane) → a scrambled 64-bit name of its folded letter or digit; else 0."""
    folded = np.zeros(0x10000, np.uint64)
    for code in range(0x10000):
        character = chr(code)
        if character.isalnum():
            fold = character.casefold()
            folded[code] = ord(fold) if len(fold) == 1 and ord(fold) < 0x10000 else code
    # scrambled, since code points differ in few bits and sums of them would too
    return np.where(folded > 0, _mix(folded), np.uint64(0))


_ASCII_FOLDED = bytes(range(256)).lower()
_ASCII_MARKS = bytes(code for code in range(128) if not chr(code).isalnum())


def levelled(text: str) -> NDArray[np.uint64]:
    """The letters and digits of a text, folded, each as its 64-bit name."""
    if text.isascii():  # the same as below, several times quicker
        kept = text.encode("ascii").translate(_ASCII_FOLDED, _ASCII_MARKS)
        return _levels().take(np.frombuffer(kept, np.uint8))
    codes = _codes(text)
    names = _levels()[np.minimum(codes, 0xFFFF)]
    if int(codes.max()) > 0xFFFF:
        names = np.where(codes > 0xFFFF, _mix(codes.astype(np.uint64)), names)
    return names[names != 0]


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _is_dense(text: str, letters: int) -> bool:
    """Whether most letters belong to scripts in which one says as much as a short word."""
    return not text.isascii() and int(np.count_nonzero(_codes(text) >= 0x2E80)) > 0.3 * letters


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection that spreads every bit over all."""
    mixed = values ^ (values >> np.uint64(33))
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed *= np.uint64(factor)
        mixed ^= mixed >> np.uint64(33)
    return mixed


# ── Grams ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Grams:
    """Hashes of n-grams, in reading order, and for each the number of the text that it stands in."""

    hashes: NDArray[np.uint64]
    owners: NDArray[np.intp]

    def shares_in(self, index: NDArray[np.uint64], texts: int) -> NDArray[np.float64]:
        """For each text the share of its grams that stands in the sorted, fenced `index`; 0 where it has none."""
        known = index.take(index.searchsorted(self.hashes)) == self.hashes
        every = np.bincount(self.owners, minlength=texts)
        found = np.bincount(self.owners[known], minlength=texts)
        return found / np.maximum(every, 1)


class RollingHash:
    """A polynomial hash over running sums, modulo 2^64, of levelled texts: all windows of all texts at once."""

    def __init__(self, texts: Sequence[NDArray[np.uint64]]) -> None:
        names = np.concatenate(texts)
        self._ends = np.array([len(text) for text in texts]).cumsum()
        powers, self._inverses = _powers(len(names) + 1)
        self._sums = np.zeros(len(names) + 1, np.uint64)
        (names * powers[:-1]).cumsum(out=self._sums[1:])

    def wholes(self) -> NDArray[np.uint64]:
        """The hash of each whole text, equal to that of its one window of full length."""
        starts = np.concatenate(([0], self._ends[:-1]))
        return (self._sums[self._ends] - self._sums[starts]) * self._inverses[starts]

    def grams(self, length: int, one_of: int = 1) -> Grams:
        """The windows of `length`, or about one of `one_of`: which are kept depends on their hashes alone."""
        count = max(0, len(self._sums) - length)
        hashes = (self._sums[length:] - self._sums[:-length]) * self._inverses[:count]
        # by the top bits: every character reaches them
        places = np.flatnonzero(hashes <= np.uint64(_LARGEST // one_of))
        owners = self._ends.searchsorted(places, side="right")
        within = places + length <= self._ends[owners]
        return Grams(hashes[places[within]], owners[within])


_BASE = 0x9E3779B97F4A7C15 | 1
_INVERSE = pow(_BASE, -1, 1 << 64)
_cached_powers: tuple[NDArray[np.uint64], NDArray[np.uint64]] = (np.zeros(0, np.uint64), np.zeros(0, np.uint64))


def _powers(count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    global _cached_powers
    if len(_cached_powers[0]) < count:
        size = max(4096, 1 << (count - 1).bit_length())
        made = []
        for base in (_BASE, _INVERSE):
            factors = np.full(size, base, np.uint64)
            factors[0] = 1
            made.append(np.cumprod(factors))
        if size > 1 << 20:  # rare giants are not kept
            return made[0][:count], made[1][:count]
        _cached_powers = (made[0], made[1])
    return _cached_powers[0][:count], _cached_powers[1][:count]


def grams(text: str, length: int) -> NDArray[np.uint64]:
    """The distinct 64-bit hashes of all runs of `length` letters and digits; none where the text is shorter."""
    return np.unique(RollingHash([levelled(text)]).grams(length).hashes)


def context_grams(texts: Sequence[str]) -> Grams:
    """The sampled grams of contexts, of the length that fits each script."""
    names = [levelled(text) for text in texts]
    dense = np.array([_is_dense(text, len(letters)) for text, letters in zip(texts, names, strict=True)])
    hashes = RollingHash(names)
    thin = hashes.grams(CONTEXT_GRAM_CHARS, _KEEP_ONE_OF)
    if not dense.any():
        return thin
    thick = hashes.grams(DENSE_CONTEXT_GRAM_CHARS, _KEEP_ONE_OF)
    from_thin, from_thick = ~dense[thin.owners], dense[thick.owners]
    return Grams(
        np.concatenate((thin.hashes[from_thin], thick.hashes[from_thick])),
        np.concatenate((thin.owners[from_thin], thick.owners[from_thick])),
    )


def fenced(index: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A sorted index with a last value that every search ends at."""
    return np.append(index, np.uint64(_LARGEST))


def union(parts: Iterable[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """All values, sorted, each once."""
    arrays = list(parts)
    return np.unique(np.concatenate(arrays)) if arrays else np.zeros(0, np.uint64)
