"""An evaluation report as one HTML file that makes no request and adapts to phones and dark mode.

Everything that came from outside (names, questions, model output) is escaped by the element builder. Tables sort by a
click on a heading; without JavaScript the page still shows everything.
"""

from __future__ import annotations

from collections.abc import Sequence

from seer.web import components
from seer.web.components import fold, note_line, thumbnail, thumbnails
from seer.web.html import Html, element, fragment, render_page
from seer.web.plots import NUM_SERIES_COLOURS, plot_svg
from seer.web.tables import Bar, Case, Cell, Chart, Column, Picture, Report, Row, Section, Table

STRONGEST_SHADE = 0.55
"""Opacity behind the largest value of a shaded table, so that its text stays readable."""

_SORT_SCRIPT = """
document.querySelectorAll("table").forEach(table=>{table.querySelectorAll("th").forEach((head,column)=>{
head.querySelector("button").addEventListener("click",()=>{
const up=head.getAttribute("aria-sort")==="ascending"?-1:1,body=table.tBodies[0];
table.querySelectorAll("th").forEach(other=>other.removeAttribute("aria-sort"));
head.setAttribute("aria-sort",up===1?"ascending":"descending");
const key=row=>row.cells[column].dataset.v;
[...body.rows].sort((a,b)=>{const x=key(a),y=key(b),p=Number(x),q=Number(y);
if(x===""||y==="")return (x==="")-(y==="");
return up*(Number.isNaN(p)||Number.isNaN(q)?x.localeCompare(y):p-q)}).forEach(row=>body.append(row))})})});
"""


def to_html(report: Report) -> str:
    """Render a report as a complete page. The script that sorts tables is included only if there is a table."""
    summary = element("ul", [element("li", point) for point in report.summary]) if report.summary else None
    sections = [_section(number, section) for number, section in enumerate(report.sections)]
    has_table = any(section.tables for section in report.sections)
    warnings = [components.callout(element("b", "Warning: "), text, tone="bad") for text in report.warnings]
    return render_page(
        report.title,
        warnings,
        summary,
        sections,
        links=[(f"s{number}", section.title) for number, section in enumerate(report.sections)],
        script=_SORT_SCRIPT if has_table else "",
    )


def _section(number: int, section: Section) -> Html:
    return fragment(
        element("h2", section.title, id=f"s{number}"),
        element("p", section.text) if section.text else None,
        map(_chart, section.charts),
        map(plot_svg, section.plots),
        map(_table, section.tables),
        element("div", map(_case, section.cases), class_="cases") if section.cases else None,
    )


# ── Tables ───────────────────────────────────────────────────────────────────────────────────────


def _table(table: Table) -> Html:
    numeric = [_holds_numbers(table.rows, index) for index in range(len(table.columns))]
    heads = [
        element("th", element("button", column.name, type="button"), scope="col", class_="n" if is_number else "")
        for column, is_number in zip(table.columns, numeric, strict=True)
    ]
    largest = _largest(table) if table.shaded else 0.0
    rows = [_row(row, table.columns, numeric, largest) for row in table.rows]
    inner = fragment(components.table(heads, rows), note_line(table.note))
    return fold(table.title, inner) if table.folded else fragment(element("h3", table.title), inner)


def _row(row: Row, columns: Sequence[Column], numeric: Sequence[bool], largest: float) -> Html:
    cells = [
        element(
            "td",
            column.show(cell),
            class_="n" if is_number else "",
            # The script sorts by the unrounded value, and puts empty cells last.
            data_v="" if cell is None else str(cell),
            style=_shade(cell, column, largest),
        )
        for column, cell, is_number in zip(columns, row.cells, numeric, strict=True)
    ]
    return element("tr", cells, class_=row.kind)


def _holds_numbers(rows: Sequence[Row], index: int) -> bool:
    """Whether a column has numbers and no text, so that it is aligned to the right."""
    cells = [row.cells[index] for row in rows]
    return any(isinstance(cell, int | float) for cell in cells) and not any(
        isinstance(cell, str) and cell for cell in cells
    )


def _largest(table: Table) -> float:
    values = [
        abs(cell)
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
        if column.is_number and isinstance(cell, int | float)
    ]
    return max(values, default=0.0)


def _shade(cell: Cell, column: Column, largest: float) -> str | None:
    """A green background for positive and a red one for negative values, stronger with the distance from zero."""
    if not largest or not column.is_number or not isinstance(cell, int | float):
        return None
    colour = "--good" if cell > 0 else "--bad"
    return f"background:rgb(var({colour})/{STRONGEST_SHADE * abs(cell) / largest:.2f})"


# ── Charts ───────────────────────────────────────────────────────────────────────────────────────


def _chart(chart: Chart) -> Html:
    """Horizontal bars made of boxes: labels stay readable on a phone, and any number of runs fits."""
    # A dictionary keeps the order of first appearance, which decides the colours.
    series = list(dict.fromkeys(name for bar in chart.bars for _, name in bar.parts))
    largest = max((max(_total(bar), bar.high or 0.0) for bar in chart.bars), default=0.0)
    key = [
        element("span", element("i", style=f"background:var(--s{index % NUM_SERIES_COLOURS})"), name)
        for index, name in enumerate(series)
        if name
    ]
    return element(
        "figure",
        element("figcaption", chart.title),
        element("div", [_bar(bar, largest, series, chart) for bar in chart.bars], class_="bars"),
        element("div", key, class_="key") if key else None,
    )


def _total(bar: Bar) -> float:
    return sum(value for value, _ in bar.parts)


def _bar(bar: Bar, largest: float, series: Sequence[str], chart: Chart) -> Html:
    def percent(value: float) -> str:
        return f"{100 * value / largest if largest > 0 else 0:.2f}%"

    parts = [
        element(
            "i",
            style=f"width:{percent(value)};--c:var(--s{series.index(name) % NUM_SERIES_COLOURS})",
            title=f"{name} {value:,.{chart.digits}f} {chart.unit}".strip(),
        )
        for value, name in bar.parts
        if value > 0
    ]
    if bar.low is not None and bar.high is not None:
        parts.append(element("b", style=f"left:{percent(bar.low)};width:{percent(bar.high - bar.low)}"))
    origin = " paper" if bar.is_paper else ""
    return fragment(
        element("span", bar.label, class_=f"label{origin}"),
        element("span", parts, class_=f"track{origin}"),
        element("span", f"{_total(bar):,.{chart.digits}f}", class_="n"),
    )


# ── Cases ────────────────────────────────────────────────────────────────────────────────────────


def _case(case: Case) -> Html:
    fields = [fragment(element("dt", label), element("dd", text, dir="auto")) for label, text in case.fields]
    return element(
        "article",
        element("h4", case.title),
        thumbnails(map(_picture, case.pictures), is_small=True) if case.pictures else None,
        element("dl", fields),
        class_="case",
    )


def _picture(picture: Picture) -> Html:
    is_missed = picture.is_gold and not picture.is_selected
    return thumbnail(picture.number, picture.png, picture.caption, is_selected=picture.is_selected, is_missed=is_missed)
