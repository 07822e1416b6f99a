"""The direct raster: placed glyphs become a grey page, straight from cached glyph bitmaps.

Ink has sixteen levels, which a 4-bit PNG holds exactly. An atlas keeps each glyph at four horizontal sub-pixel
phases as a short list of words: eight pixels of one row in a uint64, one byte a pixel, blank words left out. Drawing a
page expands its glyphs to words, shifts them onto word boundaries and adds them up with one `np.add.at`: sixteen
overlapping glyphs fit in a byte (16 x 15 = 240 < 256), so no sum runs into its neighbour, and the order of drawing
cannot matter.

    page (rows, stride) of uint64 words:    |........|..gggggg|gg......|     a glyph row lies across two words
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.rendering.boxes import missing_box
from seer.rendering.fonts import MISSING, NEWLINE, FontChain
from seer.rendering.layout import SUB_PX, Measure, PageLayout, PlacedGlyphs, place_glyphs

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 1
"""Part of every content hash: raise it whenever the same page would come out with other pixels."""
MAX_LEVEL = 15
PHASES = 4
_WORD_PX = 8
_MAX_OVERLAP = 16


class Atlas:
    """Glyphs of one font chain at one size, as words. Grows as glyphs are first drawn."""

    def __init__(self, chain: FontChain, size_px: float) -> None:
        import uharfbuzz as hb

        self.chain = chain
        self.size_px = size_px
        self.pad_px = _round_up(int(size_px * 2) + 2 * _WORD_PX)
        """Blank border around the page under construction: how far ink may reach beyond it."""
        self._raster: Any = hb.RasterDraw()
        self._row_of_key: dict[int, int] = {}
        self._first = np.zeros(1024, np.int64)
        self._count = np.zeros(1024, np.int64)
        self._size = 0
        self._num_glyphs = 0
        # Words of all glyphs, one after another: rows down from the baseline, pixels right of the pen, eight pixels.
        self._dy = np.zeros(8192, np.int64)
        self._dx = np.zeros(8192, np.int64)
        self._word = np.zeros(8192, np.uint64)

    def rows(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The atlas row of each key (slot * PHASES + phase), building those not yet there."""
        unique, inverse = np.unique(keys, return_inverse=True)
        rows = np.fromiter((self._row(key) for key in unique.tolist()), np.int64, len(unique))
        return rows[inverse]

    def expand(
        self, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
        """(instance, dy, dx, word) of every word of every glyph instance."""
        counts = self._count[rows]
        total = int(counts.sum())
        instance = np.repeat(np.arange(len(rows)), counts)
        index = np.arange(total) + np.repeat(self._first[rows] - (np.cumsum(counts) - counts), counts)
        return instance, self._dy[index], self._dx[index], self._word[index]

    def _row(self, key: int) -> int:
        row = self._row_of_key.get(key)
        if row is None:
            slot, phase = divmod(key, PHASES)
            row = self._row_of_key[key] = self._add(*self._bitmap(slot, phase))
        return row

    def _bitmap(self, slot: int, phase: int) -> tuple[NDArray[np.uint8], int, int]:
        """(levels, left, top): ink levels, pixels right of the pen, rows down from the baseline to the first row."""
        if slot >= MISSING:
            levels = missing_box(slot - MISSING, self.size_px) * np.uint8(MAX_LEVEL)
            return levels, 0, -levels.shape[0]
        if slot == NEWLINE:
            entry = self.chain.entries(np.array([ord(self.chain.newline_mark)], np.uint32))[0]
            levels, left, top = self._bitmap(int(self.chain.slot[entry]), phase)
            # Half as dark as text, so that it is not taken for a character of the source.
            return levels // 2, left, top
        font, glyph = self.chain.locate(slot)
        scale = self.size_px / font.upem
        self._raster.reset()
        self._raster.transform = (scale, 0.0, 0.0, scale, phase / PHASES, 0.0)
        self._raster.draw_glyph(font.font, glyph)
        image = self._raster.render()
        extents = image.extents
        if not extents.height or not extents.width:
            return np.zeros((0, 0), np.uint8), 0, 0
        coverage = np.frombuffer(image.buffer, np.uint8).reshape(extents.height, extents.stride)[::-1, : extents.width]
        levels = ((coverage.astype(np.uint16) * MAX_LEVEL + 127) // 255).astype(np.uint8)
        return levels, extents.x_origin, -(extents.y_origin + extents.height)

    def _add(self, levels: NDArray[np.uint8], left: int, top: int) -> int:
        pad = self.pad_px
        # Ink further out than the border could not be held; no sane glyph comes near.
        levels = levels[max(0, -pad - top) : max(0, pad - top), max(0, -pad - left) : max(0, pad - left)]
        left, top = max(left, -pad), max(top, -pad)
        height, width = levels.shape
        padded = np.zeros((height, _round_up(width)), np.uint8)
        padded[:, :width] = levels
        words = padded.view("<u8").astype(np.uint64) if padded.size else np.zeros((0, 0), np.uint64)
        y, x = np.nonzero(words)
        row, first, end = self._num_glyphs, self._size, self._size + len(y)
        self._first, self._count = _grown(self._first, row + 1), _grown(self._count, row + 1)
        self._dy, self._dx, self._word = (_grown(array, end) for array in (self._dy, self._dx, self._word))
        self._first[row], self._count[row] = first, end - first
        self._dy[first:end], self._dx[first:end] = y + top, x * _WORD_PX + left
        self._word[first:end] = words[y, x]
        self._num_glyphs, self._size = row + 1, end
        return row


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
    keys = glyphs.slot * PHASES + np.where(glyphs.slot >= MISSING, 0, phase)
    inside = (x >= -pad) & (x < width_px + pad) & (glyphs.baseline_px < height_px + pad)
    if not inside.all():
        x, keys, baseline = x[inside], keys[inside], glyphs.baseline_px[inside]
    else:
        baseline = glyphs.baseline_px
    x, keys, baseline = _without_pile_ups(x, keys, baseline)
    instance, dy, dx, word = atlas.expand(atlas.rows(keys))
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
    levels = levels[:, 2 * pad : 2 * pad + width_px]
    return _GREY[levels]


_GREY = (255 - 17 * np.minimum(np.arange(256), MAX_LEVEL)).astype(np.uint8)
"""Grey value of each sum of ink levels."""


def _without_pile_ups(
    x: NDArray[np.int64], keys: NDArray[np.int64], baseline: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Drop glyphs beyond the number that a byte of ink can hold in one place, as in stacks of combining marks."""
    if len(x) <= _MAX_OVERLAP:
        return x, keys, baseline
    piled = np.flatnonzero(
        (x[_MAX_OVERLAP:] - x[:-_MAX_OVERLAP] <= 2) & (baseline[_MAX_OVERLAP:] == baseline[:-_MAX_OVERLAP])
    )
    if not len(piled):
        return x, keys, baseline
    keep = np.ones(len(x), np.bool_)
    keep[piled + _MAX_OVERLAP] = False
    return x[keep], keys[keep], baseline[keep]


def _round_up(width_px: int) -> int:
    return -(-width_px // _WORD_PX) * _WORD_PX


def _grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """The array, or a copy at least twice as long with room for `size` elements."""
    if size <= len(array):
        return array
    larger = np.zeros(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger
