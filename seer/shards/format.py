"""The format of trajectory shards: the manifest, the columns, and the conversion of trajectories to rows and back.

`seer.shards.reader` documents the columns and reads them; `seer.shards.writer` writes them.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, TypeAdapter
from pydantic_core import PydanticSerializationError

from seer.errors import InputError
from seer.schema import PageStyle, Record, Trajectory, Turn

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST_NAME = "manifest.json"
SCHEMA_VERSION = 1


class ShardInfo(Record):
    """One Parquet file of a set."""

    name: str
    """The file name within the folder of the set."""
    rows: int = Field(ge=0)
    bytes: int = Field(ge=0)
    sha256: str


class Manifest(Record):
    """The contents of a finished set. It is written last, so every file that it names is complete."""

    kind: str = "seer-trajectories"
    schema_version: int = SCHEMA_VERSION
    rows: int = Field(ge=0)
    digest: str
    """SHA-256 over the records alone, independent of their division into files and of compression."""
    embedded_pages: bool = False
    shards: tuple[ShardInfo, ...]
    statistics: dict[str, Any] = {}
    meta: dict[str, Any] = {}
    """Free notes of the program that wrote the set."""


# ── Rows ─────────────────────────────────────────────────────────────────────────────────────────


def arrow_schema(embedded: bool) -> pa.Schema:
    """Return the Arrow schema of the columns; `embedded` adds the column of page images."""
    import pyarrow as pa

    types = {name: pa.large_string() for name in ("id", "source", "style", "turns")}
    types |= {"relevant_pages": pa.list_(pa.int32()), "answers": pa.large_list(pa.large_string())}
    types["provenance"] = pa.large_string()
    if embedded:
        types["pages_png"] = pa.large_list(pa.large_binary())
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


def arrow_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Convert rows (texts as UTF-8 bytes) into an Arrow table with `schema`.

    The arrays are built from buffers because pyarrow's conversion of Python lists imports pandas, which takes a second.
    """
    import pyarrow as pa

    def column(field: pa.Field) -> pa.Array:
        values = [row[field.name] for row in rows]
        if pa.types.is_large_string(field.type):
            return _bytes_array(values, field.type)
        # A list column is one flat array of values and the offsets at which each row ends.
        ends = np.cumsum([0, *map(len, values)])
        flat = [value for row_values in values for value in row_values]
        # Page numbers are in a list with 32-bit offsets, texts and images in large lists with 64-bit offsets.
        if field.type == pa.list_(pa.int32()):
            numbers = pa.Array.from_buffers(pa.int32(), len(flat), [None, pa.py_buffer(np.array(flat, np.int32))])
            offsets = pa.Array.from_buffers(pa.int32(), len(ends), [None, pa.py_buffer(ends.astype(np.int32))])
            return pa.ListArray.from_arrays(offsets, numbers)
        offsets = pa.Array.from_buffers(pa.int64(), len(ends), [None, pa.py_buffer(ends.astype(np.int64))])
        return pa.LargeListArray.from_arrays(offsets, _bytes_array(flat, field.type.value_type))

    return pa.Table.from_arrays([column(field) for field in schema], schema=schema)


def _bytes_array(parts: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    """An array of variable-length values: 64-bit offsets and the joined bytes."""
    import pyarrow as pa

    ends = np.cumsum([0, *map(len, parts)]).astype(np.int64)
    return pa.Array.from_buffers(kind, len(parts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(parts))])


def row_of(trajectory: Trajectory) -> dict[str, Any]:
    """Convert a trajectory into a row with texts as UTF-8 bytes.

    Raises InputError if a text contains a lone surrogate, which UTF-8 cannot encode.
    """
    try:
        return {
            "id": trajectory.id.encode(),
            "source": trajectory.source.encode(),
            "style": _style_json(trajectory.style),
            "turns": _turns_adapter().dump_json(trajectory.turns, exclude_defaults=True),
            "relevant_pages": list(trajectory.relevant_pages),
            "answers": [answer.encode() for answer in trajectory.answers],
            "provenance": _sorted_json(trajectory.provenance).encode(),
        }
    except (PydanticSerializationError, UnicodeEncodeError) as error:
        raise InputError(
            f"trajectory {trajectory.id!r} contains a lone surrogate, which UTF-8 cannot encode ({error}); replace it before "
            "writing"
        ) from None


_sorted_json = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode


@functools.cache
def _turns_adapter() -> TypeAdapter[tuple[Turn, ...]]:
    return TypeAdapter(tuple[Turn, ...])


_last_style: tuple[PageStyle, bytes] | None = None


def _style_json(style: PageStyle) -> bytes:
    """The style as JSON. Most sets use one style object for all records, so the last result is cached."""
    global _last_style
    if _last_style is None or _last_style[0] is not style:
        _last_style = (style, style.model_dump_json().encode())
    return _last_style[1]


def canonical(row: Mapping[str, Any]) -> bytes:
    """Return the content of a row (texts as UTF-8 bytes) as one byte string.

    Each part is preceded by its length, so different rows have different strings.
    """
    texts = [row[name] for name in ("id", "source", "style", "turns", "provenance")]
    parts = (*texts, *row["answers"], json.dumps(row["relevant_pages"]).encode())
    return b"".join(b"%d:%b" % (len(part), part) for part in parts)


def utf8_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row that was read from Parquet in the form of `row_of`, with texts as UTF-8 bytes."""
    encoded = {name: value.encode() if isinstance(value, str) else value for name, value in row.items()}
    return {**encoded, "answers": [answer.encode() for answer in row["answers"]]}


def trajectory_of(row: Mapping[str, Any]) -> Trajectory:
    """Convert a row that was read from Parquet into a trajectory. Raises InputError if a column is invalid."""
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
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"record {row.get('id')!r} is not a valid trajectory ({error}); build the set again") from None


_styles: dict[str, PageStyle] = {}


def _parse_style(text: str) -> PageStyle:
    """The style from JSON, cached: most records of a set have the same one."""
    if text not in _styles:
        # Sets with a style per record must not grow the cache without bound.
        if len(_styles) > 64:
            _styles.clear()
        _styles[text] = PageStyle.model_validate_json(text)
    return _styles[text]


# ── Files ────────────────────────────────────────────────────────────────────────────────────────


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
