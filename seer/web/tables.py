"""The content of a report, independent of its format: sections with tables, charts and cases.

Cells hold unrounded numbers; the column decides how many digits are displayed. Every table carries a note with the
conditions under which its figures were measured.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Cell = str | int | float | None


@dataclass(frozen=True)
class Column:
    """A heading and how the cells below it are displayed."""

    name: str
    digits: int | None = None
    """Digits after the point; None for text and whole numbers."""
    signed: bool = False
    """Show a plus sign before positive numbers: for differences."""

    def show(self, cell: Cell) -> str:
        """The cell as displayed text: numbers with the column's digits and thousands separators, None as a dash."""
        if cell is None:
            return "–"
        if isinstance(cell, str | bool):
            return str(cell)
        if self.digits is None:
            return f"{cell:,}"
        return f"{cell:{'+' if self.signed else ''},.{self.digits}f}"

    @property
    def is_number(self) -> bool:
        return self.digits is not None


@dataclass(frozen=True)
class Row:
    """Cells in the order of the table's columns."""

    cells: Sequence[Cell]
    kind: str = ""
    """`total` for sums and means, `paper` for figures taken from a publication."""


def columns(*specs: str) -> list[Column]:
    """Columns from short specifications: "name", "name:2" (two digits after the point), "name:+2" (signed as well)."""
    made = []
    for spec in specs:
        name, _, form = spec.rpartition(":")
        signed, digits = form.startswith("+"), form.lstrip("+")
        made.append(Column(name, int(digits), signed) if name and digits.isdigit() else Column(spec))
    return made


def row(*cells: Cell, kind: str = "") -> Row:
    """A table row from its cells in order; `kind` as in `Row`."""
    return Row(cells, kind)


@dataclass(frozen=True)
class Table:
    """Rows under columns, with a title and a note."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    note: str
    """Conditions: post-processing, prompts, versions, failures."""
    folded: bool = False
    """Start collapsed in HTML: for long tables."""
    shaded: bool = False
    """Shade number cells by their value: for tables that are read as a heat map."""


@dataclass(frozen=True)
class Bar:
    """One bar of a chart. `parts` holds a value and a series name for each segment, in order."""

    label: str
    parts: Sequence[tuple[float, str]]
    low: float | None = None
    high: float | None = None
    """Bounds of the interval drawn around the end of the bar."""
    is_paper: bool = False


@dataclass(frozen=True)
class Chart:
    """Horizontal bars with a shared scale."""

    title: str
    bars: Sequence[Bar]
    unit: str
    digits: int = 1


@dataclass(frozen=True)
class Dot:
    """A point of a plot."""

    x: float
    y: float
    label: str
    series: str = ""
    on_line: bool = False
    """Connect this dot to the others on the line, from left to right."""


@dataclass(frozen=True)
class Plot:
    """Points over two axes. Only the HTML report draws plots."""

    title: str
    x_name: str
    y_name: str
    dots: Sequence[Dot]


@dataclass(frozen=True)
class Picture:
    """A page image shown with a case."""

    number: int
    png: bytes
    is_selected: bool
    is_gold: bool = False

    @property
    def caption(self) -> str:
        """The page number, followed by whether the page was selected and whether it holds the evidence."""
        marks = ["selected"] * self.is_selected + ["gold"] * self.is_gold
        return " · ".join([f"page {self.number}", *marks])


@dataclass(frozen=True)
class Case:
    """One input, shown in detail."""

    title: str
    fields: Sequence[tuple[str, str]]
    """Labels with their texts, in order of display."""
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True)
class Section:
    """A heading with text, charts, plots, tables and cases below it, in that order."""

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    plots: Sequence[Plot] = ()
    cases: Sequence[Case] = ()


@dataclass(frozen=True)
class Report:
    """A title, a list of summary points, and sections."""

    title: str
    summary: Sequence[str]
    sections: Sequence[Section]
    runs: Mapping[str, Any] = field(default_factory=dict)
    """Machine-readable scores by run name; only the JSON report contains them."""
    warnings: Sequence[str] = ()
    """What makes figures of this report unreliable; shown first, in red in HTML."""


# ── Markdown ─────────────────────────────────────────────────────────────────────────────────────


def to_markdown(report: Report) -> str:
    """Render a report as GitHub Markdown. Charts, plots and pictures appear only in HTML; their numbers are in the tables."""
    lines = [f"# {_plain(report.title)}", ""]
    lines += [f"> **Warning:** {_plain(warning)}\n" for warning in report.warnings]
    lines += [f"- {_plain(point)}" for point in report.summary]
    for section in report.sections:
        lines += ["", f"## {_plain(section.title)}"]
        if section.text:
            lines += ["", _plain(section.text)]
        for table in section.tables:
            lines += ["", f"### {_plain(table.title)}", "", *_markdown_table(table), "", f"*{_plain(table.note)}*"]
        for case in section.cases:
            lines += ["", f"**{_plain(case.title)}**", ""]
            lines += [f"- {_plain(label)}: {_plain(text)}" for label, text in case.fields]
            if case.pictures:
                lines.append(f"- pages: {_plain('; '.join(picture.caption for picture in case.pictures))}")
    return "\n".join(lines) + "\n"


def _markdown_table(table: Table) -> list[str]:
    lines = ["| " + " | ".join(_plain(column.name) for column in table.columns) + " |"]
    lines.append("|" + "|".join("---:" if column.is_number else "---" for column in table.columns) + "|")
    for row in table.rows:
        shown = [_plain(column.show(cell)) for column, cell in zip(table.columns, row.cells, strict=True)]
        if row.kind == "total":
            shown = [f"**{cell}**" if cell else "" for cell in shown]
        elif row.kind == "paper":
            shown = [f"_{cell}_" if cell else "" for cell in shown]
        lines.append("| " + " | ".join(shown) + " |")
    return lines


def _plain(text: str) -> str:
    """Put text on one line and escape it, so that it cannot form Markdown or HTML markup."""
    flat = " ".join(text.split())
    for sign in ("\\", "`", "*", "_", "|", "[", "]", "#"):
        flat = flat.replace(sign, f"\\{sign}")
    return html.escape(flat, quote=False)


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────


def to_json(report: Report) -> dict[str, Any]:
    """Convert a report to a JSON-serializable dictionary with every number unrounded."""
    return {
        "title": report.title,
        "summary": list(report.summary),
        "warnings": list(report.warnings),
        "runs": dict(report.runs),
        "tables": [
            {
                "section": section.title,
                "title": table.title,
                "columns": [column.name for column in table.columns],
                "rows": [list(row.cells) for row in table.rows],
                "from_papers": [index for index, row in enumerate(table.rows) if row.kind == "paper"],
                "conditions": table.note,
            }
            for section in report.sections
            for table in section.tables
        ],
    }
