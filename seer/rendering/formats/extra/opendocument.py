"""Read OpenDocument files: texts (.odt), sheets (.ods) and slides (.odp).

Paragraphs end with a newline, cells are separated by tabs, list items begin with "- ". Deleted text of tracked changes is left
out, notes follow their mark in brackets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from seer.errors import InputError
from seer.rendering.formats.extra.archive import open_archive
from seer.rendering.formats.extract import Extract, Notice

_WHAT = "an OpenDocument file"
_LEFT_OUT = {"tracked-changes", "sequence-decls", "annotation-end", "forms", "settings", "notes-configuration"}
_MAX_DEPTH = 200
_MAX_REPEATS = 200
"""Repeated cells and spaces that are written; sheets repeat empty cells up to their last column."""
_MAX_ROW_REPEATS = 2000


@dataclass
class _Text:
    parts: list[str] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    length: int = 0

    def add(self, text: str) -> None:
        self.parts.append(text)
        self.length += len(text)

    def notice(self, kind: str, message: str) -> None:
        self.notices.append(Notice(kind, message, self.length))


def read_opendocument(data: bytes, name: str, encoding: str | None) -> Extract:
    """Return the text of an OpenDocument file.

    Raises InputError if the file is damaged, encrypted or too large.
    """
    with open_archive(data, name, _WHAT) as archive:
        root = archive.xml("content.xml")
        if root is None:
            raise InputError(f"'{name}' is {_WHAT} without content; save it again")
        hidden = _hidden_styles(root)
        out = _Text()
        body = next((one for one in root if _local(one) == "body"), None)
        try:
            for one in body if body is not None else ():
                _blocks(one, out, hidden, 0)
        except RecursionError:
            raise InputError(f"'{name}' nests its content too deeply; save it again") from None
    text = "".join(out.parts)
    last = max(0, len(text) - 1)
    return Extract(text, tuple(Notice(one.kind, one.message, min(one.offset or 0, last)) for one in out.notices))


def _local(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _value(element: Element, name: str) -> str:
    return next((value for key, value in element.attrib.items() if key.rpartition("}")[2] == name), "")


def _number(element: Element, name: str, limit: int) -> int:
    value = _value(element, name)
    return min(limit, max(1, int(value))) if value.isdecimal() and len(value) < 9 else 1


def _hidden_styles(root: Element) -> set[str]:
    """Return the automatic styles whose text is hidden."""
    return {
        _value(style, "name")
        for style in root.iter()
        if _local(style) == "style"
        for properties in style
        if _local(properties) == "text-properties" and _value(properties, "display") == "none"
    }


def _blocks(parent: Element, out: _Text, hidden: set[str], depth: int) -> None:
    """Write the paragraphs, lists and tables below an element."""
    if depth > _MAX_DEPTH:
        raise RecursionError
    for element in parent:
        tag = _local(element)
        if tag in ("p", "h"):
            _paragraph(element, out, hidden)
        elif tag == "list":
            _list(element, out, hidden, depth)
        elif tag == "table":
            _table(element, out, hidden, depth)
        elif tag == "page":
            if out.length:
                out.add("\n")
            _blocks(element, out, hidden, depth + 1)
        elif tag == "notes":
            notes = _Text()
            _blocks(element, notes, hidden, depth + 1)
            words = "".join(notes.parts).strip()
            if words:
                out.add(f"[notes: {' '.join(words.split())}]\n")
        elif tag in ("image", "object", "object-ole", "plugin"):
            out.notice("drawing", "a picture or an embedded object is left out")
        elif tag not in _LEFT_OUT:
            _blocks(element, out, hidden, depth + 1)


def _paragraph(element: Element, out: _Text, hidden: set[str]) -> None:
    line = _Text()
    _inline(element, line, hidden, 0)
    out.notices += [Notice(one.kind, one.message, out.length) for one in line.notices]
    out.add("".join(line.parts) + "\n")


def _inline(element: Element, out: _Text, hidden: set[str], depth: int) -> None:
    """Write the text of a paragraph or a span."""
    if depth > _MAX_DEPTH:
        raise RecursionError
    if _value(element, "style-name") in hidden or _value(element, "display") == "none":
        words = " ".join("".join(element.itertext()).split())
        if words:
            out.notice("hidden-text", f"hidden text is left out: “{words[:60]}{'…' if len(words) > 60 else ''}”")
        return
    out.add(_squeezed(element.text, out))
    for one in element:
        tag = _local(one)
        if tag == "tab":
            out.add("\t")
        elif tag == "line-break":
            out.add("\n")
        elif tag == "s":
            out.add(" " * _number(one, "c", _MAX_REPEATS))
        elif tag == "note":
            body = next((part for part in one if _local(part) == "note-body"), None)
            words = "" if body is None else " ".join("".join(body.itertext()).split())
            out.add(f" [{words}]" if words else "")
        elif tag == "annotation":
            words = " ".join(
                " ".join("".join(part.itertext()).split()) for part in one if _local(part) in ("p", "list")
            )
            out.add(f" [comment: {words}]" if words else "")
        elif tag in ("frame", "custom-shape", "rect", "g"):
            inner = _Text()
            _blocks(one, inner, hidden, depth + 1)
            out.notices += [Notice(notice.kind, notice.message, out.length) for notice in inner.notices]
            out.add(" ".join("".join(inner.parts).split("\n")).strip())
        elif tag not in _LEFT_OUT and tag not in (
            "change",
            "change-start",
            "change-end",
            "bookmark",
            "soft-page-break",
        ):
            _inline(one, out, hidden, depth + 1)
        out.add(_squeezed(one.tail, out))


def _squeezed(text: str | None, out: _Text) -> str:
    """White space in the XML is one space, as in a web page; a space after a space is dropped."""
    if not text:
        return ""
    squeezed = " ".join(part for part in text.replace("\t", " ").replace("\n", " ").split(" ") if part)
    squeezed = (" " if text[0] in " \t\n" else "") + squeezed + (" " if text[-1] in " \t\n" and squeezed else "")
    ends_in_space = bool(out.parts) and out.parts[-1].endswith(" ")
    return squeezed.lstrip(" ") if ends_in_space else squeezed


def _list(element: Element, out: _Text, hidden: set[str], depth: int) -> None:
    for item in element:
        if _local(item) not in ("list-item", "list-header"):
            continue
        inner = _Text()
        _blocks(item, inner, hidden, depth + 1)
        text = "".join(inner.parts).rstrip("\n")
        out.notices += [Notice(one.kind, one.message, out.length) for one in inner.notices]
        out.add("- " + text.replace("\n", "\n  ") + "\n" if text else "")


def _table(table: Element, out: _Text, hidden: set[str], depth: int) -> None:
    """Write a table: one line for each row. Hidden rows and columns are not told apart from empty ones by their cells."""
    name = _value(table, "name")
    if _value(table, "display") == "false":
        out.notice("hidden-text", f"a hidden sheet is left out: “{name[:60]}”")
        return
    blank = 0
    for row in (one for one in table.iter() if _local(one) == "table-row"):
        if _value(row, "visibility") in ("collapse", "filter"):
            words = " ".join("".join(row.itertext()).split())
            if words:
                out.notice("hidden-text", f"a hidden row is left out: “{words[:60]}”")
            continue
        cells: list[str] = []
        for cell in row:
            if _local(cell) not in ("table-cell", "covered-table-cell"):
                continue
            inner = _Text()
            if _local(cell) == "table-cell":
                _blocks(cell, inner, hidden, depth + 1)
            text = " ".join("".join(inner.parts).replace("\t", " ").split("\n")).strip()
            cells += [text] * _number(cell, "number-columns-repeated", _MAX_REPEATS)
        while cells and not cells[-1]:
            cells.pop()
        if not cells:
            blank += 1
            continue
        out.add("\n" * min(blank, 1))
        blank = 0
        for _ in range(_number(row, "number-rows-repeated", _MAX_ROW_REPEATS)):
            out.add("\t".join(cells) + "\n")
