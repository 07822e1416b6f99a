"""Layout: break text into lines and pages, with source offsets.

    for page in lay_out([text], Measure(style, chain)):
        page.text, page.start, page.line_starts, page.width_px

Text and a `Measure` come in, `PageLayout` records go out. The module is pure: it draws nothing.

Every source character belongs to exactly one line, including the spaces and newlines at a line's end, and every line
to exactly one page. The page texts joined therefore equal the source text.

Lines break greedily. A binary search over running widths finds the last place where a line may end; all other work
is a few array operations over the whole text. A long text is laid out in windows that overlap by an unfinished page,
so memory stays bounded. Lengths named `_sub` are whole numbers of 1/4096 px (`measure.SUB_PX`).
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
"""Characters laid out at a time. The arrays of one window fit into the cache of a processor core."""
_MIN_CROP_MARGIN_PX = 4
_SPACE_SQUEEZE = 0.05
"""The fraction of its width by which a space may shrink so that a line fits, as in reportlab."""
_MIN_WIDTH_PX, _MIN_HEIGHT_PX = 112, 56
"""The smallest cropped page. The model's image processor enlarges smaller images, so they cost no less."""


@dataclass(frozen=True)
class PageLayout:
    """One page of laid-out text. All offsets except `start` count from the page's first character."""

    text: str
    start: int
    """Offset of the page's first character in the source."""
    line_starts: NDArray[np.int32]
    """(lines + 1,): the offset of each line, and the end of the last line."""
    tab_widths_sub: NDArray[np.int64]
    """(tabs,): the advance of each tab on the page, in order. Tab stops count from the start of the source line."""
    levels: NDArray[np.uint8]
    """(characters,): the bidirectional level of each character; empty if all run from left to right."""
    width_px: int
    height_px: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def num_lines(self) -> int:
        return len(self.line_starts) - 1


def lay_out(pieces: Iterable[str], measure: Measure) -> Iterator[PageLayout]:
    """Lay out a text page by page, in memory bounded by one piece and two pages.

    `pieces` join to the text. The pages do not depend on how the text is cut into pieces. An empty text yields no
    pages.
    """
    incoming = iter(pieces)
    waiting, start, tab_phase_sub = "", 0, 0
    need, more = PIECE_CHARS, True
    while more:
        waiting, more = _refill(waiting, incoming, need)
        # A piece that is much longer than a window is laid out window by window, so that the arrays stay small.
        position, total = 0, len(waiting)
        while total - position >= (need if more else 1):
            end = min(total, position + need)
            final = not more and end == total
            pages, tab_phase_sub = _pages_of(waiting[position:end], start, tab_phase_sub, measure, final=final)
            yield from pages
            if pages:
                position += sum(len(page.text) for page in pages)
                start, need = pages[-1].end, PIECE_CHARS
                continue
            # The window does not hold one complete page, because a single line can be very long. Double it.
            need *= 2
            if end == total:
                break
        # The next window starts with the text of the unfinished page.
        waiting = waiting[position:]


def _refill(waiting: str, incoming: Iterator[str], need: int) -> tuple[str, bool]:
    """Append pieces to `waiting` until it has `need` characters; return it and whether more pieces may follow."""
    parts, have = [waiting], len(waiting)
    while have < need:
        piece = next(incoming, None)
        if piece is None:
            return "".join(parts), False
        parts.append(piece)
        have += len(piece)
    return "".join(parts), True


