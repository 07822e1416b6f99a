"""Placing: where each line and each glyph of a laid-out page stands. Pure, and the same for every raster.

glyphs = place_glyphs(page, measure)      # slots of the font chain at pen positions
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seer.rendering.layout.bidi import MIRRORS, visual_order
from seer.rendering.layout.breaking import BK, SP
from seer.rendering.layout.fonts import BLANK, MISSING, NEWLINE, ZERO_WIDTH_ENTRY
from seer.rendering.layout.lines import PageLayout, line_widths, squeeze
from seer.rendering.layout.measure import SUB_PX, TAB, Measure, MeasuredText, newline_ends, within
from seer.schema import Box, LineBox

if TYPE_CHECKING:
    from numpy.typing import NDArray


_FIRST_WIDE_CODE = 0x2E80


@dataclass(frozen=True)
class PlacedGlyphs:
    """What to draw on a page: slots of the font chain at pen positions, as (glyphs,) arrays."""

    slot: NDArray[np.int64]
    x_sub: NDArray[np.int64]
    baseline_px: NDArray[np.int64]
    """Rows from the top of the page; whole pixels, so that every line is drawn alike."""
    offset: NDArray[np.int64]
    """The character on the page that each glyph belongs to."""


def place_glyphs(page: PageLayout, measure: Measure) -> PlacedGlyphs:
    """Pen positions of everything on the page that leaves ink."""
    measured = measure_page(page, measure)
    pens = _pens(page, measured, measure)
    slots = _slots(measured, measure)
    if len(page.levels):
        _mirror(slots, measured, measure)
    baselines = np.repeat(measure.baselines_px[: page.num_lines], np.diff(page.line_starts))
    if measured.runs:
        slots[within(measured.run_starts, measured.run_ends, len(slots))] = BLANK
    inked = (slots != BLANK).nonzero()[0]
    # Ideographs stand on whole pixels: all copies of one are alike, and a quarter as many are kept.
    wide = measured.codes >= _FIRST_WIDE_CODE
    if wide.any():
        pens[wide] = (pens[wide] + SUB_PX // 2) // SUB_PX * SUB_PX
    plain = PlacedGlyphs(slots.take(inked), pens.take(inked), baselines.take(inked), inked)
    return _with_runs(plain, measured, pens, baselines, measure) if measured.runs else plain


def _with_runs(
    plain: PlacedGlyphs,
    measured: MeasuredText,
    pens: NDArray[np.int64],
    baselines: NDArray[np.int64],
    measure: Measure,
) -> PlacedGlyphs:
    """The plain glyphs and those of shaped runs; `pens` and `baselines` are of each character."""
    runs, starts, ends = measured.runs, measured.run_starts, measured.run_ends
    counts = np.array([len(run.slot) for run in runs])
    # A run's glyphs count from its left edge, which is its last character's where it runs from right to left.
    left = np.minimum(pens[starts], pens[ends - 1])
    x_em, y_em = np.concatenate([run.x_em for run in runs]), np.concatenate([run.y_em for run in runs])
    rise_px = np.rint(y_em * measure.style.font_size_px).astype(np.int64)
    return PlacedGlyphs(
        slot=np.concatenate([plain.slot, *(run.slot for run in runs)]),
        x_sub=np.concatenate([plain.x_sub, np.repeat(left, counts) + np.rint(x_em * measure.em_sub).astype(np.int64)]),
        baseline_px=np.concatenate([plain.baseline_px, np.repeat(baselines[starts], counts) - rise_px]),
        offset=np.concatenate(
            [plain.offset, np.repeat(starts, counts) + np.concatenate([run.character for run in runs])]
        ),
    )


def line_boxes(page: PageLayout, measure: Measure, start: int) -> tuple[LineBox, ...]:
    """Source span and box of every line of the page, which begins at `start`; spaces at a line's end have no box."""
    measured = measure_page(page, measure)
    widths = line_widths(measured, page.line_starts.astype(np.int64))
    x_px, y_px = _line_lefts(page, measured, measure), measure.line_y_px
    starts = page.line_starts.tolist()
    return tuple(
        LineBox(
            start=start + starts[k],
            end=start + starts[k + 1],
            x_px=float(x_px[k]),
            y_px=float(y_px[k]),
            width_px=float(widths[k]) / SUB_PX,
            height_px=measure.style.line_height_px,
        )
        for k in range(page.num_lines)
    )


def span_boxes(page: PageLayout, measure: Measure, start: int, end: int) -> tuple[Box, ...]:
    """Boxes of the characters [start, end) of the page's text, from top to bottom.

    The edges are pen positions, so the first and the last line are cut exactly at the span's characters. A line that
    mixes directions has a box for every stretch that the span covers. Part of a cluster, such as one letter of a
    ligature, takes the whole cluster's box. Newlines and the spaces that hang at a line's end have none.
    """
    measured = measure_page(page, measure)
    pens, advances = _pens(page, measured, measure), measured.advances_sub
    line_starts = page.line_starts.astype(np.int64)
    lefts = np.rint(_line_lefts(page, measured, measure) * SUB_PX).astype(np.int64)
    rights = lefts + line_widths(measured, line_starts)
    start = _cluster_start(measured, start)
    first, last = np.searchsorted(line_starts, (start, end - 1), side="right") - 1
    boxes = []
    for k in range(int(first), int(last) + 1):
        covered = slice(max(start, int(line_starts[k])), min(end, int(line_starts[k + 1])))
        # Clipped to the line, whose box holds no hanging spaces either.
        left = np.clip(pens[covered], lefts[k], rights[k])
        right = np.clip(pens[covered] + advances[covered], lefts[k], rights[k])
        boxes += [
            Box(
                x_px=x_sub / SUB_PX,
                y_px=float(measure.line_y_px[k]),
                width_px=(end_sub - x_sub) / SUB_PX,
                height_px=measure.style.line_height_px,
            )
            for x_sub, end_sub in _joined(left, right)
        ]
    return tuple(boxes)


