"""The first half of a build, in order and in one process: load every source, reject duplicates and leaks, augment.

Yields samples to process and rejections to count. Memory use does not grow with the number of records: seen ids are kept
in a temporary database on disk, eight bytes each.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from data_pipeline.records import Outcome, Rejection, Sample
from data_pipeline.settings import BuildConfig
from data_pipeline.sources.registry import load_source
from data_pipeline.steps.augment import Pool, augment
from data_pipeline.steps.guard import BenchmarkIndex, LeakageGuard, Overlap

Item = Sample | Rejection
_BATCH_ITEMS, _BATCH_CHARS = 32, 1 << 16
"""Size of a guard batch. It runs on the event loop's thread, so it must be short enough not to delay teacher calls."""


class Preparation:
    """Iterates over the samples and rejections of all sources, in order."""

    def __init__(self, config: BuildConfig) -> None:
        """Load the guard's benchmark. Raises DocumentNotFound or InputError if it cannot be read."""
        self.config = config
        spec = config.guard
        self.rows_read = 0
        self.finished: set[str] = set()
        """Names of the sources that have reached their target. The rest of them is not read."""
        self.guard = LeakageGuard(BenchmarkIndex.load(spec.benchmark), spec) if spec.benchmark else None

    def __iter__(self) -> Iterator[Item]:
        seen = SeenIds()
        max_bytes = int(self.config.max_record_mb * (1 << 20))
        for spec in self.config.sources:
            pool = Pool()
            loaded = load_source(spec, max_bytes, self._count_row, self.config.seed)
            for item, overlap in self._with_overlaps(loaded):
                if spec.label in self.finished:
                    break
                if isinstance(item, Sample):
                    yield from self._admit(item, overlap, seen, pool)
                else:
                    yield item

    def _with_overlaps(self, items: Iterable[Item]) -> Iterator[tuple[Item, Overlap | None]]:
        """Yield each item, and a sample's overlap if there is a guard, which compares a batch in about the time of one."""
        for batch in batches(items, _BATCH_ITEMS, _BATCH_CHARS):
            samples = [item for item in batch if isinstance(item, Sample)]
            overlaps = iter(self.guard.overlaps(samples) if self.guard and samples else ())
            for item in batch:
                yield item, next(overlaps, None) if isinstance(item, Sample) else None

    def _admit(self, sample: Sample, overlap: Overlap | None, seen: SeenIds, pool: Pool) -> Iterator[Item]:
        if not seen.add(sample.key):
            yield sample.reject("duplicate_id")
            return
        leak = self.guard.check(sample, overlap, count=False) if self.guard else None
        is_measured = overlap is not None and (leak is None or leak.reason == "leaked_context")
        context_overlap = overlap.context if overlap is not None and is_measured else None
        if leak is not None:
            yield replace(leak, context_overlap=context_overlap)
            return
        if context_overlap is not None:
            sample = replace(sample, context_overlap=context_overlap)
        for augmented in augment(sample, pool, self.config.variants, self.config.seed):
            # The sample's own id is already in `seen`; the id of a variant may still equal that of another record.
            is_new = augmented.id == sample.id or seen.add(augmented.key)
            if augmented.id != sample.id:
                # The overlap was measured on the loaded context, and it counts once.
                augmented = replace(augmented, context_overlap=None)
            yield augmented if is_new else augmented.reject("duplicate_id")

    def _count_row(self) -> None:
        self.rows_read += 1

    def count(self, outcome: Outcome) -> None:
        """Enter an outcome that counts into the guard's report.

        A source with a target is read ahead of the outcomes. What lies behind the target does not count, so that the
        report does not depend on how far a runner had read.
        """
        if self.guard is not None and outcome.context_overlap is not None:
            self.guard.count(outcome.source, outcome.context_overlap)

    def report(self) -> dict[str, Any] | None:
        """Return the guard's report on the overlap of the sources with the benchmark; None without a guard."""
        return self.guard.report() if self.guard else None


def batches(items: Iterable[Item], max_items: int, max_chars: int) -> Iterator[list[Item]]:
    """Group adjacent items. A batch ends at `max_items` items, or as soon as it has `max_chars` context characters."""
    batch: list[Item] = []
    chars = 0
    for item in items:
        batch.append(item)
        chars += len(item.context) if isinstance(item, Sample) else 0
        if len(batch) >= max_items or chars >= max_chars:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


class SeenIds:
    """A set of names, stored as 64-bit hashes, on disk past four mebibytes."""

    def __init__(self) -> None:
        # An empty name opens a temporary database that SQLite deletes with the connection. It needs no journal,
        # because nobody reads it after a crash.
        self._database = sqlite3.connect("")
        self._database.execute("PRAGMA cache_size = -4096")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("CREATE TABLE seen (id INTEGER PRIMARY KEY) WITHOUT ROWID")

    def add(self, name: str) -> bool:
        """Add a name and return whether it was new."""
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        key = int.from_bytes(digest, "big", signed=True)
        return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (key,)).rowcount == 1
