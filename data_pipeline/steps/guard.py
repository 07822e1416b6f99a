"""The leakage guard: refuses records whose question or context overlaps a benchmark's.

    index = BenchmarkIndex.from_folder("longbench/")     # or BenchmarkIndex.load("guard.npz")
    guard = Guard(index, GuardSpec())
    guard.check(sample)                                  # None, or the Rejection

The share of a record's n-grams (`data_pipeline.steps.ngrams`) that stand in the benchmark is its overlap. One context gram of
sixteen is kept, chosen by its hash, the same on both sides: all of LongBench takes some tens of megabytes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from data_pipeline.records import Rejection, Sample
from data_pipeline.settings import GuardSpec
from data_pipeline.sources.documents import NEXT_LINE_QUESTION, SUMMARY_QUESTION
from data_pipeline.sources.rawfiles import read_rows
from data_pipeline.steps.ngrams import QUESTION_GRAM_CHARS, RollingHash, context_grams, fenced, levelled, union
from seer.errors import DocumentNotFound, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
        sampled_grams: list[NDArray[np.uint64]] = []
        records = 0
        for row in read_rows(str(path), max_bytes=1 << 30):
            if isinstance(row, Rejection):
                raise InputError(f"'{path}': {row.detail}; a guard must read its whole benchmark")
            asked, context = row.get("input", row.get("question")), row.get("context")
            if not isinstance(asked, str) or not isinstance(context, str):
                raise InputError(f"'{path}' holds a record without 'input' (or 'question') and 'context'")
            records += 1
            hashes = RollingHash([levelled(text) for text in (asked, *_EMBEDDED_QUESTION.findall(asked))])
            questions.append(hashes.wholes())
            question_grams.append(hashes.grams(QUESTION_GRAM_CHARS).hashes)
            sampled_grams.append(context_grams([context]).hashes)
        return cls(union(questions), union(question_grams), union(sampled_grams), records)

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


class Overlap(NamedTuple):
    """Which share of a sample's grams stands in a benchmark."""

    question: float
    context: float


class Guard:
    """Checks samples against an index, and remembers how close they came."""

    def __init__(self, index: BenchmarkIndex, spec: GuardSpec) -> None:
        self._spec, self._records = spec, index.records
        self._questions = frozenset(index.questions.tolist())
        self._question_grams, self._context_grams = fenced(index.question_grams), fenced(index.context_grams)
        self._context_overlap: dict[str, Counter[int]] = defaultdict(Counter)

    def overlaps(self, samples: Sequence[Sample]) -> list[Overlap]:
        """How far each of these samples stands in the benchmark. Many at once cost less than one by one."""
        asked = [levelled("" if sample.question in _FIXED_QUESTIONS else sample.question) for sample in samples]
        hashes = RollingHash(asked)
        shares = hashes.grams(QUESTION_GRAM_CHARS).shares_in(self._question_grams, len(samples)).tolist()
        for number, (letters, whole) in enumerate(zip(asked, hashes.wholes().tolist(), strict=True)):
            if len(letters) < _MIN_QUESTION_CHARS:
                shares[number] = 0.0  # "Who wrote it?" is everyone's
            elif whole in self._questions:
                shares[number] = 1.0
        contexts = context_grams([sample.context for sample in samples])
        found = contexts.shares_in(self._context_grams, len(samples)).tolist()
        return [Overlap(*pair) for pair in zip(shares, found, strict=True)]

    def check(self, sample: Sample, overlap: Overlap | None = None) -> Rejection | None:
        """Why this sample must not be trained on; None where nothing speaks against it."""
        question, context = overlap or self.overlaps([sample])[0]
        if question > self._spec.max_question_overlap:
            return sample.reject("leaked_question", f"overlap {question:.2f}")
        self._context_overlap[sample.source][min(9, int(context * 10))] += 1
        if context > self._spec.max_context_overlap:
            return sample.reject("leaked_context", f"overlap {context:.2f}")
        return None

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
