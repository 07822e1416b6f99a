"""Trajectory shards: the files in which the data pipeline hands trajectories to the trainer.

    manifest = write_shards("data/train", trajectories)
    shards = ShardSet("data/train")
    len(shards), shards[17], shards.digest
    shards.verify()

A set is a folder of Parquet files and a `manifest.json` that is written last: a folder without one was never finished,
and is refused. One row is one `Trajectory`; pages are drawn again from `source` and `style`, or embedded as PNG. The
same records give the same bytes. Row groups close at about a mebibyte, so that reading one row decodes little.

| column         | type         | holds                                     |
|----------------|--------------|-------------------------------------------|
| id             | string       | unique within the set                     |
| source         | string       | the document's text                       |
| style          | string       | the page style, as JSON                   |
| turns          | string       | the conversation, as JSON                 |
| relevant_pages | list<int32>  | 1-based                                   |
| answers        | list<string> | the gold answers                          |
| provenance     | string       | where it came from and how, as JSON       |
| pages_png      | list<binary> | only where pages are embedded: the images |
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import itertools
import json
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from seer.errors import DocumentNotFound, InputError
from seer.schema import PageStyle, Record, Trajectory, Turn

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MANIFEST_NAME = "manifest.json"
SCHEMA_VERSION = 1
ROWS_PER_SHARD = 10_000
_GROUP_BYTES = 1 << 20
_GROUP_ROWS = 1024
_CACHED_GROUPS = 4

Embed = Callable[[Trajectory], Sequence[bytes]]
"""Gives the PNG pages of a trajectory, to be stored beside it."""


class ShardInfo(Record):
    name: str
    rows: int = Field(ge=0)
    bytes: int = Field(ge=0)
    sha256: str


class Manifest(Record):
    """What a finished set holds. Its presence says that everything it names was written."""

    kind: str = "seer-trajectories"
    schema_version: int = SCHEMA_VERSION
    rows: int = Field(ge=0)
    digest: str
    """Over the records alone: it does not change with how they are cut into files or compressed."""
    embedded_pages: bool = False
    shards: tuple[ShardInfo, ...]
    statistics: dict[str, Any] = {}
    meta: dict[str, Any] = {}
    """What the maker of the set wanted to say about it."""


# ── Writing ──────────────────────────────────────────────────────────────────────────────────────


def write_shards(
    folder: str | Path,
    trajectories: Iterable[Trajectory],
    rows_per_shard: int = ROWS_PER_SHARD,
    meta: Mapping[str, Any] | None = None,
    *,
    embed: Embed | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Write a whole set. Memory is bounded by one row group, however many trajectories there are.

    Raises InputError: the folder holds a finished set (and `overwrite` is off), an id twice in a row, a text that UTF-8
    cannot hold.
    """
    with ShardWriter(folder, rows_per_shard, embed=embed, overwrite=overwrite) as writer:
        for trajectory in trajectories:
            writer.add(trajectory)
        return writer.finish(meta)


