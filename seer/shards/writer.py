"""Writes trajectory shards with bounded memory; the manifest comes last. `seer.shards.reader` documents the format."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from seer.errors import InputError
from seer.schema import Trajectory
from seer.shards.format import (
    MANIFEST_NAME,
    Manifest,
    ShardInfo,
    arrow_schema,
    arrow_table,
    canonical,
    file_sha256,
    row_of,
)
from seer.storage import publish, write_manifest

if TYPE_CHECKING:
    import pyarrow.parquet as pq

ROWS_PER_SHARD = 10_000
# A row group closes at either limit: reading one row decodes its whole group.
_GROUP_BYTES = 1 << 20
_GROUP_ROWS = 1024

Embed = Callable[[Trajectory], Sequence[bytes]]
"""Returns the pages of a trajectory as PNG, to be stored with it."""


def write_shards(
    folder: str | Path,
    trajectories: Iterable[Trajectory],
    rows_per_shard: int = ROWS_PER_SHARD,
    meta: Mapping[str, Any] | None = None,
    *,
    embed: Embed | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Write a whole set and return its manifest. Memory is bounded by one row group.

    rows_per_shard: rows in each Parquet file.
    meta: free notes for the manifest.
    embed: returns the page images of a trajectory, to store them; by default none are stored.
    overwrite: replace a finished set.

    Raises InputError if the folder contains a finished set and `overwrite` is off, if an id occurs twice in a row, or if
    UTF-8 cannot encode a text.
    """
    with ShardWriter(folder, rows_per_shard, embed=embed, overwrite=overwrite) as writer:
        for trajectory in trajectories:
            writer.add(trajectory)
        return writer.finish(meta)


class ShardWriter:
    """Writes a set record by record. The folder counts as unfinished until `finish` writes the manifest."""

    def __init__(
        self,
        folder: str | Path,
        rows_per_shard: int = ROWS_PER_SHARD,
        *,
        embed: Embed | None = None,
        overwrite: bool = False,
    ) -> None:
        """Prepare the folder; arguments as in `write_shards`.

        Raises InputError if `rows_per_shard` is below 1, or if the folder contains a finished set and `overwrite` is off.
        """
        if rows_per_shard < 1:
            raise InputError(f"rows_per_shard={rows_per_shard}: must be at least 1")
        self.folder = Path(folder)
        self._prepare_folder(overwrite)
        self._rows_per_shard, self._embed = rows_per_shard, embed
        self._schema = arrow_schema(embed is not None)
        self._buffer: list[dict[str, Any]] = []
        self._buffered_bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._rows_in_shard = 0
        self._shards: list[ShardInfo] = []
        self._digest = hashlib.sha256()
        self._statistics = _Statistics()
        self._last_id = ""

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A shard that is still open here is incomplete, for example after an exception.
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._temporary.unlink(missing_ok=True)

    @property
    def rows(self) -> int:
        return self._statistics.rows

    def add(self, trajectory: Trajectory) -> None:
        """Append one trajectory.

        Ids must be unique. Only a repetition of the previous id is detected here; `ShardSet.verify` finds all others.

        Raises InputError for a repeated id and for text that UTF-8 cannot encode.
        """
        if trajectory.id == self._last_id:
            raise InputError(f"trajectory '{trajectory.id}' occurs twice in a row; ids must be unique within a set")
        self._last_id = trajectory.id
        row = row_of(trajectory)
        content = canonical(row)
        size = len(content)
        if self._embed is not None:
            row["pages_png"] = list(self._embed(trajectory))
            size += sum(len(png) for png in row["pages_png"])
        # The digest covers the conversation alone: embedding page images does not change it.
        self._digest.update(hashlib.sha256(content).digest())
        self._statistics.add(trajectory)
        self._buffer.append(row)
        self._buffered_bytes += size
        full = self._rows_in_shard + len(self._buffer) >= self._rows_per_shard
        if full or self._buffered_bytes >= _GROUP_BYTES or len(self._buffer) >= _GROUP_ROWS:
            self._flush()
        if full:
            self._close_shard()

    def finish(self, meta: Mapping[str, Any] | None = None) -> Manifest:
        """Close the last shard, then write and return the manifest. `meta`: free notes for it."""
        self._flush()
        self._close_shard()
        manifest = Manifest(
            rows=self._statistics.rows,
            digest=self._digest.hexdigest(),
            embedded_pages=self._embed is not None,
            shards=tuple(self._shards),
            statistics=self._statistics.summary(),
            meta=dict(meta or {}),
        )
        write_manifest(self.folder / MANIFEST_NAME, manifest.model_dump(mode="json"), sort_keys=True)
        return manifest

    def _prepare_folder(self, overwrite: bool) -> None:
        manifest = self.folder / MANIFEST_NAME
        if manifest.exists() and not overwrite:
            raise InputError(f"'{self.folder}' contains a finished set; choose another folder or overwrite it")
        self.folder.mkdir(parents=True, exist_ok=True)
        # The manifest is removed first: from here on, a crash leaves a folder that counts as unfinished.
        manifest.unlink(missing_ok=True)
        for stale in sorted([*self.folder.glob("part-*.parquet"), *self.folder.glob("part-*.parquet.tmp")]):
            stale.unlink()

    @property
    def _final(self) -> Path:
        return self.folder / f"part-{len(self._shards):05d}.parquet"

    @property
    def _temporary(self) -> Path:
        return self._final.with_suffix(".parquet.tmp")

    def _flush(self) -> None:
        if not self._buffer:
            return
        import pyarrow.parquet as pq

        if self._writer is None:
            self._writer = pq.ParquetWriter(self._temporary, self._schema, compression="zstd", use_dictionary=False)
        self._writer.write_table(arrow_table(self._buffer, self._schema))
        self._rows_in_shard += len(self._buffer)
        self._buffer, self._buffered_bytes = [], 0

    def _close_shard(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        temporary, final = self._temporary, self._final
        info = ShardInfo(
            name=final.name, rows=self._rows_in_shard, bytes=temporary.stat().st_size, sha256=file_sha256(temporary)
        )
        publish(temporary, final)
        self._shards.append(info)
        self._rows_in_shard = 0


class _Statistics:
    """Counts that are collected while writing and stored in the manifest."""

    def __init__(self) -> None:
        self.rows = 0
        self._source_chars = 0
        self._turns: Counter[str] = Counter()
        self._relevant_pages: Counter[int] = Counter()
        self._sources: Counter[str] = Counter()

    def add(self, trajectory: Trajectory) -> None:
        self.rows += 1
        self._source_chars += len(trajectory.source)
        self._turns[" ".join(turn.kind for turn in trajectory.turns)] += 1
        self._relevant_pages[len(trajectory.relevant_pages)] += 1
        self._sources[trajectory.provenance.get("source", "unknown")] += 1

    def summary(self) -> dict[str, Any]:
        return {
            "source_chars": self._source_chars,
            "conversations": dict(sorted(self._turns.items())),
            "relevant_pages": {str(pages): n for pages, n in sorted(self._relevant_pages.items())},
            "sources": dict(sorted(self._sources.items())),
        }
