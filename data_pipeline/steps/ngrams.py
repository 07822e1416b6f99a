"""Hashed n-grams of texts, which the leakage guard compares.

Texts are reduced to their case-folded letters and digits, so that case, white space and punctuation make no difference.
Every window of n such characters is hashed to 64 bits. All functions process many texts in one call, because the cost
of a numpy call dominates for short texts.

Legend: a text of `length` letters and digits is an array of `length` uint64 character names. `num_letters` is the sum
over all texts of a call. All arithmetic on names and hashes is modulo 2^64, the wrap-around of uint64.
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
"""For Chinese and other scripts in which a character carries as much as a short word."""
_KEEP_ONE_OF = 16
_LARGEST = (1 << 64) - 1


# ── Letters ──────────────────────────────────────────────────────────────────────────────────────


@functools.cache
def _character_names() -> NDArray[np.uint64]:
    """Return a table from code points of the Basic Multilingual Plane to character names, shape (65536,).

    The name of a letter or digit is 64 mixed bits of its case-folded form; all other characters have the name 0.
    """
    folded = np.zeros(0x10000, np.uint64)
    for code in range(0x10000):
        character = chr(code)
        if character.isalnum():
            # A fold to several characters, such as "ß" to "ss", would shift positions: such a letter keeps its code.
            fold = character.casefold()
            folded[code] = ord(fold) if len(fold) == 1 and ord(fold) < 0x10000 else code
    # Code points differ in few bits, and so would sums of them. Mixing spreads the differences over all 64 bits.
    return np.where(folded > 0, _mix(folded), np.uint64(0))


_ASCII_FOLDED = bytes(range(256)).lower()
_ASCII_MARKS = bytes(code for code in range(128) if not chr(code).isalnum())


def letters(text: str) -> NDArray[np.uint64]:
    """Return the names of a text's letters and digits in order, case-folded, shape (length,)."""
    # The ASCII path gives the same result as the general one and is several times faster.
    if text.isascii():
        kept = text.encode("ascii").translate(_ASCII_FOLDED, _ASCII_MARKS)
        return _character_names().take(np.frombuffer(kept, np.uint8))
    codes = _code_points(text)
    names = _character_names()[np.minimum(codes, 0xFFFF)]
    # Outside the Basic Multilingual Plane every character counts as a letter: rare CJK ideographs are there.
    if int(codes.max()) > 0xFFFF:
        names = np.where(codes > 0xFFFF, _mix(codes.astype(np.uint64)), names)
    return names[names != 0]


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _is_dense(text: str, num_letters: int) -> bool:
    """Return whether over 30 % of the letters belong to scripts in which one carries as much as a short word.

    Those scripts (CJK, kana, Hangul) start at U+2E80.
    """
    return not text.isascii() and int(np.count_nonzero(_code_points(text) >= 0x2E80)) > 0.3 * num_letters


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply a bijection under which every input bit affects all output bits: the finaliser of MurmurHash3."""
    mixed = values ^ (values >> np.uint64(33))
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed *= np.uint64(factor)
        mixed ^= mixed >> np.uint64(33)
    return mixed


# ── Grams ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Grams:
    """Hashes of n-grams of several texts, in reading order."""

    hashes: NDArray[np.uint64]
    """Shape (num_grams,)."""
    owners: NDArray[np.intp]
    """The index of the text that holds each n-gram, shape (num_grams,)."""

    def fractions_in(self, index: NDArray[np.uint64], num_texts: int) -> NDArray[np.float64]:
        """Return, for each text, the fraction of its n-grams that occur in `index`; 0 for a text without n-grams.

        `index` is sorted and ends with the sentinel of `with_sentinel`. The result has the shape (num_texts,).
        """
        known = index.take(index.searchsorted(self.hashes)) == self.hashes
        totals = np.bincount(self.owners, minlength=num_texts)
        found = np.bincount(self.owners[known], minlength=num_texts)
        return found / np.maximum(totals, 1)


class RollingHash:
    """Polynomial hashes of all windows of several texts at once.

    With names x[i] of the concatenated texts, the prefix sums are S[k] = sum of x[i] * B^i for i < k. The window of n
    names from position p has the hash (S[p + n] - S[p]) * B^-p: the division by B^p removes the position, so equal
    windows have equal hashes wherever they occur. B is odd, so its inverse modulo 2^64 exists.
    """

    def __init__(self, texts: Sequence[NDArray[np.uint64]]) -> None:
        """Compute the prefix sums of texts given as arrays of character names; there must be at least one text."""
        names = np.concatenate(texts)
        self._ends = np.array([len(text) for text in texts]).cumsum()  # (num_texts,)
        powers, self._inverses = _powers(len(names) + 1)  # (num_letters + 1,) each
        self._sums = np.zeros(len(names) + 1, np.uint64)  # (num_letters + 1,)
        (names * powers[:-1]).cumsum(out=self._sums[1:])

    def whole_texts(self) -> NDArray[np.uint64]:
        """Return the hash of each whole text, shape (num_texts,): that of its only window of full length."""
        starts = np.concatenate(([0], self._ends[:-1]))
        return (self._sums[self._ends] - self._sums[starts]) * self._inverses[starts]

    def grams(self, length: int, one_of: int = 1) -> Grams:
        """Return the windows of `length` names; with `one_of` above 1, a sample of about one in `one_of` of them.

        The sample depends only on the hashes, so equal windows of different texts are either both kept or both dropped.
        """
        count = max(0, len(self._sums) - length)
        hashes = (self._sums[length:] - self._sums[:-length]) * self._inverses[:count]
        # Select by the top bits: in a product modulo 2^64 they depend on all bits of both factors, the low bits on few.
        starts = np.flatnonzero(hashes <= np.uint64(_LARGEST // one_of))
        # Windows were taken over the concatenation; drop those that extend past the end of their text.
        owners = self._ends.searchsorted(starts, side="right")
        within = starts + length <= self._ends[owners]
        return Grams(hashes[starts[within]], owners[within])


_BASE = 0x9E3779B97F4A7C15 | 1
_INVERSE = pow(_BASE, -1, 1 << 64)
_MAX_CACHED_POWERS = 1 << 20
_cached_powers: tuple[NDArray[np.uint64], NDArray[np.uint64]] = (np.zeros(0, np.uint64), np.zeros(0, np.uint64))


def _powers(count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return B^0 … B^(count-1) and the inverses of these powers, shape (count,) each."""
    global _cached_powers
    if len(_cached_powers[0]) < count:
        # Sizes grow in powers of two, so that a slightly longer text does not compute the tables again.
        size = max(4096, 1 << (count - 1).bit_length())
        tables = []
        for base in (_BASE, _INVERSE):
            factors = np.full(size, base, np.uint64)
            factors[0] = 1
            tables.append(np.cumprod(factors))
        # Tables for rare giant texts are not kept: they would hold 16 bytes a letter for the rest of the build.
        if size > _MAX_CACHED_POWERS:
            return tables[0][:count], tables[1][:count]
        _cached_powers = (tables[0], tables[1])
    return _cached_powers[0][:count], _cached_powers[1][:count]


