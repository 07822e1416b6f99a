"""Plots as inline SVG: one circle for each dot and series, escaped names, round ticks."""

from __future__ import annotations

import re

from seer.web.plots import plot_svg
from seer.web.tables import Dot, Plot

DOTS = [Dot(10, 50, "a<b", "x"), Dot(30, 80, "d", "y", on_line=True), Dot(20, 75, "c", "y", on_line=True)]


def test_plot_svg_holds_every_dot_and_escapes_names():
    drawn = plot_svg(Plot("t", "tokens", "score", DOTS)).source
    assert drawn.count("<circle") == 3 + 2, "points, and the key of two series"
    assert "a&lt;b" in drawn
    assert "a<b" not in drawn


def test_plot_svg_connects_the_line_from_left_to_right_inside_the_axes():
    drawn = plot_svg(Plot("t", "tokens", "score", DOTS)).source
    (points,) = re.findall(r'class="front" points="([^"]*)"', drawn)
    pairs = [tuple(map(float, pair.split(","))) for pair in points.split()]
    assert len(pairs) == 2
    (x1, y1), (x2, y2) = pairs
    assert 56 <= x1 < x2 <= 720 - 150
    assert 12 <= y2 < y1 <= 380 - 44, "a higher score is nearer to the top"


def test_plot_svg_with_a_single_dot_still_has_axes():
    drawn = plot_svg(Plot("t", "x", "y", [Dot(1, 1, "only")])).source
    assert drawn.count("<circle") == 2
    assert drawn.count('class="axis"') >= 4


def test_plot_svg_without_dots_is_empty():
    assert plot_svg(Plot("t", "x", "y", [])).source == ""
