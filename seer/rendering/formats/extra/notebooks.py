"""Read Jupyter notebooks: the cells with their text outputs."""

from __future__ import annotations

import json
from typing import Any

from seer.errors import InputError
from seer.rendering.formats.embedded import replace_embedded
from seer.rendering.formats.extract import Extract, Notice
from seer.rendering.formats.markup.html import html_text
from seer.rendering.formats.text import decode_noticed


def read_notebook(data: bytes, name: str, encoding: str | None) -> Extract:
    """Return the cells of a notebook: Markdown as it is, code after `In [3]:`, its outputs after `Out [3]:`.

    Pictures become a notice. Raises InputError if the file is not a notebook.
    """
    text, decoded = decode_noticed(data, name, encoding)
    try:
        book = json.loads(text.removeprefix("\ufeff"))
        cells = book["cells"] if "cells" in book else [cell for sheet in book["worksheets"] for cell in sheet["cells"]]
        parts: list[str] = []
        notices: list[Notice] = list(decoded)
        for cell in cells:
            _cell(cell, parts, notices)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"'{name}' is a damaged notebook; open it in Jupyter and save it again") from None
    extract = replace_embedded("".join(parts))
    kept = notices if not extract.notices else [Notice(one.kind, one.message) for one in notices]
    return Extract(extract.text, (*kept, *extract.notices))


def _cell(cell: dict[str, Any], parts: list[str], notices: list[Notice]) -> None:
    source = _joined(cell.get("source", cell.get("input", "")))
    if cell.get("cell_type") != "code":
        _add(parts, "", source)
        return
    number = cell.get("execution_count", cell.get("prompt_number"))
    shown = number if isinstance(number, int) else " "
    _add(parts, f"In [{shown}]:\n", source)
    for output in cell.get("outputs", ()):
        _output(output, f"Out [{shown}]:\n", parts, notices)


def _output(output: dict[str, Any], head: str, parts: list[str], notices: list[Notice]) -> None:
    kind = output.get("output_type")
    if kind in ("stream", "pyout") and "text" in output:
        _add(parts, head, _joined(output["text"]))
    elif kind in ("error", "pyerr"):
        _add(parts, head, f"{output.get('ename', '')}: {output.get('evalue', '')}")
    else:
        values = output.get("data", output)
        if "text/plain" in values and not any(key.startswith("image/") for key in values):
            _add(parts, head, _joined(values["text/plain"]))
        elif "text/html" in values:
            _add(parts, head, html_text(_joined(values["text/html"])))
        pictures = [key for key in values if key.startswith("image/")]
        if pictures:
            notices.append(Notice("drawing", f"a picture ({pictures[0][:40]}) is left out", sum(map(len, parts))))


def _add(parts: list[str], head: str, text: str) -> None:
    if text.strip():
        parts.append(f"{head}{text.rstrip()}\n\n")


def _joined(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "".join(value)
