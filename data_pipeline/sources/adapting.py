"""What adapters share: fields by name with clear refusals, rows out of columns, contexts built with known offsets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from data_pipeline.records import Rejected

Row = Mapping[str, Any]


def field(row: Row, name: str) -> Any:
    if row.get(name) is None:
        raise Rejected("missing_field", f"no '{name}'; the row has {', '.join(sorted(map(str, row))[:12])}")
    return row[name]


def text_field(row: Row, name: str) -> str:
    value = field(row, name)
    if not isinstance(value, str):
        raise Rejected("wrong_type", f"'{name}' is {type(value).__name__}; text is required")
    return value


def optional_text(row: Row, *names: str) -> str:
    """The first of these fields that is there, as text; "" where none is."""
    for name in names:
        if row.get(name) is not None:
            return str(row[name])
    return ""


def list_field(row: Row, name: str) -> list[Any]:
    value = parsed(field(row, name))
    if not isinstance(value, list | tuple):
        raise Rejected("wrong_type", f"'{name}' is {type(value).__name__}; a list is required")
    return list(value)


def optional_list(row: Row, name: str) -> list[Any]:
    """A list; empty where the field is."""
    return list_field(row, name) if row.get(name) else []


def one_of(row: Row, *names: str) -> Any:
    """The first of these fields that is there. Raises Rejected where none is."""
    for name in names:
        if row.get(name) is not None:
            return row[name]
    return field(row, names[0])


def text_list(value: Any) -> list[str]:
    """A text, or a list of texts or numbers, as a list of texts."""
    if isinstance(value, str | int | float):
        return [str(value)]
    if isinstance(value, list | tuple) and all(isinstance(item, str | int | float) for item in value):
        return [str(item) for item in value]
    raise Rejected("wrong_type", f"answers are {type(value).__name__}; text or a list of texts is required")


def parsed(value: Any) -> Any:
    """Some tables keep lists as JSON in a string."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def records(value: Any) -> list[dict[str, Any]]:
    """A list of records, given as such or in columns: {"title": [a, b], "text": [c, d]} → two records."""
    value = parsed(value)
    if isinstance(value, Mapping):
        columns = {name: column for name, column in value.items() if isinstance(column, list | tuple)}
        lengths = {len(column) for column in columns.values()}
        if len(lengths) > 1:
            raise Rejected("wrong_type", f"columns {', '.join(columns)} differ in length")
        return [{name: column[i] for name, column in columns.items()} for i in range(lengths.pop() if lengths else 0)]
    if isinstance(value, list | tuple) and all(isinstance(item, Mapping) for item in value):
        return [dict(item) for item in value]
    raise Rejected("wrong_type", f"{type(value).__name__} where a list of records is required")


class TextBuilder:
    """Builds a context piece by piece; `add` returns the span [start, end) that a piece takes."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._segments: list[tuple[int, int]] = []
        self._segment_start = 0

    def add(self, text: str) -> tuple[int, int]:
        start = self._length
        self._parts.append(text)
        self._length += len(text)
        return start, self._length

    def end_segment(self) -> None:
        """What was added since the last segment is one passage."""
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
    """(kind, text) of nested sections with titles, paragraphs and subsections, in reading order."""
    if depth > 32:
        raise Rejected("wrong_type", "sections are nested more than 32 deep")
    for section in sections:
        title = optional_text(section, "section_title", "section_name", "title")
        if title.strip():
            yield "title", title.strip()
        for paragraph in optional_list(section, "paragraphs"):
            if isinstance(paragraph, str) and paragraph.strip():
                yield "paragraph", paragraph
        yield from paragraphs_of(records(section.get("subsections") or []), depth + 1)