class ShardWriter:
    """Writes a set record by record. Without `finish` no manifest appears, and the folder counts as unfinished."""

    def __init__(
        self,
        folder: str | Path,
        rows_per_shard: int = ROWS_PER_SHARD,
        *,
        embed: Embed | None = None,
        overwrite: bool = False,
    ) -> None:
        if rows_per_shard < 1:
            raise InputError(f"rows_per_shard is {rows_per_shard}; it must be at least 1")
        self.folder = Path(folder)
        self._prepare_folder(overwrite)
        self._rows_per_shard, self._embed = rows_per_shard, embed
        self._schema = _schema(embed is not None)
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
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._temporary.unlink(missing_ok=True)

    @property
    def rows(self) -> int:
        return self._statistics.rows

    def add(self, trajectory: Trajectory) -> None:
        """Append one trajectory. Ids must differ; a repeat right after its twin is refused here, others by `verify`."""
        if trajectory.id == self._last_id:
            raise InputError(f"trajectory '{trajectory.id}' comes twice in a row; ids must be unique within a set")
        self._last_id = trajectory.id
        row = _row(trajectory)
        content = _canonical(row)
        size = len(content)
        if self._embed is not None:
            row["pages_png"] = list(self._embed(trajectory))
            size += sum(len(png) for png in row["pages_png"])
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
        """Close the last shard and write the manifest."""
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
        body = json.dumps(manifest.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False)
        write_whole(self.folder / MANIFEST_NAME, body.encode() + b"\n")
        return manifest

    def _prepare_folder(self, overwrite: bool) -> None:
        manifest = self.folder / MANIFEST_NAME
        if manifest.exists() and not overwrite:
            raise InputError(f"'{self.folder}' holds a finished set; write elsewhere, or ask to overwrite it")
        self.folder.mkdir(parents=True, exist_ok=True)
        # the manifest goes first: from here on, a crash leaves a folder that counts as unfinished
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
        self._writer.write_table(_table(self._buffer, self._schema))
        self._rows_in_shard += len(self._buffer)
        self._buffer, self._buffered_bytes = [], 0

    def _close_shard(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        temporary, final = self._temporary, self._final
        _sync(temporary)
        info = ShardInfo(
            name=final.name, rows=self._rows_in_shard, bytes=temporary.stat().st_size, sha256=_file_sha256(temporary)
        )
        os.replace(temporary, final)
        self._shards.append(info)
        self._rows_in_shard = 0


class _Statistics:
    """Counts kept while writing, in the manifest at the end."""

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


def _schema(embedded: bool) -> pa.Schema:
    import pyarrow as pa

    types = {name: pa.large_string() for name in ("id", "source", "style", "turns")}
    types |= {"relevant_pages": pa.list_(pa.int32()), "answers": pa.large_list(pa.large_string())}
    types["provenance"] = pa.large_string()
    if embedded:
        types["pages_png"] = pa.large_list(pa.large_binary())
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


def _table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as a table, out of buffers: pyarrow's own road from Python lists loads pandas, a second of start-up."""
    import pyarrow as pa

    def column(field: pa.Field) -> pa.Array:
        values = [row[field.name] for row in rows]
        if pa.types.is_large_string(field.type):
            return _bytes_array(values, field.type)
        ends = np.cumsum([0, *map(len, values)])
        flat = [value for row_values in values for value in row_values]
        if field.type == pa.list_(pa.int32()):
            numbers = pa.Array.from_buffers(pa.int32(), len(flat), [None, pa.py_buffer(np.array(flat, np.int32))])
            offsets = pa.Array.from_buffers(pa.int32(), len(ends), [None, pa.py_buffer(ends.astype(np.int32))])
            return pa.ListArray.from_arrays(offsets, numbers)
        offsets = pa.Array.from_buffers(pa.int64(), len(ends), [None, pa.py_buffer(ends.astype(np.int64))])
        return pa.LargeListArray.from_arrays(offsets, _bytes_array(flat, field.type.value_type))

    return pa.Table.from_arrays([column(field) for field in schema], schema=schema)


def _bytes_array(parts: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    ends = np.cumsum([0, *map(len, parts)]).astype(np.int64)
    return pa.Array.from_buffers(kind, len(parts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(parts))])


def _row(trajectory: Trajectory) -> dict[str, Any]:
    """The row of a trajectory, texts as UTF-8. Raises InputError for text that UTF-8 cannot hold."""
    try:
        return {
            "id": trajectory.id.encode(),
            "source": trajectory.source.encode(),
            "style": _style_json(trajectory.style),
            "turns": _turns_adapter().dump_json(trajectory.turns, exclude_defaults=True),
            "relevant_pages": list(trajectory.relevant_pages),
            "answers": [answer.encode() for answer in trajectory.answers],
            "provenance": json.dumps(trajectory.provenance, ensure_ascii=False, sort_keys=True).encode(),
        }
    except (PydanticSerializationError, UnicodeEncodeError) as error:
        raise InputError(
            f"trajectory {trajectory.id!r} holds a lone surrogate, which UTF-8 cannot store ({error}); replace it before "
            "writing"
        ) from None


@functools.cache
def _turns_adapter() -> TypeAdapter[tuple[Turn, ...]]:
    return TypeAdapter(tuple[Turn, ...])


_last_style: tuple[PageStyle, bytes] | None = None


def _style_json(style: PageStyle) -> bytes:
    """The same style mostly stands in every record: written out once."""
    global _last_style
    if _last_style is None or _last_style[0] is not style:
        _last_style = (style, style.model_dump_json().encode())
    return _last_style[1]


def _canonical(row: Mapping[str, Any]) -> bytes:
    """The content of a row (texts as UTF-8), each part with its length, so that no two rows share it."""
    texts = [row[name] for name in ("id", "source", "style", "turns", "provenance")]
    parts = (*texts, *row["answers"], json.dumps(row["relevant_pages"]).encode())
    return b"".join(b"%d:%b" % (len(part), part) for part in parts)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all: temporary name, flush to disk, rename."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ── Reading ──────────────────────────────────────────────────────────────────────────────────────


class ShardSet(Sequence[Trajectory]):
    """A finished set, read at random. Files are mapped into memory and opened anew in each process that reads them."""

    def __init__(self, folder: str | Path) -> None:
        """Raises DocumentNotFound (no such folder), InputError (unfinished, damaged, or of another schema)."""
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder)
        for shard in self.manifest.shards:
            path = self.folder / shard.name
            if not path.is_file():
                raise InputError(
                    f"'{self.folder}' lacks {shard.name}, which its manifest names; build or copy it again"
                )
            if path.stat().st_size != shard.bytes:
                raise InputError(
                    f"'{path}' has {path.stat().st_size} bytes where the manifest says {shard.bytes}; copy it again"
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
        """Identifies the records, whatever files they stand in."""
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
        return _trajectory(self._read_row(index))

    def __iter__(self) -> Iterator[Trajectory]:
        return (self[index] for index in range(len(self)))

    def pages_png(self, index: int) -> tuple[bytes, ...]:
        """The embedded page images of a record; empty where none were embedded."""
        return tuple(self._read_row(index).get("pages_png") or ())

    def verify(self) -> None:
        """Read everything and compare with the manifest. Raises InputError naming the first thing that is wrong."""
        digest, seen = hashlib.sha256(), set[bytes]()
        for shard in self.manifest.shards:
            path = self.folder / shard.name
            if _file_sha256(path) != shard.sha256:
                raise InputError(
                    f"'{path}' differs from what was written (sha256 does not match); build or copy it again"
                )
        for index in range(len(self)):
            row = self._read_row(index)
            trajectory = _trajectory(row)
            digest.update(hashlib.sha256(_canonical(_encoded(row))).digest())
            key = hashlib.blake2b(trajectory.id.encode(), digest_size=8).digest()
            if key in seen:
                raise InputError(f"trajectory '{trajectory.id}' stands twice in '{self.folder}'; ids must be unique")
            seen.add(key)
        if digest.hexdigest() != self.digest:
            raise InputError(f"the records in '{self.folder}' do not match the manifest's digest; build it again")

    def _read_row(self, index: int) -> dict[str, Any]:
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"record {index} asked of '{self.folder}', which has {len(self)}")
        if self._pid != os.getpid():  # forked: handles and locks of the parent are not ours to use
            self._reset()
        shard = bisect.bisect_right(self._ends, index)
        row = index - (self._ends[shard - 1] if shard else 0)
        with self._lock:
            table, offset = self._group(shard, row)
        return table.slice(offset, 1).to_pylist()[0]

    def _group(self, shard: int, row: int) -> tuple[pa.Table, int]:
        """The row group that holds a row, and the row's place in it."""
        file, ends = self._file(shard)
        group = bisect.bisect_right(ends, row)
        key = (shard, group)
        if key not in self._groups:
            try:
                # one thread: decoding a mebibyte gains nothing from more, and forked readers stay safe
                self._groups[key] = file.read_row_group(group, use_threads=False)
            except (OSError, ValueError) as error:
                raise InputError(f"'{self.folder / self.manifest.shards[shard].name}' is damaged: {error}") from None
            if len(self._groups) > _CACHED_GROUPS:
                self._groups.popitem(last=False)
        self._groups.move_to_end(key)
        return self._groups[key], row - (ends[group - 1] if group else 0)

    def _file(self, shard: int) -> tuple[pq.ParquetFile, list[int]]:
        if shard not in self._files:
            import pyarrow.parquet as pq

            info = self.manifest.shards[shard]
            try:
                file = pq.ParquetFile(self.folder / info.name, memory_map=True)
            except (OSError, ValueError) as error:
                raise InputError(f"'{self.folder / info.name}' is not readable Parquet: {error}") from None
            counts = (file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups))
            ends = list(itertools.accumulate(counts))
            if (ends[-1] if ends else 0) != info.rows:
                raise InputError(
                    f"'{info.name}' has {ends[-1] if ends else 0} rows where the manifest says {info.rows}"
                )
            self._files[shard] = (file, ends)
        return self._files[shard]


