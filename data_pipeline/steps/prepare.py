"""The first half of a build, in order and in one process: load every source, refuse repeats and leaks, add variants.

Yields samples to be processed and rejections to be counted. Memory stays flat: ids are remembered in a small database
on disk, as eight bytes each.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

from data_pipeline.records import Rejection, Sample
from data_pipeline.settings import BuildConfig
from data_pipeline.sources.registry import load
from data_pipeline.steps.guard import BenchmarkIndex, Guard, Overlap
from data_pipeline.steps.variants import Pool, variants

Item = Sample | Rejection
_BATCH_ITEMS, _BATCH_CHARS = 32, 1 << 16
"""Small enough that calls in flight do not wait for it."""


class Preparation:
    """Iterates over samples and rejections of all sources, in their order; afterwards knows how the guard fared."""

    def __init__(self, config: BuildConfig) -> None:
        """Raises DocumentNotFound, InputError where the guard's benchmark cannot be read."""
        self.config = config
        spec = config.guard
        self.rows_read = 0
        self.guard = Guard(BenchmarkIndex.load(spec.benchmark), spec) if spec.benchmark else None

    def __iter__(self) -> Iterator[Item]:
        seen = SeenIds()
        max_bytes = int(self.config.max_record_mb * (1 << 20))
        for spec in self.config.sources:
            pool = Pool()
            for item, overlap in self._compared(load(spec, max_bytes, self._count_row)):
                if isinstance(item, Sample):
                    yield from self._admit(item, overlap, seen, pool)
                else:
                    yield item

    def _compared(self, items: Iterable[Item]) -> Iterator[tuple[Item, Overlap | None]]:
        """Each item, a sample with its overlap; some at a time, since the guard compares many at little more cost."""
        for batch in batches(items, _BATCH_ITEMS, _BATCH_CHARS):
            samples = [item for item in batch if isinstance(item, Sample)]
            overlaps = iter(self.guard.overlaps(samples) if self.guard and samples else ())
            for item in batch:
                yield item, next(overlaps, None) if isinstance(item, Sample) else None

    def _admit(self, sample: Sample, overlap: Overlap | None, seen: SeenIds, pool: Pool) -> Iterator[Item]:
        if not seen.add(sample.key):
            yield sample.reject("duplicate_id")
            return
        leak = self.guard.check(sample, overlap) if self.guard else None
        if leak is not None:
            yield leak
            return
        for told in variants(sample, pool, self.config.variants, self.config.seed):
            yield told if told.id == sample.id or seen.add(told.key) else told.reject("duplicate_id")

    def _count_row(self) -> None:
        self.rows_read += 1

    def report(self) -> dict[str, Any] | None:
        """How close the sources came to the benchmark; None without a guard."""
        return self.guard.report() if self.guard else None


def batches(items: Iterable[Item], most_items: int, most_chars: int) -> Iterator[list[Item]]:
    """Neighbouring items together, bounded in number and in characters."""
    batch: list[Item] = []
    chars = 0
    for item in items:
        batch.append(item)
        chars += len(item.context) if isinstance(item, Sample) else 0
        if len(batch) >= most_items or chars >= most_chars:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


class SeenIds:
    """Remembers ids by a 64-bit hash, on disk past a few mebibytes."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("")  # a temporary file that goes with the connection
        self._database.execute("PRAGMA cache_size = -4096")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("CREATE TABLE seen (id INTEGER PRIMARY KEY) WITHOUT ROWID")

    def add(self, name: str) -> bool:
        """False where the name was added before."""
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        key = int.from_bytes(digest, "big", signed=True)
        return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (key,)).rowcount == 1