def distinct_grams(text: str, length: int) -> NDArray[np.uint64]:
    """Return the sorted distinct hashes of all runs of `length` letters and digits; empty if the text is shorter."""
    return np.unique(RollingHash([letters(text)]).grams(length).hashes)


def context_grams(texts: Sequence[str]) -> Grams:
    """Return the sampled n-grams of contexts, of the length that suits the script of each."""
    names = [letters(text) for text in texts]
    dense = np.array([_is_dense(text, len(own)) for text, own in zip(texts, names, strict=True)])
    hashes = RollingHash(names)
    long_grams = hashes.grams(CONTEXT_GRAM_CHARS, _KEEP_ONE_OF)
    if not dense.any():
        return long_grams
    # Take both lengths of all texts, then keep the length that fits the text each n-gram belongs to.
    short_grams = hashes.grams(DENSE_CONTEXT_GRAM_CHARS, _KEEP_ONE_OF)
    keep_long, keep_short = ~dense[long_grams.owners], dense[short_grams.owners]
    return Grams(
        np.concatenate((long_grams.hashes[keep_long], short_grams.hashes[keep_short])),
        np.concatenate((long_grams.owners[keep_long], short_grams.owners[keep_short])),
    )


def with_sentinel(index: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Append the largest value to a sorted index, so that a binary search never returns a position past its end."""
    return np.append(index, np.uint64(_LARGEST))


def union(parts: Iterable[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """Return all values of the arrays, sorted and without duplicates."""
    arrays = list(parts)
    return np.unique(np.concatenate(arrays)) if arrays else np.zeros(0, np.uint64)
