"""Measuring: the width of each character of a text in a style's fonts and size.

    measure = Measure(style, chain)
    measured = measure.text("some text")
    measured.advances_sub                  # int64 (characters,), in 1/4096 px

Lengths named `_sub` are whole numbers of 1/4096 px. Their sums are exact, so the same text breaks into the same lines
at every offset. The module is pure.

Shapes: all arrays of a `MeasuredText` are (characters,) unless stated otherwise; arrays over runs are (runs,).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from seer.rendering.layout.bidi import has_rtl, paragraph_levels
from seer.rendering.layout.boxes import box_width_px
from seer.rendering.layout.breaking import BK, classes
from seer.rendering.layout.fonts import MISSING_ENTRIES, FontChain
from seer.rendering.layout.shaping import ShapedRun, complex_flags, complex_runs, shape
from seer.schema import PageStyle

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUB_PX = 4096
"""Layout units per pixel."""
TAB = 9
SPACE = 32
NO_LEVELS = np.zeros(0, np.uint8)
"""The levels of a text that runs from left to right throughout."""


@dataclass(frozen=True)
class MeasuredText:
    """A text and the width of each of its characters. Tabs have width 0 until `set_tab_widths` sets it."""

    text: str
    codes: NDArray[np.uint32]
    entries: NDArray[np.int32]
    advances_sub: NDArray[np.int64]
    levels: NDArray[np.uint8]
    """The bidirectional level of each character; empty if all run from left to right."""
    runs: tuple[ShapedRun, ...]
    """The runs that HarfBuzz shaped, in order."""
    run_starts: NDArray[np.int64]
    """The offset of each run's first character."""
    run_ends: NDArray[np.int64]
    """The offset after each run's last character."""

    @cached_property
    def break_classes(self) -> NDArray[np.uint8]:
        """Line-breaking classes. They are computed on demand, because pages already broken seldom need them."""
        return classes(self.codes)


@dataclass(frozen=True)
class Measure:
    """A style and a font chain at the style's size: all font measures that the layout needs."""

    style: PageStyle
    chain: FontChain
    advances_sub: NDArray[np.int64] = field(init=False)
    """(entries,): the advance of each entry of the chain."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "advances_sub", _advances(self.chain, self.style.font_size_px))

    @cached_property
    def em_sub(self) -> float:
        """The font size."""
        return self.style.font_size_px * SUB_PX

    @cached_property
    def space_sub(self) -> int:
        """The advance of a space."""
        return int(self.advances_sub[self.chain.entries(np.array([32], np.uint32))[0]])

    @cached_property
    def tab_sub(self) -> int:
        """The distance between tab stops."""
        return max(1, self.space_sub * self.style.tab_columns)

    @cached_property
    def mark_sub(self) -> int:
        """The advance of the newline mark."""
        return int(self.advances_sub[self.chain.entries(np.array([ord(self.chain.newline_mark)], np.uint32))[0]])

    @cached_property
    def limit_sub(self) -> int:
        """The width of a column, the longest line."""
        return int(self.style.text_width_px * SUB_PX)

    @cached_property
    def lines_per_column(self) -> int:
        """The number of lines in a full column; at least 1."""
        # The small term keeps a quotient such as 82.999999 from losing a line.
        return max(1, int(self.style.text_height_px / self.style.line_height_px + 1e-9))

    @cached_property
    def line_x_px(self) -> NDArray[np.float64]:
        """(lines,): the left edge of each line of a full page."""
        column = np.repeat(np.arange(self.style.columns), self.lines_per_column)
        return self.style.margin_x_px + column * (self.style.text_width_px + self.style.column_gap_px)

    @cached_property
    def line_y_px(self) -> NDArray[np.float64]:
        """(lines,): the top edge of each line of a full page."""
        row = np.tile(np.arange(self.lines_per_column), self.style.columns)
        return self.style.margin_y_px + row * self.style.line_height_px

    @cached_property
    def baselines_px(self) -> NDArray[np.int64]:
        """(lines,): the pixel row of the baseline of each line of a full page."""
        return np.floor(self.line_y_px + self.baseline_offset_px + 0.5).astype(np.int64)

    @cached_property
    def baseline_offset_px(self) -> float:
        """Distance from the top of a line to its baseline. It centres the ascent and descent of the first font."""
        first = self.chain.fonts[0]
        ink_px = (first.ascent_em + first.descent_em) * self.style.font_size_px
        return (self.style.line_height_px - ink_px) / 2 + first.ascent_em * self.style.font_size_px

    def text(
        self, text: str, levels: NDArray[np.uint8] | None = None, cuts: NDArray[np.int32] | None = None
    ) -> MeasuredText:
        """Measure a text.

        Args:
            text: any text; lone surrogates are allowed.
            levels: uint8 (characters,) bidirectional levels if already known, else computed.
            cuts: int32 (cuts,) offsets that no shaped run crosses, such as the starts of lines.
        """
        codes = code_points(text)
        entries = self.chain.entries(codes)
        advances = self.advances_sub.take(entries)
        if levels is None:
            levels = text_levels(codes)
        runs: tuple[ShapedRun, ...] = ()
        starts = ends = np.zeros(0, np.int64)
        flags = complex_flags(codes)
        if flags is not None:
            fonts = self.chain.font_index.take(entries)
            starts, ends = complex_runs(flags, codes, fonts, levels, cuts)
            runs = tuple(self._shape(text, fonts, levels, starts, ends))
        # A run's advances replace those of its characters; the runs' arrays joined have one value per character.
        if runs:
            advances[within(starts, ends, len(codes))] = np.rint(
                np.concatenate([run.advance_em for run in runs]) * self.em_sub
            )
        if self.style.newline == "mark":
            advances[newline_ends(codes)] = self.mark_sub
        return MeasuredText(text, codes, entries, advances, levels, runs, starts, ends)

    def _shape(
        self,
        text: str,
        fonts: NDArray[np.int8],
        levels: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
    ) -> Iterator[ShapedRun]:
        """Shape each run in its font and direction."""
        rtl = levels[starts] & 1 if len(levels) else np.zeros(len(starts), np.uint8)
        for start, end, font, odd in zip(
            starts.tolist(), ends.tolist(), fonts[starts].tolist(), rtl.tolist(), strict=True
        ):
            yield shape(self.chain, font, text[start:end], bool(odd))


@lru_cache(maxsize=8)
def _advances(chain: FontChain, size_px: float) -> NDArray[np.int64]:
    """Return the advance of each entry of the chain at `size_px`, in 1/4096 px: int64 (entries,)."""
    advances = np.rint(chain.advance_em * size_px * SUB_PX).astype(np.int64)
    # A box is followed by one blank pixel.
    for entry, num_digits in enumerate(MISSING_ENTRIES):
        advances[entry] = (box_width_px(num_digits, size_px) + 1) * SUB_PX
    return advances


def code_points(text: str) -> NDArray[np.uint32]:
    """Return the code points of `text` as uint32 (characters,); a lone surrogate keeps its own code point."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def within(starts: NDArray[np.int64], ends: NDArray[np.int64], num: int) -> NDArray[np.bool_]:
    """Return a mask, bool (num,), of the positions inside one of the intervals [start, end).

    The intervals do not overlap, so a running sum of +1 and -1 steps is 1 inside and 0 outside.
    """
    steps = np.zeros(num + 1, np.int8)
    steps[starts] += 1
    steps[ends] -= 1
    return np.cumsum(steps[:-1], dtype=np.int8) > 0