def _pages_of(
    text: str, start: int, tab_phase_sub: int, measure: Measure, *, final: bool
) -> tuple[list[PageLayout], int]:
    """Lay out one window of text.

    Args:
        text: the window. It begins a line, at offset `start` of the source.
        tab_phase_sub: distance of the window's first character from the tab stop before it.
        final: whether the source ends with the window. If not, only the pages that no following text can change are
            returned.

    Returns:
        The pages, and the tab phase at the first character after them.
    """
    measured = measure.text(text)
    advances, tabs = measured.advances_sub, np.flatnonzero(measured.codes == TAB)
    phase_at = set_tab_widths(measured, tabs, tab_phase_sub, measure)
    starts = break_lines(measured, measure)
    per_page = measure.lines_per_column * measure.style.columns
    num_lines = len(starts) - 1
    # Following text can change the last lines: the window may end within a word or within a run wider than a line.
    # Three lines are held back for that.
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
    """Break a text into lines, greedily. Spaces at a line's end hang: they do not count for its width.

    Returns int64 (lines + 1,): the offset of each line, and the length of the text.
    """
    codes, break_classes, limit = measured.codes, measured.break_classes, measure.limit_sub
    fitted = measured.advances_sub
    if measure.style.breaking == "spaces":
        fitted = fitted - spare_width(measured, measure)
    # Running widths are whole numbers, so sums are exact and do not depend on where the text begins.
    ends = np.cumsum(fitted)
    allowed = break_opportunities(codes, break_classes, measure.style.breaking)
    edges = _edges(allowed)
    ends_at, visible_at = _widths_before(edges, ends, break_classes)
    too_wide = (visible_at[1:] - ends_at[:-1] > limit) | (
        ends_at[1:] - np.maximum(visible_at[1:], ends_at[:-1]) > limit
    )
    if too_wide.any():
        # A run without a break, or one of spaces only, is wider than a line. Allow a break before each of its
        # characters except combining marks and newlines. Its spaces count as letters (AL) so that they do not hang.
        solid = break_classes.copy()
        for first, last in zip(edges[:-1][too_wide].tolist(), edges[1:][too_wide].tolist(), strict=True):
            run = slice(first + 1, last)
            allowed[run] |= (break_classes[run] != CM) & (break_classes[run] != BK)
            solid[first:last] = AL
        edges = _edges(allowed)
        ends_at, visible_at = _widths_before(edges, ends, solid)
    # Hard edges end a line at any width: source newlines, unless the style runs lines on, and the end of the text.
    hard = np.array([len(edges) - 1])
    if measure.style.newline == "break":
        hard = np.concatenate((np.flatnonzero(break_classes.take(edges[1:-1] - 1) == BK) + 1, hard))
    return edges[_greedy(ends_at, visible_at, hard, limit)]


def _greedy(
    ends_at: NDArray[np.int64], visible_at: NDArray[np.int64], hard: NDArray[np.int64], limit: int
) -> list[int]:
    """Choose the edges that begin a line.

    Args:
        ends_at, visible_at: (edges,), the running widths of `_widths_before`.
        hard: (hard edges,), indices of the edges where a line ends at any width.
        limit: the width of a line, in 1/4096 px.

    Returns:
        Indices of edges, 0 first; the last is the end of the text.

    Lines are few and edges are many, so one binary search per line is faster than one vectorised search per edge.
    """
    # Source lines that fit whole need no search.
    fits = visible_at[hard] - ends_at[np.concatenate(([0], hard[:-1]))] <= limit
    starts, visible = ends_at.data, visible_at.data
    lines, at = [0], 0
    for end, is_line in zip(hard.tolist(), fits.tolist(), strict=True):
        while at < end:
            # The search starts two edges on, because a line always holds the text up to the next edge at least.
            at = end if is_line else bisect_right(visible, starts[at] + limit, at + 2, end + 1) - 1
            lines.append(at)
    return lines


