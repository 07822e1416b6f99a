"""Reads trajectory shards: the files through which the data pipeline passes trajectories to the trainer.

    manifest = write_shards("data/train", trajectories)
    shards = ShardSet("data/train")
    len(shards), shards[17], shards.digest
    shards.verify()

A set is a folder of Parquet files and a `manifest.json` that is written last. A folder without a manifest is unfinished
and is rejected. One row is one `Trajectory`; its pages are drawn again from `source` and `style`, or embedded as PNG.
The same records give the same bytes. A row group contains about a mebibyte, so that reading one row decodes little.

| column         | type         | content                                   |
|----------------|--------------|-------------------------------------------|
| id             | string       | unique within the set                     |
| source         | string       | the document's text                       |
| style          | string       | the page style, as JSON                   |
| turns          | string       | the conversation, as JSON                 |
| relevant_pages | list<int32>  | 1-based                                   |
| answers        | list<string> | the gold answers                          |
| provenance     | string       | origin and steps of the build, as JSON    |
| pages_png      | list<binary> | the page images, if they are embedded     |
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from pydantic import ValidationError

from seer.errors import DocumentNotFound, InputError
from seer.schema import Trajectory
from seer.shards.format import (
    MANIFEST_NAME,
    SCHEMA_VERSION,
    Manifest,
    ShardInfo,
    canonical,
    file_sha256,
    trajectory_of,
    utf8_row,
)
from seer.shards.writer import ROWS_PER_SHARD, Embed, ShardWriter, write_shards

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = [
    "MANIFEST_NAME",
    "ROWS_PER_SHARD",
    "SCHEMA_VERSION",
    "Embed",
    "Manifest",
    "ShardInfo",
    "ShardSet",
    "ShardWriter",
    "read_shard_manifest",
    "write_shards",
]

_CACHED_GROUPS = 4
_BROKEN_PARQUET = (OSError, ValueError, LookupError, TypeError, NotImplementedError, MemoryError)
"""The errors that pyarrow raises for damaged files."""


class ShardSet(Sequence[Trajectory]):
    """A finished set with random access to its trajectories. Safe to share between threads and to pickle.

    Files are memory-mapped. Each process opens them again, including processes that were forked.
    """

    def __init__(self, folder: str | Path) -> None:
        """Open the set in `folder`.

        Raises DocumentNotFound if there is no folder, and InputError if the set is unfinished, damaged or has another
        schema version.
        """
        self.folder = Path(folder)
        self.manifest = read_shard_manifest(self.folder)
        for shard in self.manifest.shards:
            path = self.folder / shard.name
            if not path.is_file():
                raise InputError(
                    f"'{self.folder}' lacks {shard.name}, which its manifest names; build or copy it again"
                )
            if path.stat().st_size != shard.bytes:
                raise InputError(
                    f"'{path}' has {path.stat().st_size} bytes, but the manifest says {shard.bytes}; copy it again"
                )
        self._ends = list(itertools.accumulate(shard.rows for shard in self.manifest.shards))
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._files: dict[int, tuple[pq.ParquetFile, list[int]]] = {}
        self._groups: OrderedDict[tuple[int, int], pa.Table] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "manifest": self.manifest, "_ends": self._ends}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    @property
    def digest(self) -> str:
        """Identifies the records, independent of their division into files."""
        return self.manifest.digest

    def __len__(self) -> int:
        return self.manifest.rows

    @overload
    def __getitem__(self, index: int) -> Trajectory: ...
    @overload
    def __getitem__(self, index: slice) -> list[Trajectory]: ...
    def __getitem__(self, index: int | slice) -> Trajectory | list[Trajectory]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return trajectory_of(self._read_row(index))

    def __iter__(self) -> Iterator[Trajectory]:
        return (self[index] for index in range(len(self)))

    def pages_png(self, index: int) -> tuple[bytes, ...]:
        """Return the embedded page images of a record as PNG; empty if the set embeds none."""
        return tuple(self._read_row(index).get("pages_png") or ()) if self.manifest.embedded_pages else ()

    def verify(self) -> None:
        """Read everything and compare it with the manifest. Raises InputError at the first difference."""
        # Eight bytes per id bound the memory for sets of many million records.
        digest, seen = hashlib.sha256(), set[bytes]()
        for shard in self.manifest.shards:
            path = self.folder / shard.name
            if file_sha256(path) != shard.sha256:
                raise InputError(f"'{path}' does not match its sha256 in the manifest; build or copy it again")
        for index in range(len(self)):
            row = self._read_row(index)
            trajectory = trajectory_of(row)
            digest.update(hashlib.sha256(canonical(utf8_row(row))).digest())
            key = hashlib.blake2b(trajectory.id.encode(), digest_size=8).digest()
            if key in seen:
                raise InputError(f"trajectory '{trajectory.id}' occurs twice in '{self.folder}'; ids must be unique")
            seen.add(key)
        if digest.hexdigest() != self.digest:
            raise InputError(f"the records in '{self.folder}' do not match the manifest's digest; build it again")

    def _read_row(self, index: int) -> dict[str, Any]:
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"record {index} is out of range: '{self.folder}' has {len(self)} records")
        if self._pid != os.getpid():  # a forked process must not use its parent's handles and locks
            self._reset()
        shard = bisect.bisect_right(self._ends, index)
        row = index - (self._ends[shard - 1] if shard else 0)
        with self._lock:
            table, offset = self._group(shard, row)
        try:
            return table.slice(offset, 1).to_pylist()[0]
        except _BROKEN_PARQUET as error:
            raise InputError(
                f"record {index} of '{self.folder}' is damaged ({error}); build or copy it again"
            ) from None

    def _group(self, shard: int, row: int) -> tuple[pa.Table, int]:
        """Return the row group that contains a row of a shard, and the row's index in it."""
        file, ends = self._file(shard)
        group = bisect.bisect_right(ends, row)
        key = (shard, group)
        if key not in self._groups:
            try:
                # One thread: more do not speed up a mebibyte, and pyarrow's thread pool does not survive a fork.
                self._groups[key] = file.read_row_group(group, use_threads=False)
            except _BROKEN_PARQUET as error:
                path = self.folder / self.manifest.shards[shard].name
                raise InputError(f"'{path}' is damaged ({error}); build or copy it again") from None
            if len(self._groups) > _CACHED_GROUPS:
                self._groups.popitem(last=False)
        self._groups.move_to_end(key)
        return self._groups[key], row - (ends[group - 1] if group else 0)

    def _file(self, shard: int) -> tuple[pq.ParquetFile, list[int]]:
        """Return a shard's open file and the index after the last row of each of its row groups."""
        if shard not in self._files:
            import pyarrow.parquet as pq

            info = self.manifest.shards[shard]
            try:
                file = pq.ParquetFile(self.folder / info.name, memory_map=True)
            except _BROKEN_PARQUET as error:
                raise InputError(
                    f"'{self.folder / info.name}' is not readable Parquet ({error}); build or copy it again"
                ) from None
            counts = (file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups))
            ends = list(itertools.accumulate(counts))
            if (ends[-1] if ends else 0) != info.rows:
                raise InputError(
                    f"'{info.name}' has {ends[-1] if ends else 0} rows, but the manifest says {info.rows}; build it again"
                )
            self._files[shard] = (file, ends)
        return self._files[shard]