def read_manifest(folder: str | Path) -> Manifest:
    """The manifest of a finished set. Raises DocumentNotFound, InputError."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DocumentNotFound(f"no folder at '{folder}'; give a folder that `seer-data build` wrote")
    path = folder / MANIFEST_NAME
    if not path.is_file():
        inner = sorted(str(manifest.parent) for manifest in folder.glob(f"*/{MANIFEST_NAME}"))
        hint = f"it holds sets: {', '.join(inner)}" if inner else "it was never finished; build it again"
        raise InputError(f"'{folder}' has no {MANIFEST_NAME}: {hint}")
    try:
        values = json.loads(path.read_bytes())
        version = values.get("schema_version") if isinstance(values, dict) else None
        if version != SCHEMA_VERSION:
            raise InputError(
                f"'{path}' has schema version {version!r}; this Seer reads {SCHEMA_VERSION}; build it again"
            )
        manifest = Manifest.model_validate(values)
    except InputError:
        raise
    except (ValidationError, ValueError) as error:
        raise InputError(f"'{path}' is not a manifest of trajectories: {error}") from None
    for shard in manifest.shards:
        # names come from a file: they must stay inside the folder
        if Path(shard.name).name != shard.name:
            raise InputError(f"'{path}' names a shard outside its folder: {shard.name!r}")
    return manifest


def _encoded(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as read, with its texts as the writer had them."""
    encoded = {name: value.encode() if isinstance(value, str) else value for name, value in row.items()}
    return {**encoded, "answers": [answer.encode() for answer in row["answers"]]}


def _trajectory(row: Mapping[str, Any]) -> Trajectory:
    try:
        return Trajectory(
            id=row["id"],
            source=row["source"],
            style=_parse_style(row["style"]),
            turns=_turns_adapter().validate_json(row["turns"]),
            relevant_pages=tuple(row["relevant_pages"]),
            answers=tuple(row["answers"]),
            provenance=json.loads(row["provenance"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"record {row.get('id')!r} is no trajectory: {error}") from None


_styles: dict[str, PageStyle] = {}


def _parse_style(text: str) -> PageStyle:
    if text not in _styles:
        if len(_styles) > 64:
            _styles.clear()
        _styles[text] = PageStyle.model_validate_json(text)
    return _styles[text]
