"""A plot of points as SVG inside the page: no script, no library, colours from the page's own style."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from seer.web.tables import Dot, Plot

WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 56, 150, 12, 44
TICKS = 5


def plot_svg(plot: Plot) -> str:
    """A figure with axes, dots, the joined line and a key of series. Dots on the line are labelled, all have tooltips."""
    if not plot.dots:
        return ""
    xs, ys = _ticks([dot.x for dot in plot.dots]), _ticks([dot.y for dot in plot.dots])
    series = list(dict.fromkeys(dot.series for dot in plot.dots))

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + (x - xs[0]) / (xs[-1] - xs[0]) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - (y - ys[0]) / (ys[-1] - ys[0]) * (HEIGHT - TOP - BOTTOM),
        )

    parts = []
    for x in xs:
        across, _ = place(x, ys[0])
        parts.append(f'<line class="axis" x1="{across:.1f}" x2="{across:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text class="dim" x="{across:.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{x:g}</text>')
    for y in ys:
        _, up = place(xs[0], y)
        parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up:.1f}" y2="{up:.1f}"/>')
        parts.append(f'<text class="dim" x="{LEFT - 6}" y="{up + 4:.1f}" text-anchor="end">{y:g}</text>')
    joined = " ".join("{:.1f},{:.1f}".format(*place(dot.x, dot.y)) for dot in _line(plot.dots))
    parts.append(f'<polyline class="front" points="{joined}"/>')
    for dot in plot.dots:
        across, up = place(dot.x, dot.y)
        told = f"{dot.series} {dot.label}: {dot.x:,.1f}, {dot.y:,.2f}"
        parts.append(
            f'<circle cx="{across:.1f}" cy="{up:.1f}" r="{6 if dot.on_line else 4}" '
            f'style="fill:var(--s{series.index(dot.series) % 6})"><title>{escape(told)}</title></circle>'
        )
        if dot.on_line:
            parts.append(f'<text class="dim" x="{across + 8:.1f}" y="{up - 6:.1f}">{escape(dot.label)}</text>')
    for number, name in enumerate(series):
        up = TOP + 14 + 18 * number
        parts.append(f'<circle cx="{WIDTH - RIGHT + 18}" cy="{up - 4}" r="5" style="fill:var(--s{number % 6})"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 28}" y="{up}">{escape(name)}</text>')
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(plot.x_name)}</text>')
    parts.append(
        f'<text transform="translate(14 {TOP + (HEIGHT - TOP - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(plot.y_name)}</text>"
    )
    return (
        f"<figure><figcaption>{escape(plot.title)}</figcaption>"
        f'<svg class="plot" role="img" viewBox="0 0 {WIDTH} {HEIGHT}">{"".join(parts)}</svg></figure>'
    )


def _line(dots: Sequence[Dot]) -> list[Dot]:
    return sorted((dot for dot in dots if dot.on_line), key=lambda dot: (dot.x, dot.y))


def _ticks(values: Sequence[float]) -> list[float]:
    """Round numbers from below the least value to above the greatest, at least two."""
    low, high = min(values), max(values)
    rough = (high - low or abs(high) or 1.0) / TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 10) for number in range(first, max(last, first + 1) + 1)]
