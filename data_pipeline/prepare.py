"""The first half of a build, in order and in one process: load every source, refuse repeats and leaks, add variants.

Yields samples to be processed and rejections to be counted. Memory stays flat: ids are remembered in a small database
on disk, as eight bytes each.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from typing import Any

from data_pipeline.guard import BenchmarkIndex, Guard
from data_pipeline.records import Rejection, Sample
from data_pipeline.settings import BuildConfig
from data_pipeline.sources import load
from data_pipeline.variants import Pool, variants

Item = Sample | Rejection


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
            for item in load(spec, max_bytes, self._count_row):
                if isinstance(item, Sample):
                    yield from self._admit(item, seen, pool)
                else:
                    yield item

    def _admit(self, sample: Sample, seen: SeenIds, pool: Pool) -> Iterator[Item]:
        if not seen.add(sample.key):
            yield sample.reject("duplicate_id")
            return
        leak = self.guard.check(sample) if self.guard else None
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
