"""The first half of a build, in order and in one process: load every source, refuse repeats and leaks, add variants.

Yields samples to be processed and rejections to be counted. Memory stays flat: ids are remembered in a small database
on disk, as eight bytes each.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator

from data_pipeline.records import Rejection, Sample
from data_pipeline.settings import BuildConfig
from data_pipeline.sources import load

Item = Sample | Rejection


def prepare(config: BuildConfig) -> Iterator[Item]:
    """Samples and rejections of all sources, in their order."""
    seen = SeenIds()
    max_bytes = int(config.max_record_mb * (1 << 20))
    for spec in config.sources:
        for item in load(spec, max_bytes):
            if isinstance(item, Sample) and not seen.add(item.key):
                yield item.reject("duplicate_id")
            else:
                yield item


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