def _cluster_start(measured: MeasuredText, at: int) -> int:
    """The first character of the cluster that holds character `at`; a cluster's advance is on its first character."""
    run = int(np.searchsorted(measured.run_starts, at, side="right")) - 1
    if run >= 0 and at < measured.run_ends[run]:
        while at > measured.run_starts[run] and measured.advances_sub[at] == 0:
            at -= 1
    return at


def _joined(left: NDArray[np.int64], right: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Intervals from left to right, neighbours that touch joined and empty ones dropped."""
    joined: list[tuple[int, int]] = []
    for k in np.argsort(left, kind="stable").tolist():
        x_sub, end_sub = int(left[k]), int(right[k])
        if end_sub <= x_sub:
            continue
        if joined and x_sub <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end_sub))
        else:
            joined.append((x_sub, end_sub))
    return joined


def measure_page(page: PageLayout, measure: Measure) -> MeasuredText:
    """The page's text with the widths its lines have: tabs set, spaces squeezed where the layout squeezed them."""
    measured = measure.text(page.text, levels=page.levels, cuts=page.line_starts)
    if len(page.tab_widths_sub):
        measured.advances_sub[measured.codes == TAB] = page.tab_widths_sub
    squeeze(measured, page.line_starts.astype(np.int64), measure)
    return measured


def _line_lefts(page: PageLayout, measured: MeasuredText, measure: Measure) -> NDArray[np.float64]:
    """Left edge of each line in pixels; lines of right-to-left paragraphs end at the column's right edge."""
    x_px = measure.line_x_px[: page.num_lines]
    if len(page.levels):
        lines = page.line_starts.astype(np.int64)
        free_px = measure.style.text_width_px - line_widths(measured, lines) / SUB_PX
        x_px = x_px + np.where(_is_rtl_line(page), np.maximum(0, free_px), 0)
    return x_px


def _is_rtl_line(page: PageLayout) -> NDArray[np.bool_]:
    """In a right-to-left paragraph every level is at least 1; in any other its neutral characters have level 0."""
    return np.minimum.reduceat(page.levels, page.line_starts[:-1]) > 0


def _pens(page: PageLayout, measured: MeasuredText, measure: Measure) -> NDArray[np.int64]:
    """Pen position of each character from the page's left edge."""
    origins = np.rint(_line_lefts(page, measured, measure) * SUB_PX).astype(np.int64)
    pens = np.cumsum(measured.advances_sub)
    pens -= measured.advances_sub
    starts = page.line_starts
    pens += np.repeat(origins - pens[starts[:-1]], np.diff(starts))
    if len(page.levels):
        rtl = _is_rtl_line(page)
        for k in np.flatnonzero(np.maximum.reduceat(page.levels, starts[:-1]) > 0).tolist():
            line = slice(int(starts[k]), int(starts[k + 1]))
            order = _line_order(page.levels[line], measured.kinds[line], base=int(rtl[k]))
            widths = measured.advances_sub[line][order]
            hanging = _hanging_width(measured, line) if rtl[k] else 0
            pens[line][order] = np.cumsum(widths) - widths + origins[k] - hanging
    return pens


def _line_order(levels: NDArray[np.uint8], kinds: NDArray[np.uint8], base: int) -> NDArray[np.int64]:
    """Visual order of one line; spaces and newlines at its end take the paragraph's direction (rule L1)."""
    inked = np.flatnonzero((kinds != SP) & (kinds != BK))
    end = int(inked[-1]) + 1 if len(inked) else 0
    levels = levels.copy()
    levels[end:] = base
    return visual_order(levels)


def _hanging_width(measured: MeasuredText, line: slice) -> int:
    """Width of the spaces at a line's end, which hang over the left edge where it runs from right to left."""
    kinds, widths = measured.kinds[line], measured.advances_sub[line]
    inked = np.flatnonzero(kinds != SP)
    return int(widths[int(inked[-1]) + 1 if len(inked) else 0 :].sum())


def _slots(measured: MeasuredText, measure: Measure) -> NDArray[np.int64]:
    slots = measure.chain.slot.take(measured.entries)
    missing = measured.entries < ZERO_WIDTH_ENTRY
    if missing.any():
        slots[missing] = MISSING + measured.codes[missing].astype(np.int64)
    if measure.style.newline == "mark":
        slots[newline_ends(measured.codes)] = NEWLINE
    return slots


def _mirror(slots: NDArray[np.int64], measured: MeasuredText, measure: Measure) -> None:
    """Turn brackets in right-to-left runs, in place."""
    for place in np.flatnonzero(measured.levels & 1).tolist():
        mirrored = MIRRORS.get(int(measured.codes[place]))
        if mirrored is not None and slots[place] < MISSING:
            slots[place] = int(measure.chain.slot[measure.chain.entries(np.array([mirrored], np.uint32))[0]])
