"""Read Excel workbooks and CSV files as tables: one line per row, a tab between cells."""

from __future__ import annotations

import csv
import io
import zipfile
from typing import Any

from seer.errors import InputError
from seer.rendering.formats.extra.archive import check_archive, missing_library
from seer.rendering.formats.extra.numbers import shown
from seer.rendering.formats.extract import Extract, Notice, cause_of
from seer.rendering.formats.text import decode_noticed

_MAX_CELLS = 2_000_000
_MAX_COLUMNS = 500
_MAX_FIELD_CHARS = 10_000_000


def read_xlsx(data: bytes, name: str, encoding: str | None) -> Extract:
    """Return the cells of a workbook as they are shown, sheet by sheet.

    Hidden sheets, rows and columns are left out with a notice. A formula is its last value; one without a value is shown itself.

    Raises InputError if the file is damaged, encrypted or too large, or if the library is missing.
    """
    try:
        import openpyxl
    except ImportError:
        raise missing_library("openpyxl", name, "an Excel workbook") from None
    parts: list[str] = []
    notices: list[Notice] = []
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            check_archive(archive, name)
        values = openpyxl.load_workbook(io.BytesIO(data), data_only=True)
        formulas = openpyxl.load_workbook(io.BytesIO(data))
        for sheet in values.worksheets:
            start = sum(map(len, parts))
            if sheet.sheet_state != "visible":
                notices.append(Notice("hidden-text", f"the hidden sheet “{sheet.title[:60]}” is left out", start))
                continue
            lines, found = _sheet(sheet, formulas[sheet.title], name)
            notices += [Notice(kind, f"sheet “{sheet.title[:60]}”: {message}", start) for kind, message in found]
            if lines:
                parts.append("\n".join((f"Sheet: {sheet.title}", *lines)) + "\n\n")
    except InputError:
        raise
    except Exception as error:  # the library raises errors of its XML parser, zipfile and its own for damaged files
        cause = f"{type(error).__name__}: {cause_of(error)}"
        raise InputError(f"'{name}' is a damaged workbook ({cause}); open it and save it again") from None
    text = "".join(parts).rstrip("\n")
    return Extract(text + "\n" if text else "", tuple(notices))


def _sheet(sheet: Any, formulas: Any, name: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the rows of a sheet, and (kind, message) of what they leave out."""
    # Only the cells that exist: a sheet may declare a million empty rows.
    cells = sheet._cells
    if len(cells) > _MAX_CELLS:
        raise InputError(f"'{name}' has a sheet of more than {_MAX_CELLS:,} cells, the limit; split it")
    hidden_rows = {row for row, dimension in sheet.row_dimensions.items() if dimension.hidden}
    hidden_columns = {
        column
        for dimension in sheet.column_dimensions.values()
        if dimension.hidden
        for column in range(dimension.min or 0, min(dimension.max or 0, 20_000) + 1)
    }
    found: list[tuple[str, str]] = []
    rows: dict[int, dict[int, str]] = {}
    lost, missing = [], 0
    for (row, column), cell in cells.items():
        value = shown(cell.value, cell.number_format)
        if not value:
            formula = formulas._cells.get((row, column))
            if formula is not None and formula.data_type == "f":
                value = str(getattr(formula.value, "text", formula.value))
                missing += 1
        if not value:
            continue
        if row in hidden_rows or column in hidden_columns:
            lost.append(value)
        elif column <= _MAX_COLUMNS:
            note = f" [comment: {' '.join(cell.comment.text.split())}]" if cell.comment is not None else ""
            rows.setdefault(row, {})[column] = " ".join(value.replace("\t", " ").split("\n")) + note
        else:
            found.append(("table", f"columns beyond {_MAX_COLUMNS} are left out"))
    if lost:
        quote = ", ".join(lost[:5])
        found.append(("hidden-text", f"{len(lost):,} cells of hidden rows or columns are left out: “{quote[:60]}”"))
    if missing:
        found.append(("formula", f"{missing:,} formulas have no stored value and are shown themselves"))
    drawings = len(getattr(sheet, "_charts", ())) + len(getattr(sheet, "_images", ()))
    if drawings:
        found.append(
            (
                "drawing",
                f"{drawings:,} chart{'s' if drawings > 1 else ''} or picture{'s' if drawings > 1 else ''} left out",
            )
        )
    columns = sorted({column for row in rows.values() for column in row})
    visible = [column for column in range(1, (columns[-1] if columns else 0) + 1) if column not in hidden_columns]
    first = columns[0] if columns else 1
    lines = []
    for row in sorted(rows):
        line = [rows[row].get(column, "") for column in visible if column >= first]
        lines.append("\t".join(line).rstrip("\t"))
    return lines, list(dict.fromkeys(found))


def read_csv(data: bytes, name: str, encoding: str | None) -> Extract:
    """Return the rows of a CSV file with a tab between fields, whatever separates them in the file.

    Raises InputError if the file cannot be decoded.
    """
    text, notices = decode_noticed(data, name, encoding)
    text = text.removeprefix("\ufeff")
    csv.field_size_limit(_MAX_FIELD_CHARS)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text)))
    except csv.Error:
        return Extract(text, notices)
    lines = ["\t".join(" ".join(field.replace("\t", " ").splitlines()) for field in row) for row in rows]
    return Extract("\n".join(lines).rstrip("\n") + "\n" if any(lines) else "", notices)


def _delimiter(text: str) -> str:
    """Return the separator that gives the first lines the same number of fields, more than one; a comma if none does."""
    sample = text[:65536]
    lines = sample.splitlines()[:50]
    best, most = ",", 1
    for delimiter in (",", ";", "\t", "|"):
        counts = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
        if counts and min(counts) == max(counts) > most:
            best, most = delimiter, counts[0]
    if most == 1 and text.split("\n", 1)[0].count("\t") > text.split("\n", 1)[0].count(","):
        return "\t"
    return best
