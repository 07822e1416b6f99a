"""The direct raster: placed glyphs become a grey page, straight from cached glyph bitmaps.

Ink has sixteen levels, which a 4-bit PNG holds exactly. A glyph is kept as a short list of words: eight pixels of one
row in a uint64, one byte a pixel, blank words left out, for each way in which it may stand: four horizontal sub-pixel
phases, eight alignments to word borders. Drawing a page lists the words of all its glyphs and adds them up with
`np.add.at`. Sixteen overlapping glyphs fit in a byte (16 x 15 = 240 < 256), so no sum runs into its neighbour, and
the order of drawing cannot matter.

    a row of a page, in words of eight pixels:    |........|..gggggg|gg......|    a glyph's row across two of them

Pens count in quarter pixels along the rows of the page. Of such a number the low two bits are the phase, the next
three the alignment, the rest the word.
"""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.rendering.drawing.png import ink_png
from seer.rendering.layout.boxes import missing_box
from seer.rendering.layout.fonts import FIRST_GLYPH, MISSING, NEWLINE, Font, FontChain
from seer.rendering.layout.lines import PageLayout
from seer.rendering.layout.measure import SUB_PX, Measure
from seer.rendering.layout.placing import PlacedGlyphs, place_glyphs

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 1
"""Part of every content hash: raise it whenever the same page would come out with other pixels."""
MAX_LEVEL = 15
_PHASE_BITS, _ALIGNMENT_BITS = 2, 3
PHASES, _WORD_PX = 1 << _PHASE_BITS, 1 << _ALIGNMENT_BITS
_PHASE_SHIFT = SUB_PX.bit_length() - 1 - _PHASE_BITS
"""From layout units to phases."""
_STAND_BITS = _PHASE_BITS + _ALIGNMENT_BITS
_STANDS = 1 << _STAND_BITS
"""Ways in which a glyph may stand across words."""
_MAX_OVERLAP = 16
_UNBUILT = 0
_MAX_BATCH_BYTES = 4 << 20


class WordStore:
    """Rows of words, each word at a place: a list of lists in flat arrays, for `add` to unroll many rows at once.

    Two words and their places are kept, and fetched, together: that halves the list to unroll. Row 0 is empty.
    """

    def __init__(self) -> None:
        self.num_rows = 1
        self._size = 0
        self._spans = np.zeros((1024, 2), np.int64)
        """first pair, number of pairs"""
        self._pairs = np.zeros((4096, 4), np.int64)
        """place, word, place, word"""

    def append(self, counts: NDArray[np.int64], places: NDArray[np.int64], words: NDArray[np.int64]) -> int:
        """Add rows with these numbers of words. Returns the first new row; the others follow it."""
        pairs = (counts + 1) // 2
        first = self._size + np.cumsum(pairs) - pairs
        row, end_row, end = self.num_rows, self.num_rows + len(counts), self._size + int(pairs.sum())
        self._spans, self._pairs = _grown(self._spans, end_row), _grown(self._pairs, end)
        self._spans[row:end_row, 0], self._spans[row:end_row, 1] = first, pairs
        # Where a row's number of words is odd, the last pair's other half stays zero, which adds nothing.
        at = np.repeat(2 * first - (np.cumsum(counts) - counts), counts) + np.arange(len(words))
        halves = self._pairs.reshape(-1, 2)
        halves[at, 0], halves[at, 1] = places, words
        self.num_rows, self._size = end_row, end
        return row

    def add(self, rows: NDArray[np.int32], origins: NDArray[np.int64], page: NDArray[np.int64]) -> None:
        """Add every word of every row to the page's words, at its place + its row's origin."""
        heads = self._spans.take(rows, axis=0)
        counts = heads[:, 1].copy()
        heads[:, 0] += counts
        heads[:, 0] -= np.cumsum(counts)
        heads[:, 1] = origins
        # One repeat of both numbers and one take of both words with their places: half the time of one by one.
        heads = np.repeat(heads, counts, axis=0)
        index = heads[:, 0] + _counting(len(heads))
        pairs = self._pairs.take(index, axis=0)
        for half in (0, 2):
            np.add(pairs[:, half], heads[:, 1], out=index)
            np.add.at(page, index, pairs[:, half + 1])


