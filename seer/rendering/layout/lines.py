"""Layout: text and a style become lines and pages with source offsets. Pure; no pixel is touched here.

    for page in lay_out([text], Measure(style, chain)):
        page.text, page.start, page.line_starts, page.width_px

Every source character belongs to exactly one line, spaces and newlines at a line's end included, and every line to
exactly one page; so the page texts joined equal the source text.

Lines break greedily: from the place where a line begins, one binary search over running widths finds the last place
that still fits; everything else is a few array operations on the whole text. A long text is laid out in pieces that
overlap by an unfinished page, in bounded memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seer.rendering.layout.breaking import AL, BK, CM, SP, break_opportunities, last_inked
from seer.rendering.layout.measure import NO_LEVELS, SPACE, SUB_PX, TAB, Measure, MeasuredText, set_tab_widths

if TYPE_CHECKING:
    from numpy.typing import NDArray

PIECE_CHARS = 64_000
"""Text laid out at a time; longer texts are laid out in overlapping pieces. The arrays of one fit a core's cache."""
_MIN_CROP_MARGIN_PX = 4
_SPACE_SQUEEZE = 0.05
"""The share of a space that a line may take back, as in reportlab."""
_MIN_WIDTH_PX, _MIN_HEIGHT_PX = 112, 56
"""A smaller picture would be enlarged by the model's processor, and cost no less."""


@dataclass(frozen=True)
class PageLayout:
    """One page of laid-out text. All offsets within it count from the page's first character."""

    text: str
    start: int
    """Offset of the page's first character in the source."""
    line_starts: NDArray[np.int32]
    """(lines + 1,): where each line begins, and the end of the last."""
    tab_widths_sub: NDArray[np.int64]
    """(tabs,): the advance of each tab on the page, in order: stops count from the start of the source line."""
    levels: NDArray[np.uint8]
    """Bidirectional level of each character; empty where all run from left to right."""
    width_px: int
    height_px: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def num_lines(self) -> int:
        return len(self.line_starts) - 1


def lay_out(pieces: Iterable[str], measure: Measure) -> Iterator[PageLayout]:
    """Lay out the text that `pieces` join to, page by page, in memory bounded by a piece and two pages.

    The pages do not depend on how the text was cut into pieces. An empty text yields no page.
    """
    waiting, start, tab_phase_sub = "", 0, 0
    incoming = iter(pieces)
    need, more = PIECE_CHARS, True
    while more or waiting:
        parts, have = [waiting], len(waiting)
        while more and have < need:
            piece = next(incoming, None)
            if piece is None:
                more = False
            else:
                parts.append(piece)
                have += len(piece)
        waiting = "".join(parts)
        if not waiting:
            return
        # A piece far longer than needed is worked through in steps, so that the arrays stay small.
        position, total = 0, len(waiting)
        while total - position >= (need if more else 1):
            end = min(total, position + need)
            final = not more and end == total
            pages, tab_phase_sub = _pages_of(waiting[position:end], start, tab_phase_sub, measure, final=final)
            yield from pages
            # Without one whole page in it, the window is too small: one line can be very long.
            need = PIECE_CHARS if pages else need * 2
            position += sum(len(page.text) for page in pages)
            start = pages[-1].end if pages else start
            if not pages and end == total:
                break
        waiting = waiting[position:]


