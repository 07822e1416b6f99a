"""A report as one HTML file: no other file, no network, readable on a phone, in light and dark.

Everything that came from outside (names, questions, a model's words) is escaped. Tables sort by a click on a heading;
without JavaScript the page still shows everything.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from seer.web.plots import plot_svg
from seer.web.tables import Bar, Case, Cell, Chart, Column, Picture, Report, Row, Section, Table

_STYLE = """
:root{color-scheme:light dark;--ink:#1d2430;--dim:#5d6878;--page:#fbfaf7;--card:#fff;--line:#e1ddd3;--accent:#2f6f8f;
--s0:#2f6f8f;--s1:#d08a3c;--s2:#7a9a5b;--s3:#8d6aa5;--s4:#b4534f;--s5:#8b8f98;--good:47 143 103;--bad:192 86 70}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ec;--dim:#9aa5b4;--page:#14181e;--card:#1b2129;--line:#303946;
--accent:#7db8d4;--s0:#5ba3c4;--s1:#dfa05a;--s2:#98ba78;--s3:#b08fc9;--s4:#d47a74;--s5:#8b93a0}}
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);
font:16px/1.55 system-ui,"Segoe UI","Noto Sans","Noto Sans CJK SC",sans-serif}
main{max-width:1080px;margin:0 auto;padding:24px 16px 64px}h1{font-size:1.7rem;line-height:1.2;margin:.4em 0}
h2{font-size:1.25rem;margin:2.2em 0 .5em;padding-top:.6em;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:1.4em 0 .4em}p{max-width:72ch}nav{display:flex;flex-wrap:wrap;gap:4px 14px;font-size:.9rem}
a{color:var(--accent)}.note{color:var(--dim);font-size:.8rem;max-width:none;margin:.4em 0 0;overflow-wrap:anywhere}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;width:100%;font-size:.88rem}th,td{padding:5px 10px;text-align:left;white-space:nowrap}
th{position:sticky;top:0;background:var(--card);border-bottom:2px solid var(--line)}
th button{all:unset;cursor:pointer;font-weight:600}th button:focus-visible{outline:2px solid var(--accent)}
th[aria-sort=ascending] button::after{content:" \\2191"}th[aria-sort=descending] button::after{content:" \\2193"}
td{border-bottom:1px solid var(--line)}tr:last-child td{border-bottom:0}
.n{text-align:right;font-variant-numeric:tabular-nums}tr.total td{font-weight:650}
tr.paper td{color:var(--dim);font-style:italic}details{margin:1em 0}summary{cursor:pointer;font-weight:600}
td:first-child,th:first-child{position:sticky;left:0;background:var(--card);z-index:1}
.bars{display:grid;grid-template-columns:minmax(5.5em,max-content) 1fr max-content;gap:7px 10px;align-items:center;
font-size:.85rem}.bars .label{max-width:15em;text-align:right;overflow-wrap:anywhere;line-height:1.2}
.label.paper{font-style:italic;color:var(--dim)}.track{position:relative;display:flex;height:20px}
.track i{background:var(--c);border-radius:2px}.track.paper i{background:none;border:1px dashed var(--c)}
.track b{position:absolute;top:5px;height:10px;border:solid var(--ink);border-width:0 1px;
background:linear-gradient(var(--ink),var(--ink)) center/100% 1px no-repeat}
@media(max-width:560px){.bars .label{max-width:8.5em}td,th{padding:5px 7px}
  td:first-child,th:first-child{white-space:normal;min-width:6em}}
figure{margin:1em 0;background:var(--card);border:1px solid var(--line);
border-radius:8px;padding:12px}figcaption{font-weight:600;margin-bottom:6px}.key{display:flex;flex-wrap:wrap;gap:2px 14px;
font-size:.8rem;color:var(--dim)}.key i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.4em}
.cases{display:grid;gap:12px;grid-template-columns:repeat(auto-fill,minmax(min(100%,320px),1fr))}
.case{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px;font-size:.88rem;min-width:0}
.case h4{margin:0 0 .5em;font-size:.9rem;overflow-wrap:anywhere}.case dt{color:var(--dim);font-size:.78rem}
.case dd{margin:0 0 .6em;white-space:pre-wrap;overflow-wrap:anywhere;max-height:11em;overflow-y:auto}
.pages{display:grid;gap:6px;grid-template-columns:repeat(auto-fill,minmax(84px,1fr));margin-bottom:.6em}
.pages figure{margin:0;padding:4px;background:none}.pages img{width:100%;display:block;background:#fff}
.pages figcaption{font-weight:400;font-size:.7rem;margin:2px 0 0;color:var(--dim)}
.pages .selected{outline:3px solid var(--accent)}.pages .missed{outline:2px dashed rgb(var(--bad))}
svg.plot{width:100%;height:auto;font-size:11px;fill:var(--ink)}.plot .axis{stroke:var(--line)}.plot .dim{fill:var(--dim)}
.plot .front{fill:none;stroke:var(--ink);stroke-dasharray:4 3}.plot circle{stroke:var(--card)}
@media print{details>*{display:block}}
"""

_SCRIPT = """
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
    """The whole page."""
    links = "".join(
        f'<a href="#s{number}">{escape(section.title)}</a>' for number, section in enumerate(report.sections)
    )
    points = "".join(f"<li>{escape(point)}</li>" for point in report.summary)
    body = "".join(_section(number, section) for number, section in enumerate(report.sections))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(report.title)}</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>{escape(report.title)}</h1><ul>{points}</ul><nav>{links}</nav>{body}"
        f"</main><script>{_SCRIPT}</script></body></html>\n"
    )