class Atlas:
    """Glyphs of one font chain at one size, as words of a page of one width. Grows as glyphs are first drawn."""

    def __init__(self, chain: FontChain, size_px: float, page_width_px: int) -> None:
        self.chain = chain
        self.size_px = size_px
        self.pad_px = _round_up(int(size_px * 2) + 2 * _WORD_PX)
        """Blank border around the page under construction: how far ink may reach beyond it."""
        self.stride_px = _round_up(page_width_px) + 4 * self.pad_px
        # The row of slot * _STANDS + stand. Memory that is never touched costs nothing.
        self._row_of_key = np.zeros(chain.num_slots * _STANDS, np.int32)
        self._slot_of_box: dict[int, int] = {}
        self._store = WordStore()
        # Pages may be drawn from several threads; the store grows as it is read.
        self._lock = threading.Lock()

    def draw(self, slots: NDArray[np.int64], pens: NDArray[np.int64], page: NDArray[np.int64]) -> None:
        """Add to the page's words what draws each slot with its pen at that place.

        Pens are in phases, `PHASES` a pixel, along the rows, `stride_px` pixels a row.
        """
        with self._lock:
            keys = self._own_slots(slots) * _STANDS
            keys += pens & (_STANDS - 1)
            rows = self._row_of_key.take(keys)
            if not rows.all():
                unbuilt = keys[rows == _UNBUILT]
                self._build(np.unique(unbuilt - unbuilt % _STANDS + unbuilt % PHASES))
                rows = self._row_of_key.take(keys)
        # Outside the lock: rows that have a number are complete, and a store that grows leaves them as they are.
        self._store.add(rows, pens >> _STAND_BITS, page)

    def _own_slots(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """The slots, with the boxes of missing characters numbered on from the chain's glyphs."""
        boxes = np.flatnonzero(slots >= MISSING)
        if not len(boxes):
            return slots
        codes = (slots[boxes] - MISSING).tolist()
        for code in codes:
            if code not in self._slot_of_box:
                self._add_box(code)
        slots = slots.copy()
        slots[boxes] = [self._slot_of_box[code] for code in codes]
        return slots

    def _add_box(self, code: int) -> None:
        """Boxes stand on whole pixels: alike at every phase."""
        slot = self._slot_of_box[code] = self.chain.num_slots + len(self._slot_of_box)
        self._row_of_key = _grown(self._row_of_key, (slot + 1) * _STANDS)
        box = missing_box(code, self.size_px) * np.uint8(MAX_LEVEL)
        levels = np.pad(box, ((0, 0), (0, _round_up(box.shape[1]) - box.shape[1])))
        self._add(np.repeat(levels[None], PHASES, axis=0), 0, -len(box), slot * _STANDS + np.arange(PHASES))

    def _build(self, keys: NDArray[np.int64]) -> None:
        """Add glyphs by slot and phase, as many at a time as a few megabytes hold. `keys` have alignment 0."""
        slots, phases = np.divmod(keys, _STANDS)
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
            self._add(levels, left, -top, keys[batch])

    def _bounds(self, glyphs: list[tuple[Font, int] | None]) -> tuple[int, int, int, int]:
        """(left, bottom, right, top) in pixels that hold every one of the glyphs at any phase; sides on word borders."""
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
        first, last = max(-pad, -_round_up(1 - math.floor(left))), min(pad, _round_up(math.ceil(right) + 2))
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

    def _add(self, levels: NDArray[np.uint8], left: int, top: int, keys: NDArray[np.int64]) -> None:
        """Keep (glyphs, rows, pixels) whose first pixel stands `left` of the pen and `top` below the baseline.

        `left` and the number of pixels are whole words. `keys` have alignment 0; the others are filled in with them.
        """
        num, height, width = levels.shape
        shifted = np.zeros((num, height, width + _WORD_PX), np.uint8)
        for alignment in range(_WORD_PX):
            shifted[:] = 0
            shifted[:, :, alignment : alignment + width] = levels
            words = shifted.view(np.int64)
            glyph, y, x = np.nonzero(words)
            places = ((y + top) * self.stride_px + left) // _WORD_PX + x
            first = self._store.append(np.bincount(glyph, minlength=num), places, words[glyph, y, x])
            self._row_of_key[keys + alignment * PHASES] = first + np.arange(num)


_LEVEL_OF_COVERAGE = ((np.arange(256) * MAX_LEVEL + 127) // 255).astype(np.uint8)


@lru_cache(maxsize=4)
def atlas_for(chain: FontChain, size_px: float, page_width_px: int) -> Atlas:
    return Atlas(chain, size_px, page_width_px)


def draw_page(page: PageLayout, measure: Measure) -> NDArray[np.uint8]:
    """Draw one page: uint8 (height_px, width_px), 255 white, in steps of 17."""
    ink = draw_ink(place_glyphs(page, measure), measure, page.width_px, page.height_px).view(np.uint64)
    # 17 times a number below 16 is its hexadecimal digit written twice
    grey = ink << np.uint64(4)
    grey |= ink
    np.invert(grey, out=grey)
    return grey.view(np.uint8)[:, : page.width_px].copy()


def page_png(page: PageLayout, measure: Measure) -> bytes:
    """The PNG of one page: what `png_bytes` makes of `draw_page`, straight from the ink."""
    ink = draw_ink(place_glyphs(page, measure), measure, page.width_px, page.height_px)
    return ink_png(ink, page.width_px)


def draw_ink(glyphs: PlacedGlyphs, measure: Measure, width_px: int, height_px: int) -> NDArray[np.uint8]:
    """Ink levels of placed glyphs, 0 to 15: uint8 (height_px, width_px rounded up to whole words).

    What lies beyond the width may hold ink from beyond the page's edge.
    """
    atlas = atlas_for(measure.chain, measure.style.font_size_px, measure.style.page_width_px)
    pad, stride_px = atlas.pad_px, atlas.stride_px
    x, slots, baseline = (glyphs.x_sub + (1 << _PHASE_SHIFT >> 1)) >> _PHASE_SHIFT, glyphs.slot, glyphs.baseline_px
    first, end, bottom = -pad * PHASES, (width_px + pad) * PHASES, height_px + pad
    if x.min(initial=0) < first or x.max(initial=0) >= end or baseline.max(initial=0) >= bottom:
        near = (x >= first) & (x < end) & (baseline < bottom)
        x, slots, baseline = x[near], slots[near], baseline[near]
    # The page lies two borders away from every edge: pens may stand one border outside it, ink reaches one further.
    pens = baseline * (stride_px * PHASES)
    pens += x
    pens += 2 * pad * (stride_px + 1) * PHASES
    if len(piled := _piled_up(pens)):
        slots, pens = np.delete(slots, piled), np.delete(pens, piled)
    ink = np.zeros((height_px + 4 * pad) * stride_px // _WORD_PX, np.int64)
    atlas.draw(slots, pens, ink)
    rows = ink.view(np.uint8).reshape(-1, stride_px)[2 * pad : 2 * pad + height_px]
    darkest = np.full(_round_up(width_px), MAX_LEVEL, np.uint8)  # a whole row: against one number it takes longer
    return np.minimum(rows[:, 2 * pad : 2 * pad + len(darkest)], darkest)


def _piled_up(pens: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which glyphs are one too many in one place, as in stacks of combining marks."""
    pens_px = pens >> _PHASE_BITS
    steps = pens_px[_MAX_OVERLAP:] - pens_px[:-_MAX_OVERLAP]
    steps += 2
    # As unsigned numbers those below zero are large, so that one comparison finds steps from -2 to 2.
    return (steps.view(np.uint64) <= 4).nonzero()[0] + _MAX_OVERLAP


@lru_cache(maxsize=1)
def _numbers(size: int) -> NDArray[np.int64]:
    return np.arange(size)


def _counting(total: int) -> NDArray[np.int64]:
    """0, 1, 2 … below `total`, from a shared array: do not write to it."""
    return _numbers(1 << max(16, (total - 1).bit_length()))[:total]


def _round_up(width_px: int) -> int:
    return -(-width_px // _WORD_PX) * _WORD_PX


def _grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """The array, or a copy at least twice as long with room for `size` elements."""
    if size <= len(array):
        return array
    larger = np.zeros((max(size, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
