"""The direct raster: placed glyphs become a grey page, straight from cached glyph bitmaps.

Ink has sixteen levels, which a 4-bit PNG holds exactly. An atlas keeps each glyph at four horizontal sub-pixel
phases as a short list of words: eight pixels of one row in a uint64, one byte a pixel, blank words left out. Drawing a
page expands its glyphs to words, shifts them onto word boundaries and adds them up with one `np.add.at`: sixteen
overlapping glyphs fit in a byte (16 x 15 = 240 < 256), so no sum runs into its neighbour, and the order of drawing
cannot matter.

    page (rows, stride) of uint64 words:    |........|..gggggg|gg......|     a glyph row lies across two words
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.rendering.boxes import missing_box
from seer.rendering.fonts import FIRST_GLYPH, MISSING, NEWLINE, Font, FontChain
from seer.rendering.layout import PageLayout
from seer.rendering.measure import SUB_PX, Measure
from seer.rendering.placing import PlacedGlyphs, place_glyphs

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 1
"""Part of every content hash: raise it whenever the same page would come out with other pixels."""
MAX_LEVEL = 15
PHASES = 4
_WORD_PX = 8
_MAX_OVERLAP = 16
_UNBUILT = -1
_MAX_BATCH_BYTES = 4 << 20


class Atlas:
    """Glyphs of one font chain at one size, as words. Grows as glyphs are first drawn."""

    def __init__(self, chain: FontChain, size_px: float) -> None:
        self.chain = chain
        self.size_px = size_px
        self.pad_px = _round_up(int(size_px * 2) + 2 * _WORD_PX)
        """Blank border around the page under construction: how far ink may reach beyond it."""
        self._row_of_key = np.full(chain.num_slots * PHASES, _UNBUILT, np.int32)
        self._row_of_box: dict[int, int] = {}
        self._first = np.zeros(1024, np.int64)
        self._count = np.zeros(1024, np.int64)
        self._size = 0
        self._num_glyphs = 0
        # Words of all glyphs, one after another: rows down from the baseline, pixels right of the pen, eight pixels.
        self._dy = np.zeros(8192, np.int64)
        self._dx = np.zeros(8192, np.int64)
        self._word = np.zeros(8192, np.uint64)

    def rows(self, slots: NDArray[np.int64], phases: NDArray[np.int64]) -> NDArray[np.int32]:
        """The atlas row of each slot at its phase, building those not yet there."""
        boxes = slots >= MISSING
        keys = np.where(boxes, 0, slots * PHASES + phases)
        rows = self._row_of_key[keys]
        unbuilt = rows == _UNBUILT
        if unbuilt.any():
            self._build(np.unique(keys[unbuilt]))
            rows = self._row_of_key[keys]
        for place in np.flatnonzero(boxes).tolist():
            code = int(slots[place]) - MISSING
            if code not in self._row_of_box:
                box = missing_box(code, self.size_px) * np.uint8(MAX_LEVEL)
                self._row_of_box[code] = self._add(box[None], left=0, top=-len(box))
            rows[place] = self._row_of_box[code]
        return rows

    def expand(
        self, rows: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
        """(instance, dy, dx, word) of every word of every glyph instance."""
        counts = self._count[rows]
        total = int(counts.sum())
        instance = np.repeat(np.arange(len(rows)), counts)
        index = np.arange(total) + np.repeat(self._first[rows] - (np.cumsum(counts) - counts), counts)
        return instance, self._dy[index], self._dx[index], self._word[index]

    def _build(self, keys: NDArray[np.int64]) -> None:
        """Add the glyphs of these keys, as many at a time as a few megabytes hold."""
        slots, phases = np.divmod(keys, PHASES)
        marks = slots == NEWLINE
        slots = np.where(marks, self.chain.newline_slot, slots)
        glyphs = [self.chain.locate(slot) if slot >= FIRST_GLYPH else None for slot in slots.tolist()]
        left, bottom, right, top = self._bounds(glyphs)
        step = max(1, _MAX_BATCH_BYTES // ((right - left) * (top - bottom)))
        for first in range(0, len(keys), step):
            batch = slice(first, first + step)
            levels = self._rasterise(glyphs[batch], phases[batch].tolist(), (left, bottom, right, top))
            # Half as dark as text, so that the mark is not taken for a character of the source.
            levels[marks[batch]] //= 2
            self._row_of_key[keys[batch]] = self._add(levels, left, -top) + np.arange(len(levels), dtype=np.int32)

    def _bounds(self, glyphs: list[tuple[Font, int] | None]) -> tuple[int, int, int, int]:
        """(left, bottom, right, top) in pixels that hold every one of the glyphs at any phase; whole words wide."""
        left, bottom, right, top = 0.0, 0.0, 1.0, 1.0
        for glyph in glyphs:
            extents = glyph and glyph[0].font.get_glyph_extents(glyph[1])
            if glyph and extents:
                scale = self.size_px / glyph[0].upem
                left = min(left, extents.x_bearing * scale)
                right = max(right, (extents.x_bearing + extents.width) * scale)
                top = max(top, extents.y_bearing * scale)
                bottom = min(bottom, (extents.y_bearing + extents.height) * scale)
        # Ink further out than the border could not be held; no sane glyph comes near.
        pad = self.pad_px
        first = max(-pad, math.floor(left) - 1)
        last = first + _round_up(min(pad, math.ceil(right) + 2) - first)
        return first, max(-pad, math.floor(bottom) - 1), last, min(pad, math.ceil(top) + 1)

    def _rasterise(
        self, glyphs: list[tuple[Font, int] | None], phases: list[int], bounds: tuple[int, int, int, int]
    ) -> NDArray[np.uint8]:
        """Ink levels of each glyph within the bounds: (glyphs, rows from the top, pixels)."""
        import uharfbuzz as hb

        left, bottom, right, top = bounds
        width, height = right - left, top - bottom
        extents = hb.RasterExtents(left, bottom, width, height, width)
        raster, blank = hb.RasterDraw(), bytes(width * height)
        pictures = []
        for glyph, phase in zip(glyphs, phases, strict=True):
            if glyph is None:
                pictures.append(blank)
                continue
            scale = self.size_px / glyph[0].upem
            raster.reset()
            raster.transform = (scale, 0.0, 0.0, scale, phase / PHASES, 0.0)
            raster.extents = extents
            raster.draw_glyph(glyph[0].font, glyph[1])
            pictures.append(bytes(raster.render().buffer))
        coverage = np.frombuffer(b"".join(pictures), np.uint8).reshape(len(glyphs), height, width)[:, ::-1]
        return _LEVEL_OF_COVERAGE[coverage]

    def _add(self, levels: NDArray[np.uint8], left: int, top: int) -> int:
        """Append (glyphs, rows, pixels) whose first pixel stands `left` of the pen and `top` below the baseline.

        Returns the first new atlas row; the others follow it.
        """
        num, _, width = levels.shape
        if width % _WORD_PX:
            levels = np.pad(levels, ((0, 0), (0, 0), (0, _round_up(width) - width)))
        words = np.ascontiguousarray(levels).view("<u8").astype(np.uint64)
        glyph, y, x = np.nonzero(words)
        row, first, end = self._num_glyphs, self._size, self._size + len(y)
        counts = np.bincount(glyph, minlength=num)
        self._first, self._count = _grown(self._first, row + num), _grown(self._count, row + num)
        self._dy, self._dx, self._word = (_grown(array, end) for array in (self._dy, self._dx, self._word))
        self._first[row : row + num] = first + np.cumsum(counts) - counts
        self._count[row : row + num] = counts
        self._dy[first:end], self._dx[first:end] = y + top, x * _WORD_PX + left
        self._word[first:end] = words[glyph, y, x]
        self._num_glyphs, self._size = row + num, end
        return row


_LEVEL_OF_COVERAGE = ((np.arange(256) * MAX_LEVEL + 127) // 255).astype(np.uint8)


@lru_cache(maxsize=4)
def atlas_for(chain: FontChain, size_px: float) -> Atlas:
    return Atlas(chain, size_px)


def draw_page(page: PageLayout, measure: Measure) -> NDArray[np.uint8]:
    """Draw one page: uint8 (height_px, width_px), 255 white, in steps of 17."""
    return draw_glyphs(place_glyphs(page, measure), measure, page.width_px, page.height_px)


def draw_glyphs(glyphs: PlacedGlyphs, measure: Measure, width_px: int, height_px: int) -> NDArray[np.uint8]:
    """Draw placed glyphs on a white page of this size."""
    atlas = atlas_for(measure.chain, measure.style.font_size_px)
    pad = atlas.pad_px
    stride_px = _round_up(width_px) + 2 * pad
    quarters = (glyphs.x_sub + SUB_PX // (2 * PHASES)) // (SUB_PX // PHASES)
    x, phase = np.divmod(quarters, PHASES)
    keep = (x >= -pad) & (x < width_px + pad) & (glyphs.baseline_px < height_px + pad)
    keep[_MAX_OVERLAP:] &= ~_piled_up(x, glyphs.baseline_px)
    slots, baseline = glyphs.slot, glyphs.baseline_px
    if not keep.all():
        x, phase, slots, baseline = x[keep], phase[keep], slots[keep], baseline[keep]
    instance, dy, dx, word = atlas.expand(atlas.rows(slots, phase))
    at = ((baseline + 2 * pad) * stride_px + x + 2 * pad)[instance] + dy * stride_px + dx
    shift = ((at & (_WORD_PX - 1)) << 3).astype(np.uint64)
    at >>= 3
    ink = np.zeros((height_px + 4 * pad) * (stride_px + 2 * pad) // _WORD_PX, np.uint64)
    np.add.at(ink, at, word << shift)
    # What a shift pushed out of the word belongs to the next one; two steps, since shifting by 64 is undefined.
    rest = (word >> np.uint64(1)) >> (np.uint64(63) - shift)
    spilt = np.flatnonzero(rest)
    np.add.at(ink, at[spilt] + 1, rest[spilt])
    levels = ink.astype("<u8", copy=False).view(np.uint8)
    levels = levels[2 * pad * stride_px : (2 * pad + height_px) * stride_px].reshape(height_px, stride_px)
    grey = np.minimum(levels[:, 2 * pad : 2 * pad + width_px], np.uint8(MAX_LEVEL))
    grey *= np.uint8(17)
    return np.subtract(np.uint8(255), grey, out=grey)


def _piled_up(x: NDArray[np.int64], baseline: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each glyph from the 17th on: is it one too many in one place, as in stacks of combining marks?"""
    return (np.abs(x[_MAX_OVERLAP:] - x[:-_MAX_OVERLAP]) <= 2) & (baseline[_MAX_OVERLAP:] == baseline[:-_MAX_OVERLAP])


def _round_up(width_px: int) -> int:
    return -(-width_px // _WORD_PX) * _WORD_PX


def _grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """The array, or a copy at least twice as long with room for `size` elements."""
    if size <= len(array):
        return array
    larger = np.zeros(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger
