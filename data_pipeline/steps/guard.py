"""The leakage guard: reject records whose question or context overlaps a benchmark.

    index = BenchmarkIndex.from_folder("longbench/")     # or BenchmarkIndex.load("guard.npz")
    guard = LeakageGuard(index, GuardSpec())
    guard.check(sample)                                  # None, or the Rejection

The overlap of a record is the fraction of its n-grams (`data_pipeline.steps.ngrams`) that occur in the benchmark. Of
context n-grams, one in sixteen is kept, selected by its hash: both sides keep the same ones, so their fraction estimates
the fraction of all. An index of all of LongBench takes some tens of megabytes.
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
from data_pipeline.sources.posing import FIXED_QUESTIONS
from data_pipeline.sources.rawfiles import read_rows
from data_pipeline.steps.ngrams import QUESTION_GRAM_CHARS, RollingHash, context_grams, letters, union, with_sentinel
from seer.errors import DocumentNotFound, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MIN_QUESTION_LETTERS = 12
"""Shorter questions, such as "Who wrote it?", occur everywhere and are not compared."""
_EMBEDDED_QUESTION = re.compile(r"^(?:Question|Q|问题)[:：]\s*(.+)$", re.M)
"""A question inside a few-shot prompt, as in some LongBench tasks."""
_VERSION = 1


@dataclass(frozen=True)
class BenchmarkIndex:
    """Hashes of a benchmark's questions and n-grams, as sorted arrays without duplicates."""

    questions: NDArray[np.uint64]
    """Hashes of whole questions, shape (num_questions,)."""
    question_grams: NDArray[np.uint64]
    """Hashes of question n-grams, shape (num_question_grams,)."""
    context_grams: NDArray[np.uint64]
    """Hashes of the sampled context n-grams, shape (num_context_grams,)."""
    records: int
    """Number of benchmark records."""

    @classmethod
    def from_folder(cls, path: str | Path) -> BenchmarkIndex:
        """Index LongBench files, whose records have `context` and `input` (or `question`).

        Raises DocumentNotFound if the path does not exist, InputError if a record is unreadable or lacks a field.
        """
        questions: list[NDArray[np.uint64]] = []
        question_grams: list[NDArray[np.uint64]] = []
        sampled_grams: list[NDArray[np.uint64]] = []
        records = 0
        for row in read_rows(str(path), max_bytes=1 << 30):
            if isinstance(row, Rejection):
                raise InputError(f"'{path}': {row.detail}; the guard must read the whole benchmark, so fix this record")
            question, context = row.get("input", row.get("question")), row.get("context")
            if not isinstance(question, str) or not isinstance(context, str):
                raise InputError(
                    f"'{path}' holds a record without 'input' (or 'question') and 'context'; give LongBench's files"
                )
            records += 1
            # Index the prompt as well as a question inside it: training sets contain only the question.
            hashes = RollingHash([letters(text) for text in (question, *_EMBEDDED_QUESTION.findall(question))])
            questions.append(hashes.whole_texts())
            question_grams.append(hashes.grams(QUESTION_GRAM_CHARS).hashes)
            sampled_grams.append(context_grams([context]).hashes)
        return cls(union(questions), union(question_grams), union(sampled_grams), records)

    def save(self, path: str | Path) -> None:
        """Write the index as .npz. Equal indices give equal bytes."""
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
        """Load an index that `save` wrote, or index a folder or file of benchmark records.

        Raises DocumentNotFound if the path does not exist; InputError if the index is damaged or has another version,
        or a benchmark record is unreadable.
        """
        place = Path(path)
        if place.suffix != ".npz":
            return cls.from_folder(place)
        try:
            with np.load(place, allow_pickle=False) as file:
                if int(file["version"]) != _VERSION:
                    raise InputError(f"'{place}' has another format version; create it again with `seer-data guard`")
                return cls(
                    file["questions"], file["question_grams"], file["context_grams"], records=int(file["records"])
                )
        except FileNotFoundError:
            raise DocumentNotFound(f"no guard index at '{place}'; create one with `seer-data guard`") from None
        except InputError:
            raise
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"'{place}' is not a guard index: {error}; create one with `seer-data guard`") from None


class Overlap(NamedTuple):
    """Fractions, in [0, 1], of a sample's n-grams that occur in a benchmark."""

    question: float
    """1 if the whole question occurs; 0 if it is too short, or one that an adapter asks about every document."""
    context: float


class LeakageGuard:
    """Checks samples against an index and keeps a histogram of their overlap."""

    def __init__(self, index: BenchmarkIndex, spec: GuardSpec) -> None:
        self._spec, self._records = spec, index.records
        self._questions = frozenset(index.questions.tolist())
        self._question_grams = with_sentinel(index.question_grams)
        self._context_grams = with_sentinel(index.context_grams)
        self._context_overlap: dict[str, Counter[int]] = defaultdict(Counter)

    def overlaps(self, samples: Sequence[Sample]) -> list[Overlap]:
        """Return the overlap of each sample. One call for many samples is cheaper than many calls."""
        questions = [letters("" if sample.question in FIXED_QUESTIONS else sample.question) for sample in samples]
        hashes = RollingHash(questions)
        question_fractions = hashes.grams(QUESTION_GRAM_CHARS).fractions_in(self._question_grams, len(samples)).tolist()
        # Short questions have few n-grams, so the fraction alone says little about them: below the minimum length it
        # is ignored, and above it a match of the whole question counts as full overlap.
        for number, (names, whole) in enumerate(zip(questions, hashes.whole_texts().tolist(), strict=True)):
            if len(names) < _MIN_QUESTION_LETTERS:
                question_fractions[number] = 0.0
            elif whole in self._questions:
                question_fractions[number] = 1.0
        contexts = context_grams([sample.context for sample in samples])
        context_fractions = contexts.fractions_in(self._context_grams, len(samples)).tolist()
        return [Overlap(*pair) for pair in zip(question_fractions, context_fractions, strict=True)]

    def check(self, sample: Sample, overlap: Overlap | None = None, *, count: bool = True) -> Rejection | None:
        """Return the rejection of a sample that overlaps the benchmark too much, or None.

        `overlap` is the sample's entry from `overlaps`; without it, it is computed. `count` enters the context's overlap
        into the report; a build enters it later, once the record's outcome is known to count.
        """
        question, context = overlap or self.overlaps([sample])[0]
        if question > self._spec.max_question_overlap:
            return sample.reject("leaked_question", f"overlap {question:.2f}")
        if count:
            self.count(sample.source, context)
        if context > self._spec.max_context_overlap:
            return sample.reject("leaked_context", f"overlap {context:.2f}")
        return None

    def count(self, source: str, context_overlap: float) -> None:
        """Enter the overlap of one context into the report."""
        # The last of the ten bins includes an overlap of exactly 1.
        self._context_overlap[source][min(9, int(context_overlap * 10))] += 1

    def report(self) -> dict[str, Any]:
        """Return the guard's settings and, by source, a histogram of context overlap in tenths."""
        histograms = {
            source: {f"{tenth / 10:.1f}": counts[tenth] for tenth in range(10) if counts[tenth]}
            for source, counts in sorted(self._context_overlap.items())
        }
        return {
            "benchmark_records": self._records,
            "context_overlap": histograms,
            **self._spec.model_dump(exclude={"benchmark"}),
        }