def read_shard_manifest(folder: str | Path) -> Manifest:
    """Read the manifest of a finished set.

    Raises DocumentNotFound if there is no folder, and InputError if the set is unfinished, has another schema version or
    a damaged manifest.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DocumentNotFound(f"no folder at '{folder}'; give a folder that `seer-data build` wrote")
    path = folder / MANIFEST_NAME
    if not path.is_file():
        inner = sorted(str(manifest.parent) for manifest in folder.glob(f"*/{MANIFEST_NAME}"))
        hint = (
            f"it contains sets, give one of {', '.join(inner)}"
            if inner
            else "it is not a set, or was never finished; give the folder of a set, or build it again"
        )
        raise InputError(f"'{folder}' has no {MANIFEST_NAME}: {hint}")
    try:
        values = json.loads(path.read_bytes())
        version = values.get("schema_version") if isinstance(values, dict) else None
        if version != SCHEMA_VERSION:
            raise InputError(
                f"'{path}' has schema version {version!r}; this version of Seer reads {SCHEMA_VERSION}; build it again"
            )
        manifest = Manifest.model_validate(values)
    except InputError:
        raise
    except (ValidationError, ValueError, RecursionError) as error:
        raise InputError(f"'{path}' is not a manifest of trajectories ({error}); build it again") from None
    if manifest.rows != (listed := sum(shard.rows for shard in manifest.shards)):
        raise InputError(
            f"'{path}' has {manifest.rows} rows, but its shards add up to {listed}; build or copy it again"
        )
    for shard in manifest.shards:
        # The names come from a file, so they could point outside the folder.
        if Path(shard.name).name != shard.name:
            raise InputError(f"'{path}' names a shard outside its folder: {shard.name!r}; build the set again")
    return manifest
