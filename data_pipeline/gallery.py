"""A gallery of trajectories: one HTML file with pages, selection, and every piece of the conversation in its loss class.

Everything that comes from a set is escaped; the file forbids scripts and anything from outside itself.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from html import escape

from data_pipeline.collect import draw_pages
from seer.protocol.turns import layout
from seer.schema import LossClass, Trajectory

MAX_PAGES_SHOWN = 12

_COLOURS = {
    LossClass.PROMPT: "#eceff1",
    LossClass.CALL: "#ffe0b2",
    LossClass.STRUCTURE: "#ffccbc",
    LossClass.OBSERVATION: "#e3f2fd",
    LossClass.THINK: "#dcedc8",
    LossClass.ANSWER: "#c8e6c9",
    LossClass.STOP: "#f8bbd0",
}
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}"
    "article{border-top:1px solid #ccc;padding:1rem 0}h2{font-size:1rem;overflow-wrap:anywhere}"
    ".pages{display:flex;gap:.6rem;overflow-x:auto;padding:.4rem 0}figure{margin:0}"
    "figure img{height:260px;border:1px solid #bbb;display:block}figure.chosen img{outline:4px solid #fb8c00}"
    "figcaption{font-size:.8rem}.said{white-space:pre-wrap;overflow-wrap:anywhere;max-height:28rem;overflow-y:auto}"
    ".said span,.legend span{padding:.05rem .15rem;border-radius:.2rem}dl{font-size:.85rem;columns:2}dt{float:left;"
    "clear:left;margin-right:.4rem;color:#666}dd{margin:0;overflow-wrap:anywhere}"
    "@media (prefers-color-scheme:dark){body{background:#181818;color:#ddd}.said span,.legend span{color:#111}}"
)


def gallery_html(name: str, trajectories: Iterable[Trajectory], total: int) -> str:
    """The whole page. `name` and `total` describe the set that the trajectories were taken from."""
    articles = [article for trajectory in trajectories for article in _article(trajectory)]
    legend = " ".join(f'<span style="background:{colour}">{label.value}</span>' for label, colour in _COLOURS.items())
    shown = sum(line.startswith("<article") for line in articles)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            f"<title>{escape(name)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(name)}</h1>",
            f"<p>{shown:,} of {total:,} trajectories. Chosen pages are framed.</p>",
            f'<p class="legend">Loss classes: {legend}</p>',
            *articles,
            "</body></html>",
            "",
        ]
    )


def _article(trajectory: Trajectory) -> Iterator[str]:
    chosen = {page for turn in trajectory.turns if turn.kind == "call" for page in turn.pages}
    yield f"<article><h2>{escape(trajectory.id)}</h2>"
    yield "<dl>"
    facts = {
        "question": trajectory.question,
        "answers": " / ".join(trajectory.answers),
        "relevant pages": ", ".join(map(str, trajectory.relevant_pages)) or "none",
        **trajectory.provenance,
    }
    for term, value in facts.items():
        yield f"<dt>{escape(term)}</dt><dd>{escape(value)}</dd>"
    yield "</dl>"
    yield '<div class="pages">'
    pages = draw_pages(trajectory)
    for number, png in enumerate(pages[:MAX_PAGES_SHOWN], 1):
        mark = ' class="chosen"' if number in chosen else ""
        data = base64.b64encode(png).decode()
        image = f'<img alt="page {number}" src="data:image/png;base64,{data}">'
        yield f"<figure{mark}>{image}<figcaption>{number}</figcaption></figure>"
    yield "</div>"
    if len(pages) > MAX_PAGES_SHOWN:
        yield f"<p>{len(pages) - MAX_PAGES_SHOWN} more pages are not shown.</p>"
    yield f'<div class="said">{_said(trajectory)}</div></article>'


def _said(trajectory: Trajectory) -> str:
    """Every piece of the conversation on the colour of its loss class; images as their markers."""
    return "".join(
        f'<span style="background:{_COLOURS[piece.loss_class]}">{escape(piece.value)}</span>'
        for piece in layout(trajectory.turns)
    )
