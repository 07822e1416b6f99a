"""Layout: text and a style become lines and pages with source offsets. Pure; no pixel is touched here.

    for page in lay_out([text], style, chain):
        page.text, page.start, page.line_starts, page.width_px

Every source character belongs to exactly one line, spaces and newlines at a line's end included, and every line to
exactly one page; so the page texts joined equal the source text. Lengths are whole numbers of 1/4096 px (`_sub`):
sums are exact, and the same text breaks alike wherever it stands.

Lines break greedily. Each place where a line may begin knows, by one binary search over running widths, the last
place that still fits; a line break is then one step along that chain, and the whole text costs a few array
operations. A long text is laid out in pieces that overlap by an unfinished page, in bounded memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from seer.rendering.breaking import BK, CM, SP, break_opportunities, classes
from seer.rendering.fonts import BLANK, MISSING, NEWLINE, ZERO_WIDTH_ENTRY, FontChain
from seer.schema import LineBox, PageStyle

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUB_PX = 4096
"""Layout units a pixel."""
PIECE_CHARS = 160_000
"""Text laid out at a time; longer texts are laid out in overlapping pieces."""
_TAB = 9
_MIN_CROP_MARGIN_PX = 4


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
    width_px: int
    height_px: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def num_lines(self) -> int:
        return len(self.line_starts) - 1


@dataclass(frozen=True)
class PlacedGlyphs:
    """What to draw on a page: a slot of the font chain at a pen position for each character that leaves ink."""

    slot: NDArray[np.int64]
    x_sub: NDArray[np.int64]
    baseline_px: NDArray[np.int64]
    """Rows from the top of the page; whole pixels, so that every line is drawn alike."""


@dataclass(frozen=True)
class Measure:
    """A style and a font chain at its size: everything that the layout asks of fonts."""

    style: PageStyle
    chain: FontChain
    advances_sub: NDArray[np.int64] = field(init=False)
    """By entry of the chain."""

    def __post_init__(self) -> None:
        scale = self.style.font_size_px * SUB_PX
        object.__setattr__(self, "advances_sub", np.rint(self.chain.advance_em * scale).astype(np.int64))

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
    def baseline_offset_px(self) -> float:
        """From the top of a line to its baseline: the first font's ink stands in the middle of the line."""
        first = self.chain.fonts[0]
        ink_px = (first.ascent_em + first.descent_em) * self.style.font_size_px
        return (self.style.line_height_px - ink_px) / 2 + first.ascent_em * self.style.font_size_px

    def advances(self, codes: NDArray[np.uint32], kinds: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The advance of each character, tabs as 0, and newlines as the mark's width where they are marked."""
        advances = self.advances_sub[self.chain.entries(codes)]
        if self.style.newline == "mark":
            advances[_newline_ends(codes, kinds)] = self.mark_sub
        return advances


def code_points(text: str) -> NDArray[np.uint32]:
    """The code points of `text`; lone surrogates stand for themselves."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


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
    codes = code_points(text)
    kinds = classes(codes)
    advances = measure.advances(codes, kinds)
    tabs = np.flatnonzero(codes == _TAB)
    phases = _set_tab_widths(codes, kinds, advances, tabs, tab_phase_sub, measure)
    starts = break_lines(codes, kinds, advances, measure)
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
        width_px, height_px = _page_size(kinds, advances, lines, measure, is_last=is_last)
        pages.append(
            PageLayout(
                text=text[first:last],
                start=start + first,
                line_starts=(lines - first).astype(np.int32),
                tab_widths_sub=advances[tabs[tab_range]],
                width_px=width_px,
                height_px=height_px,
            )
        )
    consumed = int(starts[min(num_pages * per_page, num_lines)])
    return pages, phases(consumed)


def break_lines(
    codes: NDArray[np.uint32], kinds: NDArray[np.uint8], advances_sub: NDArray[np.int64], measure: Measure
) -> NDArray[np.int64]:
    """Where each line begins, and the end of the text: (lines + 1,). Greedy; spaces at a line's end hang."""
    num, limit = len(codes), measure.limit_sub
    ends = np.cumsum(advances_sub)
    allowed = break_opportunities(codes, kinds, measure.style.breaking)
    places = np.flatnonzero(allowed)
    visible = np.where(kinds == SP, 0, ends)
    np.maximum.accumulate(visible, out=visible)
    edges = np.concatenate(([0], places, [num]))
    ends_at = _ends_before(ends, edges)
    visible_at = _ends_before(visible, edges)
    too_wide = (visible_at[1:] - ends_at[:-1] > limit) | (
        ends_at[1:] - np.maximum(visible_at[1:], ends_at[:-1]) > limit
    )
    if too_wide.any():
        # A run without a break, or of spaces alone, wider than a line: it breaks by width, between characters.
        for first, last in zip(edges[:-1][too_wide].tolist(), edges[1:][too_wide].tolist(), strict=True):
            allowed[first + 1 : last] |= kinds[first + 1 : last] != CM
            visible[first:last] = ends[first:last]
        np.maximum.accumulate(visible, out=visible)
        edges = np.concatenate(([0], np.flatnonzero(allowed), [num]))
        ends_at, visible_at = _ends_before(ends, edges), _ends_before(visible, edges)
    reach = np.searchsorted(visible_at, ends_at + limit, side="right") - 1
    if measure.style.newline == "break":
        hard = np.zeros(len(edges), np.bool_)
        hard[1:-1] = kinds[edges[1:-1] - 1] == BK
        hard[-1] = True
        reach[:-1] = np.minimum(reach[:-1], _next_true(hard)[1:])
    np.maximum(reach, np.arange(1, len(edges) + 1), out=reach)
    chain, at, last_edge = reach.tolist(), 0, len(edges) - 1
    lines = [0]
    while at < last_edge:
        at = chain[at]
        lines.append(at)
    return edges[lines]


def _ends_before(running: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """The running width just before each edge; `edges[0]` is 0."""
    before = running[edges - 1]
    before[0] = 0
    return before


def _next_true(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each index, the first index from it on whose flag is set; the last flag is set."""
    index = np.where(flags, np.arange(len(flags)), len(flags) - 1)
    return np.minimum.accumulate(index[::-1])[::-1]


def _newline_ends(codes: NDArray[np.uint32], kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """True at the last character of each source newline: CR LF counts once."""
    newlines = kinds == BK
    newlines[:-1] &= ~((codes[:-1] == 13) & (codes[1:] == 10))
    return newlines


def _set_tab_widths(
    codes: NDArray[np.uint32],
    kinds: NDArray[np.uint8],
    advances_sub: NDArray[np.int64],
    tabs: NDArray[np.int64],
    phase_sub: int,
    measure: Measure,
) -> Callable[[int], int]:
    """Write each tab's advance in place. Stops count from the start of the source line, which `phase_sub` precedes.

    Where lines run on (newline marks) there is nothing to align with: a tab is `tab_columns` spaces.
    Returns a function from an offset to the phase there.
    """
    stop = measure.tab_sub
    if measure.style.newline == "mark":
        advances_sub[tabs] = stop
        return lambda offset: 0
    newlines = np.flatnonzero(kinds == BK)
    ends = np.cumsum(advances_sub)

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


def _page_size(
    kinds: NDArray[np.uint8],
    advances_sub: NDArray[np.int64],
    lines: NDArray[np.int64],
    measure: Measure,
    *,
    is_last: bool,
) -> tuple[int, int]:
    """(width, height) in pixels after cropping. Crops keep a little margin and land on the style's grid."""
    style = measure.style
    num_lines = len(lines) - 1
    width_px, height_px = style.page_width_px, style.page_height_px
    if style.crop_width:
        columns_used = -(-num_lines // measure.lines_per_column)
        first = (columns_used - 1) * measure.lines_per_column
        widest_sub = max(_line_widths(kinds, advances_sub, lines[first:]).tolist(), default=0)
        right = (
            style.margin_x_px + (columns_used - 1) * (style.text_width_px + style.column_gap_px) + widest_sub / SUB_PX
        )
        width_px = _crop(right, style.margin_x_px, style.snap_px, width_px)
    if style.crop_last_page and is_last:
        bottom = style.margin_y_px + min(num_lines, measure.lines_per_column) * style.line_height_px
        height_px = _crop(bottom, style.margin_y_px, style.snap_px, height_px)
    return width_px, height_px


def _crop(edge_px: float, margin_px: int, snap_px: int, full_px: int) -> int:
    """The least multiple of `snap_px` that holds the ink up to `edge_px` and a sliver of margin, never above full."""
    needed = edge_px + min(margin_px, _MIN_CROP_MARGIN_PX)
    return min(full_px, max(snap_px, int(-(-needed // snap_px)) * snap_px))


def _line_widths(
    kinds: NDArray[np.uint8], advances_sub: NDArray[np.int64], lines: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The width of each line without the spaces at its end."""
    first, last = int(lines[0]), int(lines[-1])
    ends = np.concatenate(([0], np.cumsum(advances_sub[first:last])))
    visible = np.where(kinds[first:last] == SP, 0, ends[1:])
    np.maximum.accumulate(visible, out=visible)
    visible = np.concatenate(([0], visible))
    edges = lines - first
    return np.maximum(0, visible[edges[1:]] - ends[edges[:-1]])


# ── Places of lines and glyphs on a laid-out page ────────────────────────────────────────────────


def _line_origins(page: PageLayout, measure: Measure) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Left edge and top of each line in pixels."""
    style = measure.style
    column, row = np.divmod(np.arange(page.num_lines), measure.lines_per_column)
    x = style.margin_x_px + column * (style.text_width_px + style.column_gap_px)
    return x, style.margin_y_px + row * style.line_height_px


def place_glyphs(page: PageLayout, measure: Measure) -> PlacedGlyphs:
    """Pen positions of everything on the page that leaves ink."""
    codes = code_points(page.text)
    kinds = classes(codes)
    entries = measure.chain.entries(codes)
    advances = measure.advances(codes, kinds)
    advances[codes == _TAB] = page.tab_widths_sub
    slots = measure.chain.slot[entries].astype(np.int64)
    missing = entries < ZERO_WIDTH_ENTRY
    if missing.any():
        slots[missing] = MISSING + codes[missing].astype(np.int64)
    if measure.style.newline == "mark":
        slots[_newline_ends(codes, kinds)] = NEWLINE
    counts = np.diff(page.line_starts)
    x_px, top_px = _line_origins(page, measure)
    pens = np.cumsum(advances) - advances
    offsets = np.rint(x_px * SUB_PX).astype(np.int64) - pens[page.line_starts[:-1]]
    baselines = np.floor(top_px + measure.baseline_offset_px + 0.5).astype(np.int64)
    inked = np.flatnonzero(slots != BLANK)
    line = np.repeat(np.arange(page.num_lines), counts)[inked]
    return PlacedGlyphs(slots[inked], pens[inked] + offsets[line], baselines[line])


def line_boxes(page: PageLayout, measure: Measure) -> tuple[LineBox, ...]:
    """Source span and box of every line of the page."""
    codes = code_points(page.text)
    kinds = classes(codes)
    advances = measure.advances(codes, kinds)
    advances[codes == _TAB] = page.tab_widths_sub
    widths = _line_widths(kinds, advances, page.line_starts.astype(np.int64))
    x_px, y_px = _line_origins(page, measure)
    starts = page.line_starts.tolist()
    return tuple(
        LineBox(
            start=page.start + starts[k],
            end=page.start + starts[k + 1],
            x_px=float(x_px[k]),
            y_px=float(y_px[k]),
            width_px=float(widths[k]) / SUB_PX,
            height_px=measure.style.line_height_px,
        )
        for k in range(page.num_lines)
    )
