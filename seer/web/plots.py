"""A plot of points as inline SVG: no script, no library, colours from the page's stylesheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from seer.web.html import Html, element, fragment
from seer.web.tables import Dot, Plot

WIDTH, HEIGHT = 720, 380
"""Size of the drawing in SVG units."""
LEFT, RIGHT, TOP, BOTTOM = 56, 150, 12, 44
"""Margins around the axes: tick values on the left and at the bottom, the key of series on the right."""
TICKS = 5
"""Intended number of intervals per axis."""
NUM_SERIES_COLOURS = 6
"""Colours --s0 to --s5 of the stylesheet."""


def plot_svg(plot: Plot) -> Html:
    """Draw a figure with axes, dots, the connecting line and a key of series; empty if the plot has no dots.

    Every dot has a tooltip; the dots on the line are also labelled.
    """
    if not plot.dots:
        return Html("")
    xs, ys = _ticks([dot.x for dot in plot.dots]), _ticks([dot.y for dot in plot.dots])
    series = list(dict.fromkeys(dot.series for dot in plot.dots))

    def place(x: float, y: float) -> tuple[float, float]:
        # SVG counts y downward from the top edge.
        return (
            LEFT + (x - xs[0]) / (xs[-1] - xs[0]) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - (y - ys[0]) / (ys[-1] - ys[0]) * (HEIGHT - TOP - BOTTOM),
        )

    joined = " ".join("{:.1f},{:.1f}".format(*place(dot.x, dot.y)) for dot in _line(plot.dots))
    drawing = element(
        "svg",
        _axes(xs, ys, place),
        element("polyline", class_="front", points=joined),
        [_dot(dot, *place(dot.x, dot.y), series.index(dot.series)) for dot in plot.dots],
        _key(series),
        _axis_names(plot),
        class_="plot",
        role="img",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
    )
    return element("figure", element("figcaption", plot.title), drawing)


def _axes(xs: Sequence[float], ys: Sequence[float], place: Callable[[float, float], tuple[float, float]]) -> list[Html]:
    """Grid lines and their values: `xs` along the bottom, `ys` along the left."""
    drawn = []
    for x in xs:
        across, _ = place(x, ys[0])
        drawn.append(_axis_line(across, across, TOP, HEIGHT - BOTTOM))
        drawn.append(_svg_text(f"{x:g}", across, HEIGHT - BOTTOM + 14, "middle", class_="dim"))
    for y in ys:
        _, up = place(xs[0], y)
        drawn.append(_axis_line(LEFT, WIDTH - RIGHT, up, up))
        drawn.append(_svg_text(f"{y:g}", LEFT - 6, up + 4, "end", class_="dim"))
    return drawn


def _axis_line(x1: float, x2: float, y1: float, y2: float) -> Html:
    return element("line", class_="axis", x1=f"{x1:.1f}", x2=f"{x2:.1f}", y1=f"{y1:.1f}", y2=f"{y2:.1f}")


def _dot(dot: Dot, across: float, up: float, series_index: int) -> Html:
    described = f"{dot.series} {dot.label}: {dot.x:,.1f}, {dot.y:,.2f}".strip()
    circle = _circle(across, up, 6 if dot.on_line else 4, series_index, element("title", described))
    label = _svg_text(dot.label, across + 8, up - 6, "start", class_="dim") if dot.on_line else None
    return fragment(circle, label)


def _key(series: Sequence[str]) -> list[Html]:
    drawn = []
    for index, name in enumerate(series):
        up = TOP + 14 + 18 * index
        drawn.append(_circle(WIDTH - RIGHT + 18, up - 4, 5, index))
        drawn.append(_svg_text(name, WIDTH - RIGHT + 28, up, "start"))
    return drawn


def _axis_names(plot: Plot) -> list[Html]:
    middle_x, middle_y = LEFT + (WIDTH - LEFT - RIGHT) / 2, TOP + (HEIGHT - TOP - BOTTOM) / 2
    upright = {"transform": f"translate(14 {middle_y}) rotate(-90)", "text-anchor": "middle"}
    return [_svg_text(plot.x_name, middle_x, HEIGHT - 8, "middle"), element("text", plot.y_name, **upright)]


def _circle(x: float, y: float, radius: int, series_index: int, *children: Html) -> Html:
    colour = f"fill:var(--s{series_index % NUM_SERIES_COLOURS})"
    return element("circle", *children, cx=f"{x:.1f}", cy=f"{y:.1f}", r=radius, style=colour)


def _svg_text(text: str, x: float, y: float, anchor: str, class_: str = "") -> Html:
    return element("text", text, class_=class_, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _line(dots: Sequence[Dot]) -> list[Dot]:
    """The dots on the line, from left to right."""
    return sorted((dot for dot in dots if dot.on_line), key=lambda dot: (dot.x, dot.y))


def _ticks(values: Sequence[float]) -> list[float]:
    """At least two round numbers that enclose all values."""
    low, high = min(values), max(values)
    rough = (high - low or abs(high) or 1.0) / TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    # Steps of 1, 2 or 5 times a power of ten are easy to read.
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 10) for number in range(first, max(last, first + 1) + 1)]