def _edges(allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the offsets where a line may begin, with the start and the end of the text."""
    return np.concatenate(([0], np.flatnonzero(allowed), [len(allowed)]))


def _widths_before(
    edges: NDArray[np.int64], ends: NDArray[np.int64], break_classes: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the running width before each edge, with and without the spaces just before it; 0 at the first edge.

    A line from edge i to edge j has the visible width `visible_at[j] - ends_at[i]`.
    """
    inked = last_inked(break_classes, edges - 1)
    ends_at, visible_at = ends.take(edges - 1), ends.take(inked)
    ends_at[0] = 0
    visible_at[inked < 0] = 0
    return ends_at, visible_at


def spare_width(measured: MeasuredText, measure: Measure) -> NDArray[np.int64]:
    """Return by how much each character may shrink so that a line fits: int64 (characters,), 0 except for spaces.

    Styles with `breaking="spaces"` follow reportlab's Paragraph, which adds one more word to a line if narrower spaces
    make room for it.
    """
    return (measured.codes == SPACE) * int(measure.space_sub * _SPACE_SQUEEZE)


def squeeze(measured: MeasuredText, lines: NDArray[np.int64], measure: Measure) -> None:
    """Narrow the spaces of lines that are wider than the column, in place.

    `lines` is the result of `break_lines`. Styles that do not break at spaces only are left unchanged.
    """
    if measure.style.breaking != "spaces":
        return
    excess = line_widths(measured, lines) - measure.limit_sub
    for k in np.flatnonzero(excess > 0).tolist():
        line = slice(int(lines[k]), int(lines[k + 1]))
        ink = np.flatnonzero(measured.break_classes[line] != SP)
        inner = np.flatnonzero(measured.codes[line] == SPACE)
        inner = inner[inner < (ink[-1] if len(ink) else 0)] + line.start
        # Only spaces before the last visible character count; spaces at the end of a line hang anyway.
        spare = spare_width(measured, measure)[inner]
        if len(inner) and spare.sum() >= excess[k]:
            measured.advances_sub[inner] -= -(-int(excess[k]) // len(inner))


def _page_size(measured: MeasuredText, lines: NDArray[np.int64], measure: Measure, *, is_last: bool) -> tuple[int, int]:
    """Return (width, height) of a page in pixels after cropping.

    A crop keeps a small margin and rounds up to the style's grid (`snap_px`). `lines` holds the page's lines.
    """
    style = measure.style
    num_lines = len(lines) - 1
    width_px, height_px = style.page_width_px, style.page_height_px
    if style.crop_width:
        columns_used = -(-num_lines // measure.lines_per_column)
        first = (columns_used - 1) * measure.lines_per_column
        widest_sub = min(measure.limit_sub, int(line_widths(measured, lines[first:]).max()))
        if measured.levels[lines[0] : lines[-1]].any():
            widest_sub = measure.limit_sub  # right-to-left lines are aligned to the right edge
        column_px = style.text_width_px + style.column_gap_px
        right = style.margin_x_px + (columns_used - 1) * column_px + widest_sub / SUB_PX
        width_px = max(_crop(right, style.margin_x_px, style.snap_px, width_px), min(_MIN_WIDTH_PX, width_px))
    if style.crop_last_page and is_last:
        bottom = style.margin_y_px + min(num_lines, measure.lines_per_column) * style.line_height_px
        height_px = max(_crop(bottom, style.margin_y_px, style.snap_px, height_px), min(_MIN_HEIGHT_PX, height_px))
    return width_px, height_px


def _crop(edge_px: float, margin_px: int, snap_px: int, full_px: int) -> int:
    """Return the smallest multiple of `snap_px` that holds the ink up to `edge_px` and a margin, at most `full_px`."""
    needed = edge_px + min(margin_px, _MIN_CROP_MARGIN_PX)
    return min(full_px, max(snap_px, int(-(-needed // snap_px)) * snap_px))


def line_widths(measured: MeasuredText, lines: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the width of each line without the spaces at its end: int64 (lines,), in 1/4096 px.

    `lines` is the result of `break_lines` or a slice of it.
    """
    first, last = int(lines[0]), int(lines[-1])
    ends = np.concatenate(([0], np.cumsum(measured.advances_sub[first:last])))
    visible = np.where(measured.break_classes[first:last] == SP, 0, ends[1:])
    # A running maximum carries the width up to the last visible character over the spaces after it.
    np.maximum.accumulate(visible, out=visible)
    visible = np.concatenate(([0], visible))
    edges = lines - first
    return np.maximum(0, visible[edges[1:]] - ends[edges[:-1]])
