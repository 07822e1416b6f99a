"""What a report is made of, before it is Markdown, HTML or JSON: sections with tables, charts and cases.

Cells keep their numbers; how many digits are shown is the column's matter. Every table carries a note with the
conditions it was made under.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Cell = str | int | float | None


@dataclass(frozen=True)
class Column:
    name: str
    digits: int | None = None
    """Digits after the point; None for text and whole numbers."""
    signed: bool = False
    """Show a plus before what is above zero: for differences."""

    def show(self, cell: Cell) -> str:
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
    cells: Sequence[Cell]
    kind: str = ""
    """`total` for sums and means, `paper` for figures that are not ours."""


def columns(*specs: str) -> list[Column]:
    """Columns by "name", "name:2" for two digits after the point, "name:+2" for signed ones."""
    made = []
    for spec in specs:
        name, _, form = spec.rpartition(":")
        signed, digits = form.startswith("+"), form.lstrip("+")
        made.append(Column(name, int(digits), signed) if name and digits.isdigit() else Column(spec))
    return made


def row(*cells: Cell, kind: str = "") -> Row:
    return Row(cells, kind)


@dataclass(frozen=True)
class Table:
    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    note: str
    """Conditions: post-processing, prompts, versions, failures."""
    folded: bool = False
    """Shown closed at first: long tables."""
    shaded: bool = False
    """Number cells are shaded by their value: for tables read as a map."""


@dataclass(frozen=True)
class Bar:
    """One bar: its parts in order, each a value and the name of its series."""

    label: str
    parts: Sequence[tuple[float, str]]
    low: float | None = None
    high: float | None = None
    """Ends of an interval around the bar's end."""
    is_paper: bool = False


@dataclass(frozen=True)
class Chart:
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
    """Joined with the others that are, from left to right."""


@dataclass(frozen=True)
class Plot:
    """Points over two axes, drawn in HTML alone."""

    title: str
    x_name: str
    y_name: str
    dots: Sequence[Dot]


@dataclass(frozen=True)
class Picture:
    """A page shown with a case."""

    number: int
    png: bytes
    is_selected: bool
    is_gold: bool = False

    @property
    def caption(self) -> str:
        marks = ["selected"] * self.is_selected + ["gold"] * self.is_gold
        return " · ".join([f"page {self.number}", *marks])


@dataclass(frozen=True)
class Case:
    """One input for the gallery."""

    title: str
    fields: Sequence[tuple[str, str]]
    """Label and text, in order."""
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True)
class Section:
    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    plots: Sequence[Plot] = ()
    cases: Sequence[Case] = ()


@dataclass(frozen=True)
class Report:
    title: str
    summary: Sequence[str]
    sections: Sequence[Section]
    runs: Mapping[str, Any] = field(default_factory=dict)
    """Machine-readable scores of each run."""


# ── Markdown ─────────────────────────────────────────────────────────────────────────────────────


def to_markdown(report: Report) -> str:
    """Tables in GitHub's form. Charts and pictures are left to the HTML; their numbers stand in the tables."""
    lines = [f"# {_plain(report.title)}", ""]
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
    """One line in which a model's words can't become markup."""
    flat = " ".join(text.split())
    for sign in ("\\", "`", "*", "_", "|", "[", "]", "#"):
        flat = flat.replace(sign, f"\\{sign}")
    return html.escape(flat, quote=False)


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────


def to_json(report: Report) -> dict[str, Any]:
    """Every number of the report, unrounded."""
    return {
        "title": report.title,
        "summary": list(report.summary),
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