def _pages_of(
    text: str, start: int, tab_phase_sub: int, measure: Measure, *, final: bool
) -> tuple[list[PageLayout], int]:
    """The pages that are certain whatever follows `text`, all where it is `final`; and the tab phase after them."""
    measured = measure.text(text)
    advances, tabs = measured.advances_sub, np.flatnonzero(measured.codes == TAB)
    phase_at = set_tab_widths(measured, tabs, tab_phase_sub, measure)
    starts = break_lines(measured, measure)
    per_page = measure.lines_per_column * measure.style.columns
    num_lines = len(starts) - 1
    # The last lines may change with the text that follows: a word cut in two, a run not yet known to be too long.
    num_pages = -(-num_lines // per_page) if final else max(0, (num_lines - 3) // per_page)
    pages = []
    for number in range(num_pages):
        lines = starts[number * per_page : (number + 1) * per_page + 1]
        first, last = int(lines[0]), int(lines[-1])
        tab_range = slice(*np.searchsorted(tabs, (first, last))) if len(tabs) else slice(0, 0)
        is_last = final and number == num_pages - 1
        width_px, height_px = _page_size(measured, lines, measure, is_last=is_last)
        pages.append(
            PageLayout(
                text=text[first:last],
                start=start + first,
                line_starts=(lines - first).astype(np.int32),
                tab_widths_sub=advances[tabs[tab_range]],
                levels=measured.levels[first:last] if measured.levels[first:last].any() else NO_LEVELS,
                width_px=width_px,
                height_px=height_px,
            )
        )
    consumed = int(starts[min(num_pages * per_page, num_lines)])
    return pages, phase_at(consumed)


def break_lines(measured: MeasuredText, measure: Measure) -> NDArray[np.int64]:
    """Where each line begins, and the end of the text: (lines + 1,). Greedy; spaces at a line's end hang."""
    codes, kinds, limit = measured.codes, measured.kinds, measure.limit_sub
    fitted = measured.advances_sub
    if measure.style.breaking == "spaces":
        fitted = fitted - spare_width(measured, measure)
    ends = np.cumsum(fitted)
    allowed = break_opportunities(codes, kinds, measure.style.breaking)
    edges = _edges(allowed)
    ends_at, visible_at = _widths_before(edges, ends, kinds)
    too_wide = (visible_at[1:] - ends_at[:-1] > limit) | (
        ends_at[1:] - np.maximum(visible_at[1:], ends_at[:-1]) > limit
    )
    if too_wide.any():
        # A run without a break, or of spaces alone, wider than a line: it breaks by width, between characters.
        solid = kinds.copy()
        for first, last in zip(edges[:-1][too_wide].tolist(), edges[1:][too_wide].tolist(), strict=True):
            run = slice(first + 1, last)
            allowed[run] |= (kinds[run] != CM) & (kinds[run] != BK)
            solid[first:last] = AL
        edges = _edges(allowed)
        ends_at, visible_at = _widths_before(edges, ends, solid)
    hard = np.array([len(edges) - 1])
    if measure.style.newline == "break":
        hard = np.concatenate((np.flatnonzero(kinds.take(edges[1:-1] - 1) == BK) + 1, hard))
    return edges[_greedy(ends_at, visible_at, hard, limit)]


def _greedy(
    ends_at: NDArray[np.int64], visible_at: NDArray[np.int64], hard: NDArray[np.int64], limit: int
) -> list[int]:
    """Which edges begin a line, 0 first. `hard` are the edges that end one whatever its width.

    Lines are few and edges many: searching along the way takes less time than one search for every edge.
    """
    fits = visible_at[hard] - ends_at[np.concatenate(([0], hard[:-1]))] <= limit
    starts, visible = ends_at.data, visible_at.data
    lines, at = [0], 0
    for end, is_line in zip(hard.tolist(), fits.tolist(), strict=True):
        while at < end:
            # From two on: a line holds what stands before the next edge, however wide that is.
            at = end if is_line else bisect_right(visible, starts[at] + limit, at + 2, end + 1) - 1
            lines.append(at)
    return lines


def _edges(allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The places where a line may begin, with the start and the end of the text."""
    return np.concatenate(([0], np.flatnonzero(allowed), [len(allowed)]))


def _widths_before(
    edges: NDArray[np.int64], ends: NDArray[np.int64], kinds: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The running width just before each edge, with the spaces that end there and without them; 0 at the first."""
    inked = last_inked(kinds, edges - 1)
    ends_at, visible_at = ends.take(edges - 1), ends.take(inked)
    ends_at[0] = 0
    visible_at[inked < 0] = 0
    return ends_at, visible_at


def spare_width(measured: MeasuredText, measure: Measure) -> NDArray[np.int64]:
    """How much narrower each character may become for a line to fit, where lines break at spaces alone: its spaces.

    reportlab's Paragraph, which such a style follows, takes one more word where squeezing the spaces makes room for it.
    """
    return (measured.codes == SPACE) * int(measure.space_sub * _SPACE_SQUEEZE)


def squeeze(measured: MeasuredText, lines: NDArray[np.int64], measure: Measure) -> None:
    """Narrow the spaces of lines wider than the column until they fit, in place. `lines` as `break_lines` returns."""
    if measure.style.breaking != "spaces":
        return
    excess = line_widths(measured, lines) - measure.limit_sub
    for k in np.flatnonzero(excess > 0).tolist():
        line = slice(int(lines[k]), int(lines[k + 1]))
        ink = np.flatnonzero(measured.kinds[line] != SP)
        inner = np.flatnonzero(measured.codes[line] == SPACE)
        inner = inner[inner < (ink[-1] if len(ink) else 0)] + line.start
        spare = spare_width(measured, measure)[inner]
        if len(inner) and spare.sum() >= excess[k]:
            measured.advances_sub[inner] -= -(-int(excess[k]) // len(inner))


def _page_size(measured: MeasuredText, lines: NDArray[np.int64], measure: Measure, *, is_last: bool) -> tuple[int, int]:
    """(width, height) in pixels after cropping. Crops keep a little margin and land on the style's grid."""
    style = measure.style
    num_lines = len(lines) - 1
    width_px, height_px = style.page_width_px, style.page_height_px
    if style.crop_width:
        columns_used = -(-num_lines // measure.lines_per_column)
        first = (columns_used - 1) * measure.lines_per_column
        widest_sub = min(measure.limit_sub, int(line_widths(measured, lines[first:]).max()))
        if measured.levels[lines[0] : lines[-1]].any():
            widest_sub = measure.limit_sub  # right-to-left lines stand at the right edge
        column_px = style.text_width_px + style.column_gap_px
        right = style.margin_x_px + (columns_used - 1) * column_px + widest_sub / SUB_PX
        width_px = max(_crop(right, style.margin_x_px, style.snap_px, width_px), min(_MIN_WIDTH_PX, width_px))
    if style.crop_last_page and is_last:
        bottom = style.margin_y_px + min(num_lines, measure.lines_per_column) * style.line_height_px
        height_px = max(_crop(bottom, style.margin_y_px, style.snap_px, height_px), min(_MIN_HEIGHT_PX, height_px))
    return width_px, height_px


def _crop(edge_px: float, margin_px: int, snap_px: int, full_px: int) -> int:
    """The least multiple of `snap_px` that holds the ink up to `edge_px` and a sliver of margin, never above full."""
    needed = edge_px + min(margin_px, _MIN_CROP_MARGIN_PX)
    return min(full_px, max(snap_px, int(-(-needed // snap_px)) * snap_px))


def line_widths(measured: MeasuredText, lines: NDArray[np.int64]) -> NDArray[np.int64]:
    """The width of each line without the spaces at its end; `lines` as `break_lines` returns them, or a part."""
    first, last = int(lines[0]), int(lines[-1])
    ends = np.concatenate(([0], np.cumsum(measured.advances_sub[first:last])))
    visible = np.where(measured.kinds[first:last] == SP, 0, ends[1:])
    np.maximum.accumulate(visible, out=visible)
    visible = np.concatenate(([0], visible))
    edges = lines - first
    return np.maximum(0, visible[edges[1:]] - ends[edges[:-1]])
