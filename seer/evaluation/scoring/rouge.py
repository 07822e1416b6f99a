"""ROUGE-L exactly as computed by version 1.0.1 of the `rouge` package, but without recursion and fast.

The ROUGE-L of that package is a "summary-level union". Both texts are split into sentences at every full stop, and one
longest common subsequence (LCS) is traced for each pair of a reference and a hypothesis sentence. The score counts the
*distinct* words that occur in any of these subsequences, relative to the number of distinct words on each side. Google's
`rouge_score` uses another definition and differs by up to ten points.

Because the words themselves count, not only their number, the trace must choose the same subsequence as the original
when several are longest. The rule of the original, going back from the end of both sentences:

    the two words are equal            → take the word, step back in both
    else, dropping the reference word
      leaves a longer match than
      dropping the hypothesis word     → step back in the reference
    else                               → step back in the hypothesis

The table of lengths L[i, j] (i reference words, j hypothesis words) is never built. One integer holds a row: bit j of
`flat[i]` is 1 if L[i, j + 1] = L[i, j]. A row follows from the previous one by a few operations on long integers, for all
hypothesis sentences at once; a spare bit between two sentences absorbs the carry of the addition. In terms of bits the
rule is: from column j, move left to the nearest column that has the same word or at which the length increases; if it
has the same word, take it; otherwise move up one row.

The row update is the bit-parallel LCS of Hyyrö, "Bit-parallel LCS-length computation revisited" (2004).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

BATCH_BITS = 1024
"""Maximum size of a batch of hypothesis sentences; a longer sentence forms a batch by itself."""
BLOCK_ROWS = 2048
"""Rows in memory at a time. Longer references store one row per block and recompute the others during the trace."""
ORIGINAL_TRACE_LIMIT = 980
"""The original recurses once per step, so longer traces exceed Python's default recursion limit of 1,000."""


@dataclass(frozen=True)
class RougeL:
    """F1, precision and recall in [0, 1], and the number of steps of the longest trace."""

    f1: float
    precision: float = 0.0
    recall: float = 0.0
    longest_trace: int = 0


def rouge_l(hypothesis: str, reference: str) -> RougeL:
    """Compare two texts with words separated by whitespace. All figures are 0 if either text has no sentence."""
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
    # The original's constant of 1e-8 keeps the division defined, and changes the last digits of every score.
    return RougeL(2.0 * (precision * recall / (precision + recall + 1e-8)), precision, recall, longest)


def _sentences(text: str) -> list[list[str]]:
    """Return the words of each sentence. A sentence of whitespace only is one empty word, as in the original."""
    return [piece.split() or [""] for piece in text.split(".") if piece]


def _batches(sentences: Sequence[list[str]]) -> Iterator[list[list[str]]]:
    """Yield groups of consecutive sentences of at most `BATCH_BITS` bits, one bit per word and one spare bit each."""
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
    """Hypothesis sentences in the bits of one integer, with the first word in the lowest bit."""

    def __init__(self, sentences: Sequence[Sequence[str]]) -> None:
        self.where: dict[str, int] = {}
        """Bits of the positions of each word."""
        self.all_bits = 0
        """All bits of words; spare bits are 0."""
        self.spans: list[tuple[int, int, frozenset[str]]] = []
        """Lowest bit, number of words and distinct words of each sentence."""
        offset = 0
        for words in sentences:
            for index, word in enumerate(words, offset):
                self.where[word] = self.where.get(word, 0) | 1 << index
            self.all_bits |= ((1 << len(words)) - 1) << offset
            self.spans.append((offset, len(words), frozenset(words)))
            offset += len(words) + 1

    def trace(self, reference: Sequence[str], union: set[str]) -> int:
        """Add the words of each LCS with one reference sentence to `union`; return the longest trace in steps.

        A pair whose common words are all in `union` cannot add a word and is skipped, unless it is long enough for its
        trace to reach `ORIGINAL_TRACE_LIMIT`.
        """
        reference_words = frozenset(reference)
        cursors = [
            _Cursor(offset, num_words)
            for offset, num_words, words in self.spans
            if not words & reference_words <= union or num_words + len(reference) >= ORIGINAL_TRACE_LIMIT
        ]
        if not cursors:
            return 0
        # The trace runs from the last row to the first, but rows can only be computed from the first to the last. Keep the
        # row above each block from a forward pass, then recompute one block at a time in reverse order.
        starts = self._block_starts(reference)
        for first in range((len(starts) - 1) * BLOCK_ROWS, -1, -BLOCK_ROWS):
            block = reference[first : first + BLOCK_ROWS]
            rows = self._rows(starts[first // BLOCK_ROWS], block)
            for cursor in cursors:
                cursor.walk_up(rows, block, union)
        return max(cursor.steps for cursor in cursors)

    def _block_starts(self, reference: Sequence[str]) -> list[int]:
        """Return the flat bits above the first row of each block."""
        starts = [self.all_bits]
        for first in range(0, len(reference) - BLOCK_ROWS, BLOCK_ROWS):
            flat = starts[-1]
            for word in reference[first : first + BLOCK_ROWS]:
                flat = self._next_row(flat, self.where.get(word, 0))
            starts.append(flat)
        return starts

    def _rows(self, flat: int, words: Sequence[str]) -> list[tuple[int, int]]:
        """Return, for each reference word, the bits of its positions, and these combined with the increases of its row."""
        rows = []
        for word in words:
            same = self.where.get(word, 0)
            flat = self._next_row(flat, same)
            # A 0 in `flat` marks an increase of the length; together with the matches these are the stops of the trace.
            rows.append((same, same | (flat ^ self.all_bits)))
        return rows

    def _next_row(self, flat: int, same: int) -> int:
        """Compute the next row: each increase moves left to the first match after the previous increase."""
        if not same:
            return flat
        # In each run of flat bits, the addition carries from the lowest match to the next increase above it. That
        # increase becomes flat and the match becomes the new increase. `flat - hits` equals `flat & ~hits` and restores
        # the flat bits that the carry has passed.
        hits = flat & same
        return ((flat + hits) | (flat - hits)) & self.all_bits


class _Cursor:
    """Position of the trace in one hypothesis sentence: its lowest bit, the columns left, and the steps taken."""

    __slots__ = ("column", "offset", "steps")

    def __init__(self, offset: int, num_words: int) -> None:
        self.offset = offset
        self.column = num_words
        self.steps = 0

    def walk_up(self, rows: Sequence[tuple[int, int]], words: Sequence[str], union: set[str]) -> None:
        """Trace through the rows of one block, from the last to the first, and add the words of the LCS to `union`."""
        offset, column = self.offset, self.column
        for (same, stops), word in zip(reversed(rows), reversed(words), strict=True):
            # Bits of this sentence up to the current column. The highest one is the nearest stop to the left, at
            # column `stop`, counted from 1; 0 means that no stop is left and the trace ends.
            reachable = (stops >> offset) & ((1 << column) - 1)
            stop = reachable.bit_length()
            # One step per column moved to the left, and one more up to the next row unless the trace ends.
            self.steps += column - stop + (stop > 0)
            column = stop
            if not stop:
                break
            # A stop with the same word belongs to the LCS, and the trace moves left as well as up. Any other stop is an
            # increase that a row above it caused, so the trace only moves up.
            if (same >> (offset + stop - 1)) & 1:
                union.add(word)
                column -= 1
        self.column = column