def _section(number: int, section: Section) -> str:
    parts = [f'<h2 id="s{number}">{escape(section.title)}</h2>']
    if section.text:
        parts.append(f"<p>{escape(section.text)}</p>")
    parts += [_chart(chart) for chart in section.charts]
    parts += [plot_svg(plot) for plot in section.plots]
    parts += [_table(table) for table in section.tables]
    if section.cases:
        parts.append(f'<div class="cases">{"".join(map(_case, section.cases))}</div>')
    return "".join(parts)


# ── Tables ───────────────────────────────────────────────────────────────────────────────────────


def _table(table: Table) -> str:
    numeric = [_holds_numbers(table.rows, index) for index in range(len(table.columns))]
    heads = "".join(
        f'<th scope="col"{_number_class(is_number)}><button type="button">{escape(column.name)}</button></th>'
        for column, is_number in zip(table.columns, numeric, strict=True)
    )
    most = _largest(table) if table.shaded else 0.0
    rows = "".join(_row(row, table.columns, numeric, most) for row in table.rows)
    inner = (
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
        f'<p class="note">{escape(table.note)}</p>'
    )
    if table.folded:
        return f"<details><summary>{escape(table.title)}</summary>{inner}</details>"
    return f"<h3>{escape(table.title)}</h3>{inner}"


def _row(row: Row, columns: Sequence[Column], numeric: Sequence[bool], most: float) -> str:
    cells = "".join(
        f'<td{_number_class(is_number)} data-v="{_sort_key(cell)}"{_shade(cell, column, most)}>'
        f"{escape(column.show(cell))}</td>"
        for column, cell, is_number in zip(columns, row.cells, numeric, strict=True)
    )
    return f'<tr class="{escape(row.kind)}">{cells}</tr>'


def _holds_numbers(rows: Sequence[Row], index: int) -> bool:
    cells = [row.cells[index] for row in rows]
    return any(isinstance(cell, int | float) for cell in cells) and not any(
        isinstance(cell, str) and cell for cell in cells
    )


def _number_class(is_number: bool) -> str:
    return ' class="n"' if is_number else ""


def _sort_key(cell: Cell) -> str:
    return "" if cell is None else escape(str(cell))


def _largest(table: Table) -> float:
    values = [
        abs(cell)
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
        if column.is_number and isinstance(cell, int | float)
    ]
    return max(values, default=0.0)


def _shade(cell: Cell, column: Column, most: float) -> str:
    """Green above zero, red below, the stronger the farther from it."""
    if not most or not column.is_number or not isinstance(cell, int | float):
        return ""
    colour = "--good" if cell > 0 else "--bad"
    return f' style="background:rgb(var({colour})/{0.55 * abs(cell) / most:.2f})"'


# ── Charts ───────────────────────────────────────────────────────────────────────────────────────


def _chart(chart: Chart) -> str:
    """Horizontal bars made of boxes: labels stay readable on a phone, and any number of runs fits."""
    series = list(dict.fromkeys(name for bar in chart.bars for _, name in bar.parts))
    most = max((max(_total(bar), bar.high or 0.0) for bar in chart.bars), default=0.0)
    bars = "".join(_bar(bar, most, series, chart) for bar in chart.bars)
    key = "".join(
        f'<span><i style="background:var(--s{index % 6})"></i>{escape(name)}</span>'
        for index, name in enumerate(series)
        if name
    )
    return (
        f"<figure><figcaption>{escape(chart.title)}</figcaption>"
        f'<div class="bars">{bars}</div><div class="key">{key}</div></figure>'
    )


def _total(bar: Bar) -> float:
    return sum(value for value, _ in bar.parts)


def _bar(bar: Bar, most: float, series: Sequence[str], chart: Chart) -> str:
    def percent(value: float) -> str:
        return f"{100 * value / most if most > 0 else 0:.2f}%"

    parts = "".join(
        f'<i style="width:{percent(value)};--c:var(--s{series.index(name) % 6})" '
        f'title="{escape(name)} {value:,.{chart.digits}f} {escape(chart.unit)}"></i>'
        for value, name in bar.parts
        if value > 0
    )
    if bar.low is not None and bar.high is not None:
        parts += f'<b style="left:{percent(bar.low)};width:{percent(bar.high - bar.low)}"></b>'
    kind = " paper" if bar.is_paper else ""
    return (
        f'<span class="label{kind}">{escape(bar.label)}</span><span class="track{kind}">{parts}</span>'
        f'<span class="n">{_total(bar):,.{chart.digits}f}</span>'
    )


def _case(case: Case) -> str:
    fields = "".join(f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" for label, text in case.fields)
    pages = f'<div class="pages">{"".join(map(_picture, case.pictures))}</div>' if case.pictures else ""
    return f'<article class="case"><h4>{escape(case.title)}</h4>{pages}<dl>{fields}</dl></article>'


def _picture(picture: Picture) -> str:
    """A page; a frame marks what was selected, a dashed one what should have been and was not."""
    kind = "selected" if picture.is_selected else "missed" if picture.is_gold else ""
    data = base64.b64encode(picture.png).decode()
    return (
        f'<figure class="{kind}"><img alt="page {picture.number}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )
