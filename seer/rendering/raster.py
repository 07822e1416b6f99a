"""The direct raster: placed glyphs become a grey page, straight from cached glyph bitmaps.

Ink has sixteen levels, which a 4-bit PNG holds exactly. A glyph is kept as a short list of words: eight pixels of one
row in a uint64, one byte a pixel, blank words left out, at four horizontal sub-pixel phases and already shifted onto
word borders. Drawing a page lists the words of all its glyphs and adds them up with one `np.add.at`. Sixteen
overlapping glyphs fit in a byte (16 x 15 = 240 < 256), so no sum runs into its neighbour, and the order of drawing
cannot matter.

    a row of a page, in words of eight pixels:    |........|..gggggg|gg......|    a glyph's row across two of them
"""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.rendering.boxes import missing_box
from seer.rendering.fonts import FIRST_GLYPH, MISSING, NEWLINE, Font, FontChain
from seer.rendering.layout import PageLayout
from seer.rendering.measure import SUB_PX, Measure
from seer.rendering.placing import PlacedGlyphs, place_glyphs
from seer.rendering.png import ink_png

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


class WordStore:
    """Rows of words, each word at a place: a list of lists in flat arrays, for `expand` to unroll many rows at once."""

    def __init__(self) -> None:
        self.num_rows = 0
        self._size = 0
        self._first = np.zeros(1024, np.int64)
        self._count = np.zeros(1024, np.int64)
        self._place = np.zeros(8192, np.int64)
        self._word = np.zeros(8192, np.uint64)

    def append(self, counts: NDArray[np.int64], places: NDArray[np.int64], words: NDArray[np.uint64]) -> int:
        """Add rows with these numbers of words. Returns the first new row; the others follow it."""
        row, end_row, first, end = self.num_rows, self.num_rows + len(counts), self._size, self._size + len(words)
        self._first, self._count = _grown(self._first, end_row), _grown(self._count, end_row)
        self._place, self._word = _grown(self._place, end), _grown(self._word, end)
        self._first[row:end_row] = first + np.cumsum(counts) - counts
        self._count[row:end_row] = counts
        self._place[first:end], self._word[first:end] = places, words
        self.num_rows, self._size = end_row, end
        return row

    def counts(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._count[rows]

    def expand(
        self, rows: NDArray[np.int64], origins: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """(place + its row's origin, word) of every word of every row. Machine-size integers and `take` are quickest."""
        counts = self._count.take(rows)
        ends = np.cumsum(counts)
        index = np.repeat(self._first.take(rows) - (ends - counts), counts)
        index += _counting(len(index))
        places = np.repeat(origins, counts)
        places += self._place.take(index)
        return places, self._word.take(index)


class Atlas:
    """Glyphs of one font chain at one size, as words of a page of one width. Grows as glyphs are first drawn.

    A glyph is drawn once for each sub-pixel phase (`_glyphs`), and shifted once for each way in which it may lie
    across word borders (`_aligned`): what is left to do for a page is to add up words.
    """

    def __init__(self, chain: FontChain, size_px: float, page_width_px: int) -> None:
        self.chain = chain
        self.size_px = size_px
        self.pad_px = _round_up(int(size_px * 2) + 2 * _WORD_PX)
        """Blank border around the page under construction: how far ink may reach beyond it."""
        self.stride_px = _round_up(page_width_px) + 4 * self.pad_px
        self._row_of_key = np.full(chain.num_slots * PHASES, _UNBUILT, np.int64)
        self._row_of_box: dict[int, int] = {}
        self._glyphs = WordStore()
        self._aligned_of_row = np.full(1024 * _WORD_PX, _UNBUILT, np.int64)
        self._aligned = WordStore()
        # Pages may be drawn from several threads; the stores grow as they are read.
        self._lock = threading.Lock()

    def words(
        self, slots: NDArray[np.int64], phases: NDArray[np.int64], origins_px: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """(index, word): what to add to the page's words to draw each slot with its pen at that pixel of the page.

        Pixels count along the rows, `stride_px` a row.
        """
        with self._lock:
            return self._words(slots, phases, origins_px)

    def _words(
        self, slots: NDArray[np.int64], phases: NDArray[np.int64], origins_px: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        keys = self._rows(slots, phases) * _WORD_PX + (origins_px & (_WORD_PX - 1))
        if self._glyphs.num_rows * _WORD_PX > len(self._aligned_of_row):
            grown = np.full(2 * self._glyphs.num_rows * _WORD_PX, _UNBUILT, np.int64)
            grown[: len(self._aligned_of_row)] = self._aligned_of_row
            self._aligned_of_row = grown
        rows = self._aligned_of_row.take(keys)
        if (rows == _UNBUILT).any():
            self._align(np.unique(keys[rows == _UNBUILT]))
            rows = self._aligned_of_row.take(keys)
        return self._aligned.expand(rows, origins_px >> 3)

    def _align(self, keys: NDArray[np.int64]) -> None:
        """Shift glyphs onto word borders; what is pushed out of a word goes into the next one."""
        rows, shifts = np.divmod(keys, _WORD_PX)
        index = np.arange(len(keys))
        owner = np.repeat(index, self._glyphs.counts(rows))
        places, words = self._glyphs.expand(rows, np.zeros(len(keys), np.int64))
        at = places + shifts[owner]
        bits = ((at & (_WORD_PX - 1)) << 3).astype(np.uint64)
        # two steps, since shifting by 64 is undefined
        parts = np.concatenate((words << bits, (words >> np.uint64(1)) >> (np.uint64(63) - bits)))
        at = np.concatenate((at >> 3, (at >> 3) + 1))
        owner = np.concatenate((owner, owner))
        order = np.argsort(owner, kind="stable")
        order = order[parts[order] != 0]
        counts = np.bincount(owner[order], minlength=len(keys))
        first = self._aligned.append(counts, at[order], parts[order])
        self._aligned_of_row[keys] = first + index

    def _rows(self, slots: NDArray[np.int64], phases: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of each slot at its phase in `_glyphs`, drawing those not yet there."""
        boxes = slots >= MISSING
        keys = np.where(boxes, 0, slots * PHASES + phases)
        rows = self._row_of_key.take(keys)
        unbuilt = rows == _UNBUILT
        if unbuilt.any():
            self._build(np.unique(keys[unbuilt]))
            rows = self._row_of_key.take(keys)
        for place in np.flatnonzero(boxes).tolist():
            code = int(slots[place]) - MISSING
            if code not in self._row_of_box:
                box = missing_box(code, self.size_px) * np.uint8(MAX_LEVEL)
                self._row_of_box[code] = self._add(box[None], left=0, top=-len(box))
            rows[place] = self._row_of_box[code]
        return rows

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
            self._row_of_key[keys[batch]] = self._add(levels, left, -top) + np.arange(len(levels))

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
        places = (y + top) * self.stride_px + x * _WORD_PX + left
        return self._glyphs.append(np.bincount(glyph, minlength=num), places, words[glyph, y, x])


_LEVEL_OF_COVERAGE = ((np.arange(256) * MAX_LEVEL + 127) // 255).astype(np.uint8)


@lru_cache(maxsize=4)
def atlas_for(chain: FontChain, size_px: float, page_width_px: int) -> Atlas:
    return Atlas(chain, size_px, page_width_px)


def draw_page(page: PageLayout, measure: Measure) -> NDArray[np.uint8]:
    """Draw one page: uint8 (height_px, width_px), 255 white, in steps of 17."""
    ink = draw_ink(place_glyphs(page, measure), measure, page.width_px, page.height_px)
    # 17 times a number below 16 is its hexadecimal digit written twice
    grey = np.invert((ink << np.uint64(4)) | ink)
    return grey.astype("<u8", copy=False).view(np.uint8)[:, : page.width_px].copy()


def page_png(page: PageLayout, measure: Measure) -> bytes:
    """The PNG of one page: what `png_bytes` makes of `draw_page`, straight from the ink."""
    ink = draw_ink(place_glyphs(page, measure), measure, page.width_px, page.height_px)
    return ink_png(ink, page.width_px)


def draw_ink(glyphs: PlacedGlyphs, measure: Measure, width_px: int, height_px: int) -> NDArray[np.uint64]:
    """Ink levels of placed glyphs, 0 to 15 in each byte: uint64 (height_px, words); the first pixel lies lowest.

    The last word of a row may hold ink from beyond the page's edge.
    """
    atlas = atlas_for(measure.chain, measure.style.font_size_px, measure.style.page_width_px)
    pad, stride_px = atlas.pad_px, atlas.stride_px
    x, phase = np.divmod((glyphs.x_sub + SUB_PX // (2 * PHASES)) // (SUB_PX // PHASES), PHASES)
    slots, baseline = glyphs.slot, glyphs.baseline_px
    keep = (x >= -pad) & (x < width_px + pad) & (baseline < height_px + pad)
    keep[_MAX_OVERLAP:] &= ~_piled_up(x, baseline)
    if not keep.all():
        x, phase, slots, baseline = x[keep], phase[keep], slots[keep], baseline[keep]
    # The page lies two borders away from every edge: pens may stand one border outside it, ink reaches one further.
    index, words = atlas.words(slots, phase, (baseline + 2 * pad) * stride_px + x + 2 * pad)
    ink = np.zeros((height_px + 4 * pad) * stride_px // _WORD_PX, np.uint64)
    np.add.at(ink, index, words)
    rows = ink.reshape(-1, stride_px // _WORD_PX)
    first = 2 * pad // _WORD_PX
    return _clipped(rows[2 * pad : 2 * pad + height_px, first : first + _round_up(width_px) // _WORD_PX].copy())


_HIGH_NIBBLES = np.uint64(0xF0F0F0F0F0F0F0F0)


def _clipped(ink: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Sums of ink levels, none above the darkest; in place."""
    over = np.nonzero((ink & _HIGH_NIBBLES) != 0)  # finding set booleans is several times as quick
    ink[over] = np.minimum(ink[over].view(np.uint8), np.uint8(MAX_LEVEL)).view(np.uint64)
    return ink


def _piled_up(x: NDArray[np.int64], baseline: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each glyph from the 17th on: is it one too many in one place, as in stacks of combining marks?"""
    return (np.abs(x[_MAX_OVERLAP:] - x[:-_MAX_OVERLAP]) <= 2) & (baseline[_MAX_OVERLAP:] == baseline[:-_MAX_OVERLAP])


@lru_cache(maxsize=1)
def _numbers(size: int) -> NDArray[np.int64]:
    return np.arange(size)


def _counting(total: int) -> NDArray[np.int64]:
    """0, 1, 2 … below `total`, from a shared array: do not write to it."""
    return _numbers(1 << max(17, (total - 1).bit_length()))[:total]


def _round_up(width_px: int) -> int:
    return -(-width_px // _WORD_PX) * _WORD_PX


def _grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """The array, or a copy at least twice as long with room for `size` elements."""
    if size <= len(array):
        return array
    larger = np.zeros(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger
