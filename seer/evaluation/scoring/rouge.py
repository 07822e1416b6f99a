"""ROUGE-L as the `rouge` package, version 1.0.1, computes it: exactly, without recursion, and fast.

That package's ROUGE-L is a "summary-level union": both texts are split into sentences at every full stop,
one longest common subsequence (LCS) is traced for every pair of reference and hypothesis sentence, and what
counts is how many *different* words stand in any of them, over the number of different words on each side.
Google's `rouge_score` computes something else and differs by up to ten points.

Since the words count and not only their number, the trace must take the same turns as the original among
several longest subsequences. Its rule, going back from the end of both sentences:

    the two words are equal            → take the word, step back in both
    else, dropping the reference word
      leaves a longer match than
      dropping the hypothesis word     → step back in the reference
    else                               → step back in the hypothesis

The table of lengths L[i, j] is never built. One integer holds a whole row: bit j of `flat[i]` is 1 where
L[i, j + 1] = L[i, j]. A row follows from the one above by a handful of operations on long integers, for all
hypothesis sentences side by side (a spare bit between two of them catches the carry). In these terms the rule
reads: from column j, go left to the nearest column that holds the same word or a step in length; if it holds
the word, take it; else go up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

BATCH_BITS = 1024
"""Hypothesis sentences are laid side by side up to this many bits; a longer sentence stands alone."""
BLOCK_ROWS = 2048
"""Rows kept at a time. Longer references keep one row per block and compute the rest again on the way back."""
ORIGINAL_TRACE_LIMIT = 980
"""The original recurses once per step, so that longer traces end it near Python's default limit of 1,000."""


@dataclass(frozen=True)
class RougeL:
    """F1, precision and recall in [0, 1], and the length in steps of the longest trace."""

    f1: float
    precision: float = 0.0
    recall: float = 0.0
    longest_trace: int = 0


def rouge_l(hypothesis: str, reference: str) -> RougeL:
    """Compare two texts whose words are separated by white space; 0 where either holds no sentence."""
    hypothesis_sentences = _sentences(hypothesis)
    reference_sentences = _sentences(reference)
    if not hypothesis_sentences or not reference_sentences:
        return RougeL(0.0)
    union: set[str] = set()
    longest = 0
    batches = [_Batch(batch) for batch in _batches(hypothesis_sentences)]
    for sentence in reference_sentences:
        for batch in batches:
            longest = max(longest, batch.trace(sentence, union))
    num_hypothesis = len({word for sentence in hypothesis_sentences for word in sentence})
    num_reference = len({word for sentence in reference_sentences for word in sentence})
    precision, recall = len(union) / num_hypothesis, len(union) / num_reference
    # The original's small constant keeps the division defined; it also shows in the last digits.
    return RougeL(2.0 * (precision * recall / (precision + recall + 1e-8)), precision, recall, longest)


def _sentences(text: str) -> list[list[str]]:
    """Words of each sentence. A sentence of white space only is one empty word, as in the original."""
    return [piece.split() or [""] for piece in text.split(".") if piece]


def _batches(sentences: Sequence[list[str]]) -> Iterator[list[list[str]]]:
    batch: list[list[str]] = []
    bits = 0
    for sentence in sentences:
        if batch and bits + len(sentence) + 1 > BATCH_BITS:
            yield batch
            batch, bits = [], 0
        batch.append(sentence)
        bits += len(sentence) + 1
    yield batch


class _Batch:
    """Hypothesis sentences side by side in the bits of one integer, first word lowest."""

    def __init__(self, sentences: Sequence[Sequence[str]]) -> None:
        self.where: dict[str, int] = {}
        """For each word, the bits at which it stands."""
        self.all_bits = 0
        """Every bit that stands for a word; the spare bits are missing."""
        self.spans: list[tuple[int, int, frozenset[str]]] = []
        """For each sentence its lowest bit, its number of words, its different words."""
        offset = 0
        for words in sentences:
            for index, word in enumerate(words, offset):
                self.where[word] = self.where.get(word, 0) | 1 << index
            self.all_bits |= ((1 << len(words)) - 1) << offset
            self.spans.append((offset, len(words), frozenset(words)))
            offset += len(words) + 1

    def trace(self, reference: Sequence[str], union: set[str]) -> int:
        """Add to `union` the words of each LCS with one reference sentence; returns the longest trace seen.

        A pair whose common words are all in `union` already, or that has none, can add nothing and is left out,
        unless it is long enough for its trace to be of interest.
        """
        reference_words = frozenset(reference)
        cursors = [
            _Cursor(offset, num_words)
            for offset, num_words, words in self.spans
            if not words & reference_words <= union or num_words + len(reference) >= ORIGINAL_TRACE_LIMIT
        ]
        if not cursors:
            return 0
        starts = self._block_starts(reference)
        for first in range((len(starts) - 1) * BLOCK_ROWS, -1, -BLOCK_ROWS):
            block = reference[first : first + BLOCK_ROWS]
            rows = self._rows(starts[first // BLOCK_ROWS], block)
            for cursor in cursors:
                cursor.walk_up(rows, block, union)
        return max(cursor.steps for cursor in cursors)

    def _block_starts(self, reference: Sequence[str]) -> list[int]:
        """The flat bits above the first row of each block."""
        starts = [self.all_bits]
        for first in range(0, len(reference) - BLOCK_ROWS, BLOCK_ROWS):
            flat = starts[-1]
            for word in reference[first : first + BLOCK_ROWS]:
                flat = self._next_row(flat, self.where.get(word, 0))
            starts.append(flat)
        return starts

    def _rows(self, flat: int, words: Sequence[str]) -> list[tuple[int, int]]:
        """For each reference word: the bits where it stands, and those together with the steps of its row."""
        rows = []
        for word in words:
            same = self.where.get(word, 0)
            flat = self._next_row(flat, same)
            rows.append((same, same | (flat ^ self.all_bits)))
        return rows

    def _next_row(self, flat: int, same: int) -> int:
        """One row of the bit-parallel LCS: each step moves left to the first match after the step before it."""
        if not same:
            return flat
        hits = flat & same
        return ((flat + hits) | (flat - hits)) & self.all_bits


class _Cursor:
    """Where the trace through one hypothesis sentence stands: its lowest bit, columns left, steps gone."""

    __slots__ = ("column", "offset", "steps")

    def __init__(self, offset: int, num_words: int) -> None:
        self.offset = offset
        self.column = num_words
        self.steps = 0

    def walk_up(self, rows: Sequence[tuple[int, int]], words: Sequence[str], union: set[str]) -> None:
        offset, column = self.offset, self.column
        for (same, stops), word in zip(reversed(rows), reversed(words), strict=True):
            reachable = (stops >> offset) & ((1 << column) - 1)
            stop = reachable.bit_length()
            self.steps += column - stop + (stop > 0)
            column = stop
            if not stop:
                break
            if (same >> (offset + stop - 1)) & 1:
                union.add(word)
                column -= 1
        self.column = column
