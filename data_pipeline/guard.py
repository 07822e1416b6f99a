"""The leakage guard: refuses records whose question or context overlaps a benchmark's.

    index = BenchmarkIndex.from_folder("longbench/")     # or BenchmarkIndex.load("guard.npz")
    guard = Guard(index, GuardSpec())
    guard.check(sample)                                  # None, or the Rejection

Texts are levelled to their letters and digits, so that case, space and punctuation hide nothing, and cut into n-grams
of characters, hashed to 64 bits; one context gram of sixteen is kept, chosen by its hash, the same on both sides. The
share of a record's grams that stand in the benchmark is its overlap. All of LongBench takes some tens of megabytes.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data_pipeline.rawfiles import read_rows
from data_pipeline.records import Rejection, Sample
from data_pipeline.settings import GuardSpec
from data_pipeline.sources_documents import NEXT_LINE_QUESTION, SUMMARY_QUESTION
from seer.errors import DocumentNotFound, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

QUESTION_GRAM_CHARS = 16
CONTEXT_GRAM_CHARS = 48
DENSE_CONTEXT_GRAM_CHARS = 16
"""For Chinese and other scripts in which a character says as much as a short word."""
_KEEP_ONE_OF = 16
_MIN_QUESTION_CHARS = 12
_FIXED_QUESTIONS = frozenset({NEXT_LINE_QUESTION, SUMMARY_QUESTION})
_EMBEDDED_QUESTION = re.compile(r"^(?:Question|Q|问题)[:：]\s*(.+)$", re.M)
_VERSION = 1


@dataclass(frozen=True)
class BenchmarkIndex:
    """Hashed n-grams of a benchmark; sorted uint64 arrays."""

    questions: NDArray[np.uint64]
    """Whole questions."""
    question_grams: NDArray[np.uint64]
    context_grams: NDArray[np.uint64]
    records: int

    @classmethod
    def from_folder(cls, path: str | Path) -> BenchmarkIndex:
        """Read LongBench files (`input` or `question`, and `context`). Raises DocumentNotFound, InputError."""
        questions: list[NDArray[np.uint64]] = []
        question_grams: list[NDArray[np.uint64]] = []
        context_grams: list[NDArray[np.uint64]] = []
        records = 0
        for row in read_rows(str(path), max_bytes=1 << 30):
            if isinstance(row, Rejection):
                raise InputError(f"'{path}': {row.detail}; a guard must read its whole benchmark")
            asked, context = row.get("input", row.get("question")), row.get("context")
            if not isinstance(asked, str) or not isinstance(context, str):
                raise InputError(f"'{path}' holds a record without 'input' (or 'question') and 'context'")
            records += 1
            for question in (asked, *_EMBEDDED_QUESTION.findall(asked)):
                names = levelled(question)
                questions.append(np.array([whole_hash(names)], np.uint64))
                question_grams.append(_windows(names, QUESTION_GRAM_CHARS))
            context_grams.append(context_sample(context))
        return cls(_union(questions), _union(question_grams), _union(context_grams), records)

    def save(self, path: str | Path) -> None:
        with Path(path).open("wb") as file:
            np.savez(
                file,
                version=np.array(_VERSION),
                records=np.array(self.records),
                questions=self.questions,
                question_grams=self.question_grams,
                context_grams=self.context_grams,
            )

    @classmethod
    def load(cls, path: str | Path) -> BenchmarkIndex:
        """An index that `save` wrote, or else a folder or file of benchmark records."""
        place = Path(path)
        if place.suffix != ".npz":
            return cls.from_folder(place)
        try:
            with np.load(place, allow_pickle=False) as file:
                if int(file["version"]) != _VERSION:
                    raise InputError(f"'{place}' was written by another version; make it again with `seer-data guard`")
                return cls(
                    file["questions"], file["question_grams"], file["context_grams"], records=int(file["records"])
                )
        except FileNotFoundError:
            raise DocumentNotFound(f"no guard index at '{place}'; make one with `seer-data guard`") from None
        except InputError:
            raise
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"'{place}' is no guard index: {error}") from None


class Guard:
    """Checks samples against an index, and remembers how close they came."""

    def __init__(self, index: BenchmarkIndex, spec: GuardSpec) -> None:
        self._spec, self._records = spec, index.records
        self._questions = frozenset(index.questions.tolist())
        self._question_grams, self._context_grams = fenced(index.question_grams), fenced(index.context_grams)
        self._context_overlap: dict[str, Counter[int]] = defaultdict(Counter)

    def check(self, sample: Sample) -> Rejection | None:
        """Why this sample must not be trained on; None where nothing speaks against it."""
        overlap = 0.0 if sample.question in _FIXED_QUESTIONS else self._question_overlap(sample.question)
        if overlap > self._spec.max_question_overlap:
            return sample.reject("leaked_question", f"overlap {overlap:.2f}")
        overlap = share_in(context_sample(sample.context), self._context_grams)
        self._context_overlap[sample.source][min(9, int(overlap * 10))] += 1
        if overlap > self._spec.max_context_overlap:
            return sample.reject("leaked_context", f"overlap {overlap:.2f}")
        return None

    def _question_overlap(self, question: str) -> float:
        names = levelled(question)
        if len(names) < _MIN_QUESTION_CHARS:
            return 0.0  # "Who wrote it?" is everyone's
        if whole_hash(names) in self._questions:
            return 1.0
        return share_in(_windows(names, QUESTION_GRAM_CHARS), self._question_grams)

    def report(self) -> dict[str, Any]:
        """How many contexts had which overlap, in tenths, by source."""
        histograms = {
            source: {f"{tenth / 10:.1f}": counts[tenth] for tenth in range(10) if counts[tenth]}
            for source, counts in sorted(self._context_overlap.items())
        }
        return {
            "benchmark_records": self._records,
            "context_overlap": histograms,
            **self._spec.model_dump(exclude={"benchmark"}),
        }


# ── N-grams ──────────────────────────────────────────────────────────────────────────────────────


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


def levelled(text: str) -> NDArray[np.uint64]:
    """The letters and digits of a text, folded, each as its 64-bit name."""
    if text.isascii():
        names = _levels()[:128][np.frombuffer(text.encode("ascii"), np.uint8)]
    else:
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


_BASE = 0x9E3779B97F4A7C15 | 1
_INVERSE = pow(_BASE, -1, 1 << 64)


def grams(text: str, length: int) -> NDArray[np.uint64]:
    """The distinct 64-bit hashes of all runs of `length` letters and digits; none where the text is shorter."""
    return np.unique(_windows(levelled(text), length))


def _windows(names: NDArray[np.uint64], length: int) -> NDArray[np.uint64]:
    """A rolling polynomial hash over running sums, modulo 2^64; all windows at once."""
    if len(names) < length or not length:
        return np.zeros(0, np.uint64)
    powers, inverses = _powers(len(names))
    sums = np.zeros(len(names) + 1, np.uint64)
    np.cumsum(names * powers, out=sums[1:])
    return (sums[length:] - sums[:-length]) * inverses[: len(names) - length + 1]


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection that spreads every bit over all."""
    mixed = values ^ (values >> np.uint64(33))
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed *= np.uint64(factor)
        mixed ^= mixed >> np.uint64(33)
    return mixed


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


def context_sample(text: str) -> NDArray[np.uint64]:
    """The sampled grams of a context, in reading order; which ones are kept depends on their hashes alone."""
    names = levelled(text)
    windows = _windows(names, DENSE_CONTEXT_GRAM_CHARS if _is_dense(text, len(names)) else CONTEXT_GRAM_CHARS)
    # by the top bits: every character reaches them
    return windows[windows < np.uint64((1 << 64) // _KEEP_ONE_OF)]


def whole_hash(names: NDArray[np.uint64]) -> int:
    """The hash of a whole text, equal to that of its one window of full length."""
    return int((names * _powers(len(names))[0]).sum())


def fenced(index: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A sorted index with a last value that every search ends at."""
    return np.append(index, np.uint64((1 << 64) - 1))


def share_in(values: NDArray[np.uint64], index: NDArray[np.uint64]) -> float:
    """The share of `values` that stands in the sorted, fenced `index`."""
    if not len(values):
        return 0.0
    return int(np.count_nonzero(index[np.searchsorted(index, values)] == values)) / len(values)


def _union(parts: Iterable[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    arrays = list(parts)
    return np.unique(np.concatenate(arrays)) if arrays else np.zeros(0, np.uint64)