def text_levels(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Return the bidirectional levels of a text of any number of paragraphs.

    The result is uint8 (characters,), or empty if no character runs from right to left.
    """
    if not has_rtl(codes):
        return NO_LEVELS
    break_classes = classes(codes)
    levels = np.zeros(len(codes), np.uint8)
    edges = [0, *(np.flatnonzero(break_classes == BK) + 1).tolist(), len(codes)]
    for start, end in itertools.pairwise(edges):
        if end > start and has_rtl(codes[start:end]):
            levels[start:end], base = paragraph_levels(codes[start:end])
            # L1: the newline that ends a paragraph has the paragraph's level.
            levels[end - 1] = base if break_classes[end - 1] == BK else levels[end - 1]
    return levels


def newline_ends(codes: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return a mask, bool (characters,), of the last character of each source newline. CR LF is one newline."""
    newlines = classes(codes) == BK
    newlines[:-1] &= ~((codes[:-1] == 13) & (codes[1:] == 10))
    return newlines


def set_tab_widths(
    measured: MeasuredText, tabs: NDArray[np.int64], phase_sub: int, measure: Measure
) -> Callable[[int], int]:
    """Set the advance of each tab, in place.

    Args:
        measured: the text; its `advances_sub` are changed.
        tabs: int64 (tabs,) offsets of the tabs, ascending.
        phase_sub: distance of the text's first character from the tab stop before it.

    Tab stops count from the start of the source line. With newline marks lines run on and there is nothing to align
    with, so a tab is `tab_columns` spaces wide.

    Returns a function that maps an offset of the text to its distance from the tab stop before it.
    """
    advances_sub, stop = measured.advances_sub, measure.tab_sub
    if measure.style.newline == "mark":
        advances_sub[tabs] = stop
        return lambda offset: 0
    newlines = np.flatnonzero(measured.break_classes == BK)
    # Most texts have no tabs and need no running widths.
    ends = np.cumsum(advances_sub if len(tabs) else advances_sub[:0])

    def line_origin(offset: int) -> tuple[int, int]:
        """Return where the source line of `offset` begins in the text, and the phase of that place."""
        index = int(np.searchsorted(newlines, offset))
        return (int(newlines[index - 1]) + 1, 0) if index else (0, phase_sub)

    # `ends` was summed while tabs had no width. `added` is the width of the tabs set so far in the current line,
    # `base` the running width where that line begins.
    line, added, base = -1, 0, 0
    for tab in tabs.tolist():
        origin, phase = line_origin(tab)
        if origin != line:
            line, added = origin, phase
            base = int(ends[origin - 1]) if origin else 0
        at = int(ends[tab]) - base + added
        # A tab is always visible: if the next stop is closer than half a space, it extends to the one after.
        width = stop - at % stop
        if width * 2 < measure.space_sub:
            width += stop
        advances_sub[tab] = width
        added += width

    def phase_at(offset: int) -> int:
        """Return the distance of `offset` from the tab stop before it."""
        origin, phase = line_origin(offset)
        return (int(advances_sub[origin:offset].sum()) + phase) % stop

    return phase_at
