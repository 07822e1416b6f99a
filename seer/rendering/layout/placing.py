"""Placing: the position of every glyph and line box of a laid-out page.

    glyphs = place_glyphs(page, measure)           # slots of the font chain at pen positions
    boxes = line_boxes(page, measure, page.start)  # the source span and the box of each line

The module is pure, and both the raster and the PDF writer draw from its positions, so their pages agree.
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
"""The first code point of the ideographic blocks (CJK Radicals Supplement)."""


@dataclass(frozen=True)
class PlacedGlyphs:
    """The glyphs of a page: slots of the font chain at pen positions. All arrays are (glyphs,)."""

    slot: NDArray[np.int64]
    x_sub: NDArray[np.int64]
    baseline_px: NDArray[np.int64]
    """Rows from the top of the page. They are whole pixels, so every line is drawn with the same vertical phase."""
    offset: NDArray[np.int64]
    """The offset on the page of the character that each glyph belongs to."""


def place_glyphs(page: PageLayout, measure: Measure) -> PlacedGlyphs:
    """Return the pen position of every glyph of the page that leaves ink."""
    measured = measure_page(page, measure)
    pens = _pens(page, measured, measure)
    slots = _slots(measured, measure)
    if len(page.levels):
        _mirror(slots, measured, measure)
    baselines = np.repeat(measure.baselines_px[: page.num_lines], np.diff(page.line_starts))
    # Characters of shaped runs are blank here; `_with_runs` adds the glyphs of the runs.
    if measured.runs:
        slots[within(measured.run_starts, measured.run_ends, len(slots))] = BLANK
    inked = (slots != BLANK).nonzero()[0]
    # Ideographs are placed on whole pixels, so the raster needs one phase of each instead of four.
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
    """Append the glyphs of the shaped runs to the plain ones.

    `pens` and `baselines` are (characters,), the position of each character of the page.
    """
    runs, starts, ends = measured.runs, measured.run_starts, measured.run_ends
    counts = np.array([len(run.slot) for run in runs])
    # Glyph positions count from the run's left edge. In a right-to-left run that is the last character's pen.
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
    """Return the source span and the box of every line of the page.

    `start` is the source offset of the page's first character. Boxes exclude the spaces at a line's end.
    """
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
    """Return the boxes of the characters [start, end) of the page's text, from top to bottom.

    The edges are pen positions, so the first and the last line are cut exactly at the span's characters. A line of
    mixed directions has one box for every stretch that the span covers. Part of a cluster, such as one letter of a
    ligature, has the box of the whole cluster. Newlines and hanging spaces at a line's end have no box.
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
        # Boxes are clipped to the line's box, which excludes hanging spaces.
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
    """Return the first character of the cluster of character `at`; only that character has an advance."""
    run = int(np.searchsorted(measured.run_starts, at, side="right")) - 1
    if run >= 0 and at < measured.run_ends[run]:
        while at > measured.run_starts[run] and measured.advances_sub[at] == 0:
            at -= 1
    return at


def _joined(left: NDArray[np.int64], right: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the intervals [left, right) in ascending order; touching ones are joined and empty ones dropped."""
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
    """Measure the page's text as its lines are set: with the layout's tab widths and narrowed spaces."""
    measured = measure.text(page.text, levels=page.levels, cuts=page.line_starts)
    if len(page.tab_widths_sub):
        measured.advances_sub[measured.codes == TAB] = page.tab_widths_sub
    squeeze(measured, page.line_starts.astype(np.int64), measure)
    return measured


def _line_lefts(page: PageLayout, measured: MeasuredText, measure: Measure) -> NDArray[np.float64]:
    """Return the left edge of each line in pixels: float64 (lines,).

    Lines of right-to-left paragraphs are aligned to the right edge of the column.
    """
    x_px = measure.line_x_px[: page.num_lines]
    if len(page.levels):
        lines = page.line_starts.astype(np.int64)
        free_px = measure.style.text_width_px - line_widths(measured, lines) / SUB_PX
        x_px = x_px + np.where(_is_rtl_line(page), np.maximum(0, free_px), 0)
    return x_px


def _is_rtl_line(page: PageLayout) -> NDArray[np.bool_]:
    """Return which lines belong to right-to-left paragraphs: bool (lines,).

    All levels of such a paragraph are at least 1. In any other line the newline or a neutral has level 0, or all
    characters run from right to left anyway.
    """
    return np.minimum.reduceat(page.levels, page.line_starts[:-1]) > 0


def _pens(page: PageLayout, measured: MeasuredText, measure: Measure) -> NDArray[np.int64]:
    """Return the pen position of each character from the page's left edge, in 1/4096 px: int64 (characters,)."""
    origins = np.rint(_line_lefts(page, measured, measure) * SUB_PX).astype(np.int64)
    pens = np.cumsum(measured.advances_sub)
    pens -= measured.advances_sub
    # `pens` now counts from the page's first character. Shift each line so that its first pen is at its left edge.
    starts = page.line_starts
    pens += np.repeat(origins - pens[starts[:-1]], np.diff(starts))
    if len(page.levels):
        # Only lines with a level above 0 need reordering. Their pens advance in visual order.
        rtl = _is_rtl_line(page)
        for k in np.flatnonzero(np.maximum.reduceat(page.levels, starts[:-1]) > 0).tolist():
            line = slice(int(starts[k]), int(starts[k + 1]))
            order = _line_order(page.levels[line], measured.break_classes[line], base=int(rtl[k]))
            widths = measured.advances_sub[line][order]
            hanging = _hanging_width(measured, line) if rtl[k] else 0
            pens[line][order] = np.cumsum(widths) - widths + origins[k] - hanging
    return pens


def _line_order(levels: NDArray[np.uint8], break_classes: NDArray[np.uint8], base: int) -> NDArray[np.int64]:
    """Return the visual order of one line; spaces and newlines at its end take the paragraph's level (rule L1)."""
    inked = np.flatnonzero((break_classes != SP) & (break_classes != BK))
    end = int(inked[-1]) + 1 if len(inked) else 0
    levels = levels.copy()
    levels[end:] = base
    return visual_order(levels)


def _hanging_width(measured: MeasuredText, line: slice) -> int:
    """Return the width of the spaces at a line's end, which hang over the left edge of a right-to-left line."""
    break_classes, widths = measured.break_classes[line], measured.advances_sub[line]
    inked = np.flatnonzero(break_classes != SP)
    return int(widths[int(inked[-1]) + 1 if len(inked) else 0 :].sum())


def _slots(measured: MeasuredText, measure: Measure) -> NDArray[np.int64]:
    """Return the slot of each character, with boxes for missing characters and marks for newlines."""
    slots = measure.chain.slot.take(measured.entries)
    missing = measured.entries < ZERO_WIDTH_ENTRY
    if missing.any():
        slots[missing] = MISSING + measured.codes[missing].astype(np.int64)
    if measure.style.newline == "mark":
        slots[newline_ends(measured.codes)] = NEWLINE
    return slots


def _mirror(slots: NDArray[np.int64], measured: MeasuredText, measure: Measure) -> None:
    """Replace brackets and other paired characters in right-to-left runs by their mirror images, in place (L4)."""
    for place in np.flatnonzero(measured.levels & 1).tolist():
        mirrored = MIRRORS.get(int(measured.codes[place]))
        if mirrored is not None and slots[place] < MISSING:
            slots[place] = int(measure.chain.slot[measure.chain.entries(np.array([mirrored], np.uint32))[0]])
