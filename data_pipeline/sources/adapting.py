"""Helpers for adapters: typed access to fields of a row, records from columns, and contexts with known offsets.

Every accessor that finds a missing or mistyped value raises `Rejected`, which the registry counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from data_pipeline.records import Rejected
from data_pipeline.sources.rawfiles import Row


def required_field(row: Row, name: str) -> Any:
    """Return a field of any type. Raises Rejected if it is missing or null."""
    if row.get(name) is None:
        raise Rejected("missing_field", f"no '{name}'; the row has {', '.join(sorted(map(str, row))[:12])}")
    return row[name]


def text_field(row: Row, name: str) -> str:
    """Return a string field. Raises Rejected if it is missing or not a string."""
    value = required_field(row, name)
    if not isinstance(value, str):
        raise Rejected("wrong_type", f"'{name}' is {type(value).__name__}; text is required")
    return value


def optional_text(row: Row, *names: str) -> str:
    """Return the first of these fields that is present, as text; "" if none is."""
    for name in names:
        if row.get(name) is not None:
            return str(row[name])
    return ""


def list_field(row: Row, name: str) -> list[Any]:
    """Return a list field, which may be JSON in a string. Raises Rejected if it is missing or not a list."""
    value = decode_json(required_field(row, name))
    if not isinstance(value, list | tuple):
        raise Rejected("wrong_type", f"'{name}' is {type(value).__name__}; a list is required")
    return list(value)


def optional_list(row: Row, name: str) -> list[Any]:
    """Return a list field, or [] if it is missing or empty. Raises Rejected if it is not a list."""
    return list_field(row, name) if row.get(name) else []


def one_of(row: Row, *names: str) -> Any:
    """Return the first of these fields that is present. Raises Rejected if none is."""
    for name in names:
        if row.get(name) is not None:
            return row[name]
    return required_field(row, names[0])


def text_list(value: Any) -> list[str]:
    """Convert a string or number, or a list of them, to a list of strings. Raises Rejected for any other value."""
    if isinstance(value, str | int | float):
        return [str(value)]
    if isinstance(value, list | tuple) and all(isinstance(item, str | int | float) for item in value):
        return [str(item) for item in value]
    raise Rejected("wrong_type", f"answers are {type(value).__name__}; text or a list of texts is required")


def decode_json(value: Any) -> Any:
    """Decode a string that holds a JSON list or object, as some tables store them; return other values unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def record_list(value: Any) -> list[dict[str, Any]]:
    """Return a list of records that is given as a list or in columns.

    In columns, {"title": [a, b], "text": [c, d]} gives two records. Raises Rejected if the value has neither shape or
    its columns differ in length.
    """
    value = decode_json(value)
    if isinstance(value, Mapping):
        columns = {name: column for name, column in value.items() if isinstance(column, list | tuple)}
        lengths = {len(column) for column in columns.values()}
        if len(lengths) > 1:
            raise Rejected("wrong_type", f"columns {', '.join(columns)} differ in length")
        return [{name: column[i] for name, column in columns.items()} for i in range(lengths.pop() if lengths else 0)]
    if isinstance(value, list | tuple) and all(isinstance(item, Mapping) for item in value):
        return [dict(item) for item in value]
    raise Rejected("wrong_type", f"{type(value).__name__} where a list of records is required")


def short_hash(text: str) -> str:
    """Return 16 hexadecimal digits that identify a text, for records and documents without an id."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class TextBuilder:
    """Builds a context from pieces and records the span of each.

    builder = TextBuilder()
    start, end = builder.add("First sentence.")
    builder.end_segment()
    builder.text[start:end]         # "First sentence."
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._segments: list[tuple[int, int]] = []
        self._segment_start = 0

    def add(self, text: str) -> tuple[int, int]:
        """Append a piece and return its span [start, end) in code points."""
        start = self._length
        self._parts.append(text)
        self._length += len(text)
        return start, self._length

    def end_segment(self) -> None:
        """Make one passage of all pieces added since the previous call; without any, do nothing."""
        if self._length > self._segment_start:
            self._segments.append((self._segment_start, self._length))
            self._segment_start = self._length

    @property
    def text(self) -> str:
        return "".join(self._parts)

    @property
    def segments(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._segments)


def paragraphs_of(sections: Sequence[Row], depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield (`title` or `paragraph`, text) from nested sections in reading order.

    A section has a title, paragraphs and subsections. Raises Rejected if sections are nested more than 32 deep.
    """
    if depth > 32:
        raise Rejected("wrong_type", "sections are nested more than 32 deep")
    for section in sections:
        title = optional_text(section, "section_title", "section_name", "title")
        if title.strip():
            yield "title", title.strip()
        for paragraph in optional_list(section, "paragraphs"):
            if isinstance(paragraph, str) and paragraph.strip():
                yield "paragraph", paragraph
        yield from paragraphs_of(record_list(section.get("subsections") or []), depth + 1)
