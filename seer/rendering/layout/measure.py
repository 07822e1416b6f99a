"""Measuring: how wide each character of a text is, in a style's fonts and size. Pure.

    measured = measure.text(codes)
    measured.advances_sub          # one a character, in 1/4096 px

Lengths are whole numbers of 1/4096 px (`_sub`): sums are exact, and the same text breaks alike wherever it stands.
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
"""Layout units a pixel."""
TAB = 9
SPACE = 32
NO_LEVELS = np.zeros(0, np.uint8)


@dataclass(frozen=True)
class MeasuredText:
    """A text and the width of each of its characters. Tabs have none yet: that depends on where they stand."""

    text: str
    codes: NDArray[np.uint32]
    entries: NDArray[np.int32]
    advances_sub: NDArray[np.int64]
    levels: NDArray[np.uint8]
    """Bidirectional level of each character; empty where all run from left to right."""
    runs: tuple[ShapedRun, ...]
    """What was shaped, in order …"""
    run_starts: NDArray[np.int64]
    run_ends: NDArray[np.int64]
    """… and where in the text."""

    @cached_property
    def kinds(self) -> NDArray[np.uint8]:
        """Line-breaking classes. Pages already broken into lines seldom need them."""
        return classes(self.codes)


@dataclass(frozen=True)
class Measure:
    """A style and a font chain at its size: everything that the layout asks of fonts."""

    style: PageStyle
    chain: FontChain
    advances_sub: NDArray[np.int64] = field(init=False)
    """By entry of the chain."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "advances_sub", _advances(self.chain, self.style.font_size_px))

    @cached_property
    def em_sub(self) -> float:
        return self.style.font_size_px * SUB_PX

    @cached_property
    def space_sub(self) -> int:
        return int(self.advances_sub[self.chain.entries(np.array([32], np.uint32))[0]])

    @cached_property
    def tab_sub(self) -> int:
        return max(1, self.space_sub * self.style.tab_columns)

    @cached_property
    def mark_sub(self) -> int:
        return int(self.advances_sub[self.chain.entries(np.array([ord(self.chain.newline_mark)], np.uint32))[0]])

    @cached_property
    def limit_sub(self) -> int:
        return int(self.style.text_width_px * SUB_PX)

    @cached_property
    def lines_per_column(self) -> int:
        return max(1, int(self.style.text_height_px / self.style.line_height_px + 1e-9))

    @cached_property
    def line_x_px(self) -> NDArray[np.float64]:
        """The left edge of each line of a full page."""
        column = np.repeat(np.arange(self.style.columns), self.lines_per_column)
        return self.style.margin_x_px + column * (self.style.text_width_px + self.style.column_gap_px)

    @cached_property
    def line_y_px(self) -> NDArray[np.float64]:
        """The top of each line of a full page."""
        row = np.tile(np.arange(self.lines_per_column), self.style.columns)
        return self.style.margin_y_px + row * self.style.line_height_px

    @cached_property
    def baselines_px(self) -> NDArray[np.int64]:
        """The pixel row of the baseline of each line of a full page."""
        return np.floor(self.line_y_px + self.baseline_offset_px + 0.5).astype(np.int64)

    @cached_property
    def baseline_offset_px(self) -> float:
        """From the top of a line to its baseline: the first font's ink stands in the middle of the line."""
        first = self.chain.fonts[0]
        ink_px = (first.ascent_em + first.descent_em) * self.style.font_size_px
        return (self.style.line_height_px - ink_px) / 2 + first.ascent_em * self.style.font_size_px

    def text(
        self, text: str, levels: NDArray[np.uint8] | None = None, cuts: NDArray[np.int32] | None = None
    ) -> MeasuredText:
        """Measure `text`; `levels` are its bidirectional levels where known, `cuts` where shaping must not join."""
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
        rtl = levels[starts] & 1 if len(levels) else np.zeros(len(starts), np.uint8)
        for start, end, font, odd in zip(
            starts.tolist(), ends.tolist(), fonts[starts].tolist(), rtl.tolist(), strict=True
        ):
            yield shape(self.chain, font, text[start:end], bool(odd))


@lru_cache(maxsize=8)
def _advances(chain: FontChain, size_px: float) -> NDArray[np.int64]:
    """The advance of each entry of the chain at that size, in 1/4096 px."""
    advances = np.rint(chain.advance_em * size_px * SUB_PX).astype(np.int64)
    for entry, num_digits in enumerate(MISSING_ENTRIES):
        advances[entry] = (box_width_px(num_digits, size_px) + 1) * SUB_PX
    return advances


def code_points(text: str) -> NDArray[np.uint32]:
    """The code points of `text`; lone surrogates stand for themselves."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def within(starts: NDArray[np.int64], ends: NDArray[np.int64], num: int) -> NDArray[np.bool_]:
    """True at the positions below `num` that lie in one of the stretches, which do not overlap."""
    steps = np.zeros(num + 1, np.int8)
    steps[starts] += 1
    steps[ends] -= 1
    return np.cumsum(steps[:-1], dtype=np.int8) > 0


def text_levels(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Bidirectional levels of a text of many paragraphs; empty where nothing runs from right to left."""
    if not has_rtl(codes):
        return NO_LEVELS
    kinds = classes(codes)
    levels = np.zeros(len(codes), np.uint8)
    edges = [0, *(np.flatnonzero(kinds == BK) + 1).tolist(), len(codes)]
    for start, end in itertools.pairwise(edges):
        if end > start and has_rtl(codes[start:end]):
            levels[start:end], base = paragraph_levels(codes[start:end])
            levels[end - 1] = base if kinds[end - 1] == BK else levels[end - 1]
    return levels


def newline_ends(codes: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """True at the last character of each source newline: CR LF counts once."""
    newlines = classes(codes) == BK
    newlines[:-1] &= ~((codes[:-1] == 13) & (codes[1:] == 10))
    return newlines


def set_tab_widths(
    measured: MeasuredText, tabs: NDArray[np.int64], phase_sub: int, measure: Measure
) -> Callable[[int], int]:
    """Write each tab's advance in place. Stops count from the start of the source line, which `phase_sub` precedes.

    Where lines run on (newline marks) there is nothing to align with: a tab is `tab_columns` spaces.
    Returns a function from an offset to the phase there.
    """
    advances_sub, stop = measured.advances_sub, measure.tab_sub
    if measure.style.newline == "mark":
        advances_sub[tabs] = stop
        return lambda offset: 0
    newlines = np.flatnonzero(measured.kinds == BK)
    ends = np.cumsum(advances_sub if len(tabs) else advances_sub[:0])  # most texts have no tabs, and need none

    def line_origin(offset: int) -> tuple[int, int]:
        """Where the source line of `offset` begins, and how far into it the text's first character stood."""
        index = int(np.searchsorted(newlines, offset))
        return (int(newlines[index - 1]) + 1, 0) if index else (0, phase_sub)

    line, added, base = -1, 0, 0
    for tab in tabs.tolist():
        origin, phase = line_origin(tab)
        if origin != line:
            line, added = origin, phase
            base = int(ends[origin - 1]) if origin else 0
        at = int(ends[tab]) - base + added
        # A tab always shows: where less than half a space is left, it goes on to the next stop.
        width = stop - at % stop
        if width * 2 < measure.space_sub:
            width += stop
        advances_sub[tab] = width
        added += width

    def phase_at(offset: int) -> int:
        origin, phase = line_origin(offset)
        return (int(advances_sub[origin:offset].sum()) + phase) % stop

    return phase_at
