"""What trajectory shards are made of: the manifest, the columns, and how a trajectory becomes a row and back.

The table of columns stands in `seer.shards.reader`, which reads them; `seer.shards.writer` writes them.
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


# ── Rows ─────────────────────────────────────────────────────────────────────────────────────────


def arrow_schema(embedded: bool) -> pa.Schema:
    import pyarrow as pa

    types = {name: pa.large_string() for name in ("id", "source", "style", "turns")}
    types |= {"relevant_pages": pa.list_(pa.int32()), "answers": pa.large_list(pa.large_string())}
    types["provenance"] = pa.large_string()
    if embedded:
        types["pages_png"] = pa.large_list(pa.large_binary())
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


def arrow_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
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


def row_of(trajectory: Trajectory) -> dict[str, Any]:
    """The row of a trajectory, texts as UTF-8. Raises InputError for text that UTF-8 cannot hold."""
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
            f"trajectory {trajectory.id!r} holds a lone surrogate, which UTF-8 cannot store ({error}); replace it before "
            "writing"
        ) from None


_sorted_json = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode


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


def canonical(row: Mapping[str, Any]) -> bytes:
    """The content of a row (texts as UTF-8), each part with its length, so that no two rows share it."""
    texts = [row[name] for name in ("id", "source", "style", "turns", "provenance")]
    parts = (*texts, *row["answers"], json.dumps(row["relevant_pages"]).encode())
    return b"".join(b"%d:%b" % (len(part), part) for part in parts)


def encoded(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as read, with its texts as the writer had them."""
    encoded = {name: value.encode() if isinstance(value, str) else value for name, value in row.items()}
    return {**encoded, "answers": [answer.encode() for answer in row["answers"]]}


def trajectory_of(row: Mapping[str, Any]) -> Trajectory:
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
        raise InputError(f"record {row.get('id')!r} is no trajectory: {error}") from None


_styles: dict[str, PageStyle] = {}


def _parse_style(text: str) -> PageStyle:
    if text not in _styles:
        if len(_styles) > 64:
            _styles.clear()
        _styles[text] = PageStyle.model_validate_json(text)
    return _styles[text]


# ── Files ────────────────────────────────────────────────────────────────────────────────────────


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
