"""The direct raster: draw a laid-out page as a grey image from cached glyph bitmaps.

    image = draw_page(layout, measure)       # uint8 (height_px, width_px)
    data = page_png(layout, measure)         # the same image as PNG bytes

Ink has sixteen levels, which a 4-bit PNG stores exactly. The page under construction is an array of words. A word is
a uint64 that holds eight pixels of one row, one byte per pixel.

An `Atlas` caches each glyph as a short list of words, without blank ones, for each *stand*: one of four horizontal
sub-pixel phases combined with one of eight alignments to word borders. To draw a page, the words of all its glyphs are
listed and added to the page with `np.add.at`. Sixteen overlapping glyphs fit into a byte (16 x 15 = 240 < 256), so a
sum never overflows into the next pixel, and the order of drawing does not matter.

    a row of a page, in words of eight pixels:    |........|..gggggg|gg......|    a glyph's row across two words

Pens are integers that count quarter pixels along the rows of the page:

    | word of the page | alignment, 3 bits | phase, 2 bits |
                       `------ stand, 5 bits -------------'
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
"""Part of every content hash. Increment it whenever the pixels of an unchanged page would change."""
MAX_LEVEL = 15
_PHASE_BITS, _ALIGNMENT_BITS = 2, 3
PHASES, _WORD_PX = 1 << _PHASE_BITS, 1 << _ALIGNMENT_BITS
_PHASE_SHIFT = SUB_PX.bit_length() - 1 - _PHASE_BITS
"""Right shift from layout units (1/4096 px) to phases (1/4 px)."""
_STAND_BITS = _PHASE_BITS + _ALIGNMENT_BITS
_STANDS = 1 << _STAND_BITS
"""The number of combinations of phase and alignment."""
_MAX_OVERLAP = 16
"""Glyphs that may overlap in one place without an overflow."""
_UNBUILT = 0
"""The row number of a glyph that has not been drawn yet."""
_MAX_BATCH_BYTES = 4 << 20
"""Memory for the bitmaps of the glyphs that are rasterised together."""


class WordStore:
    """A list of rows, each a list of (place, word), stored in flat arrays so that `add` can unroll many rows at once.

    Words are stored in pairs, which halves the number of entries to unroll. Row 0 is empty.
    """

    def __init__(self) -> None:
        self.num_rows = 1
        self._size = 0
        self._spans = np.zeros((1024, 2), np.int64)
        """(rows, 2): index of the first pair, number of pairs."""
        self._pairs = np.zeros((4096, 4), np.int64)
        """(pairs, 4): place, word, place, word."""

    def append(self, counts: NDArray[np.int64], places: NDArray[np.int64], words: NDArray[np.int64]) -> int:
        """Append rows.

        Args:
            counts: (new rows,), the number of words of each row.
            places: (words,), the offset of each word from its row's origin, in words of the page.
            words: (words,), eight pixels each, all rows one after the other.

        Returns:
            The number of the first new row; the others follow it.
        """
        pairs = (counts + 1) // 2
        first = self._size + np.cumsum(pairs) - pairs
        row, end_row, end = self.num_rows, self.num_rows + len(counts), self._size + int(pairs.sum())
        self._spans, self._pairs = _grown(self._spans, end_row), _grown(self._pairs, end)
        self._spans[row:end_row, 0], self._spans[row:end_row, 1] = first, pairs
        # If a row has an odd number of words, the second half of its last pair stays zero, which adds nothing.
        # `at` maps each word to its half pair: a row starts at twice its first pair.
        at = np.repeat(2 * first - (np.cumsum(counts) - counts), counts) + np.arange(len(words))
        halves = self._pairs.reshape(-1, 2)
        halves[at, 0], halves[at, 1] = places, words
        self.num_rows, self._size = end_row, end
        return row

    def add(self, rows: NDArray[np.int32], origins: NDArray[np.int64], page: NDArray[np.int64]) -> None:
        """Add all words of the given rows to the page, in place.

        Args:
            rows: (glyphs,), numbers of rows; a row may occur more than once.
            origins: (glyphs,), the origin of each row, in words of the page.
            page: the words of the page, one-dimensional.
        """
        # (first pair, number of pairs) of each row.
        heads = self._spans.take(rows, axis=0)
        counts = heads[:, 1].copy()
        # The pairs of all rows are listed one after the other. Entry k of the list belongs to the row whose first entry
        # is e, and is pair `first + k - e` of the store. So each row keeps (first - e, origin), where e is the number
        # of pairs of the rows before it. The columns are computed in place, and both are repeated together, because
        # that takes half the time of two separate repeats.
        heads[:, 0] += counts
        heads[:, 0] -= np.cumsum(counts)
        heads[:, 1] = origins
        heads = np.repeat(heads, counts, axis=0)
        index = heads[:, 0] + _counting(len(heads))
        pairs = self._pairs.take(index, axis=0)
        # `np.add.at` also adds correctly when a place occurs more than once.
        for half in (0, 2):
            np.add(pairs[:, half], heads[:, 1], out=index)
            np.add.at(page, index, pairs[:, half + 1])


class Atlas:
    """The glyphs of a font chain at one size, as words of a page of one width.

    A glyph is rasterised when it is first drawn. An atlas may be used from several threads.
    """

    def __init__(self, chain: FontChain, size_px: float, page_width_px: int) -> None:
        self.chain = chain
        self.size_px = size_px
        self.pad_px = _round_up(int(size_px * 2) + 2 * _WORD_PX)
        """Width of the blank border around the page under construction, which takes ink beyond the page's edge."""
        self.stride_px = _round_up(page_width_px) + 4 * self.pad_px
        # Indexed by slot * _STANDS + stand. The table is large, but the operating system allocates a zeroed page of
        # memory only when it is first written.
        self._row_of_key = np.zeros(chain.num_slots * _STANDS, np.int32)
        self._slot_of_box: dict[int, int] = {}
        self._store = WordStore()
        # Threads that draw pages at the same time also add glyphs to the store.
        self._lock = threading.Lock()

    def draw(self, slots: NDArray[np.int64], pens: NDArray[np.int64], page: NDArray[np.int64]) -> None:
        """Draw slots at pen positions onto the page, in place.

        Args:
            slots: (glyphs,), slots of the font chain.
            pens: (glyphs,), positions in quarter pixels along the rows of the page, `stride_px` pixels per row.
            page: the words of the page, one-dimensional.
        """
        with self._lock:
            keys = self._own_slots(slots) * _STANDS
            keys += pens & (_STANDS - 1)
            rows = self._row_of_key.take(keys)
            if not rows.all():
                # A glyph is built for all alignments of a phase at once, so clear the alignment of its key.
                unbuilt = keys[rows == _UNBUILT]
                self._build(np.unique(unbuilt - unbuilt % _STANDS + unbuilt % PHASES))
                rows = self._row_of_key.take(keys)
        # This is safe without the lock: rows that have a number are complete, and a growing store keeps them.
        self._store.add(rows, pens >> _STAND_BITS, page)

    def _own_slots(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Replace the slots of missing characters by slots of this atlas, which follow those of the chain."""
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
        """Add the box of a missing character. Boxes are aligned to whole pixels, so all phases are equal."""
        slot = self._slot_of_box[code] = self.chain.num_slots + len(self._slot_of_box)
        self._row_of_key = _grown(self._row_of_key, (slot + 1) * _STANDS)
        box = missing_box(code, self.size_px) * np.uint8(MAX_LEVEL)
        levels = np.pad(box, ((0, 0), (0, _round_up(box.shape[1]) - box.shape[1])))
        self._add(np.repeat(levels[None], PHASES, axis=0), 0, -len(box), slot * _STANDS + np.arange(PHASES))

    def _build(self, keys: NDArray[np.int64]) -> None:
        """Rasterise glyphs and add them to the store, in batches of at most _MAX_BATCH_BYTES.

        `keys` are slot * _STANDS + phase, that is, with alignment 0.
        """
        slots, phases = np.divmod(keys, _STANDS)
        marks = slots == NEWLINE
        slots = np.where(marks, self.chain.newline_slot, slots)
        glyphs = [self.chain.locate(slot) if slot >= FIRST_GLYPH else None for slot in slots.tolist()]
        left, bottom, right, top = self._bounds(glyphs)
        step = max(1, _MAX_BATCH_BYTES // ((right - left) * (top - bottom)))
        for first in range(0, len(keys), step):
            batch = slice(first, first + step)
            levels = self._rasterise(glyphs[batch], phases[batch].tolist(), (left, bottom, right, top))
            # A newline mark is half as dark as text, so that it is not mistaken for a character of the source.
            levels[marks[batch]] //= 2
            self._add(levels, left, -top, keys[batch])

    def _bounds(self, glyphs: list[tuple[Font, int] | None]) -> tuple[int, int, int, int]:
        """Return (left, bottom, right, top) in pixels from the pen: a box that holds each of the glyphs at any phase.

        Left and right are multiples of the word width.
        """
        left, bottom, right, top = 0.0, 0.0, 1.0, 1.0
        for glyph in glyphs:
            extents = glyph and glyph[0].font.get_glyph_extents(glyph[1])
            if glyph and extents:
                scale = self.size_px / glyph[0].upem
                left = min(left, extents.x_bearing * scale)
                right = max(right, (extents.x_bearing + extents.width) * scale)
                top = max(top, extents.y_bearing * scale)
                bottom = min(bottom, (extents.y_bearing + extents.height) * scale)
        # The border, at least twice the font size, limits how far ink can reach from the pen. Real glyphs stay within.
        pad = self.pad_px
        first, last = max(-pad, -_round_up(1 - math.floor(left))), min(pad, _round_up(math.ceil(right) + 2))
        return first, max(-pad, math.floor(bottom) - 1), last, min(pad, math.ceil(top) + 1)

    def _rasterise(
        self, glyphs: list[tuple[Font, int] | None], phases: list[int], bounds: tuple[int, int, int, int]
    ) -> NDArray[np.uint8]:
        """Rasterise glyphs within common bounds.

        Returns ink levels, uint8 (glyphs, height_px, width_px), rows from the top.
        """
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
        # HarfBuzz stores rows from the bottom.
        coverage = np.frombuffer(b"".join(pictures), np.uint8).reshape(len(glyphs), height, width)[:, ::-1]
        return _LEVEL_OF_COVERAGE[coverage]

    def _add(self, levels: NDArray[np.uint8], left: int, top: int, keys: NDArray[np.int64]) -> None:
        """Add the bitmaps of glyphs to the store, at all alignments.

        Args:
            levels: uint8 (glyphs, height_px, width_px), ink levels; the width is a multiple of the word width.
            left: horizontal distance in pixels from the pen to the first column, a multiple of the word width.
            top: vertical distance in pixels from the baseline to the first row, positive downwards.
            keys: (glyphs,), keys with alignment 0; the keys of the other alignments are derived from them.
        """
        num, height, width = levels.shape
        shifted = np.zeros((num, height, width + _WORD_PX), np.uint8)
        for alignment in range(_WORD_PX):
            shifted[:] = 0
            shifted[:, :, alignment : alignment + width] = levels
            # Only words with ink are kept, each with its offset from the pen's word on the page.
            words = shifted.view(np.int64)
            glyph, y, x = np.nonzero(words)
            places = ((y + top) * self.stride_px + left) // _WORD_PX + x
            first = self._store.append(np.bincount(glyph, minlength=num), places, words[glyph, y, x])
            self._row_of_key[keys + alignment * PHASES] = first + np.arange(num)


_LEVEL_OF_COVERAGE = ((np.arange(256) * MAX_LEVEL + 127) // 255).astype(np.uint8)
"""The ink level, 0 to 15, of each coverage value from 0 to 255, rounded."""


@lru_cache(maxsize=4)
def atlas_for(chain: FontChain, size_px: float, page_width_px: int) -> Atlas:
    """Return the atlas for a font chain, font size and page width. The last four are kept."""
    return Atlas(chain, size_px, page_width_px)


def draw_page(page: PageLayout, measure: Measure) -> NDArray[np.uint8]:
    """Draw one page: uint8 (height_px, width_px), 255 for white, in steps of 17."""
    ink = draw_ink(place_glyphs(page, measure), measure, page.width_px, page.height_px).view(np.uint64)
    # A level times 17 is its hexadecimal digit written twice. Words hold eight pixels, so this is eight at a time.
    grey = ink << np.uint64(4)
    grey |= ink
    np.invert(grey, out=grey)
    return grey.view(np.uint8)[:, : page.width_px].copy()


def page_png(page: PageLayout, measure: Measure) -> bytes:
    """Return the PNG of one page: the image of `draw_page`, encoded directly from ink levels."""
    ink = draw_ink(place_glyphs(page, measure), measure, page.width_px, page.height_px)
    return ink_png(ink, page.width_px)


def draw_ink(glyphs: PlacedGlyphs, measure: Measure, width_px: int, height_px: int) -> NDArray[np.uint8]:
    """Draw placed glyphs as ink levels from 0 to 15.

    Returns uint8 (height_px, width_px rounded up to whole words), contiguous. Columns beyond `width_px` may hold ink
    from outside the page.
    """
    atlas = atlas_for(measure.chain, measure.style.font_size_px, measure.style.page_width_px)
    pad, stride_px = atlas.pad_px, atlas.stride_px
    x, slots, baseline = (glyphs.x_sub + (1 << _PHASE_SHIFT >> 1)) >> _PHASE_SHIFT, glyphs.slot, glyphs.baseline_px
    # Drop glyphs whose pens lie more than one border outside the page. Most pages have none.
    first, end, bottom = -pad * PHASES, (width_px + pad) * PHASES, height_px + pad
    if x.min(initial=0) < first or x.max(initial=0) >= end or baseline.max(initial=0) >= bottom:
        near = (x >= first) & (x < end) & (baseline < bottom)
        x, slots, baseline = x[near], slots[near], baseline[near]
    # The page lies two borders from each edge of the array: a pen may be one border outside the page, and its ink
    # reaches one border further.
    pens = baseline * (stride_px * PHASES)
    pens += x
    pens += 2 * pad * (stride_px + 1) * PHASES
    if len(piled := _piled_up(pens)):
        slots, pens = np.delete(slots, piled), np.delete(pens, piled)
    ink = np.zeros((height_px + 4 * pad) * stride_px // _WORD_PX, np.int64)
    atlas.draw(slots, pens, ink)
    rows = ink.view(np.uint8).reshape(-1, stride_px)[2 * pad : 2 * pad + height_px]
    # Overlapping ink is capped. Comparing with a row of constants is faster than comparing with a scalar.
    darkest = np.full(_round_up(width_px), MAX_LEVEL, np.uint8)
    return np.minimum(rows[:, 2 * pad : 2 * pad + len(darkest)], darkest)


def _piled_up(pens: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices of glyphs that would overflow a byte, such as those of tall stacks of combining marks.

    A glyph is dropped if the glyph _MAX_OVERLAP places before it lies within two pixels.
    """
    pens_px = pens >> _PHASE_BITS
    steps = pens_px[_MAX_OVERLAP:] - pens_px[:-_MAX_OVERLAP]
    steps += 2
    # Viewed as unsigned, negative numbers are large, so one comparison finds the steps from -2 to 2.
    return (steps.view(np.uint64) <= 4).nonzero()[0] + _MAX_OVERLAP


@lru_cache(maxsize=1)
def _numbers(size: int) -> NDArray[np.int64]:
    """Return 0, 1, 2, ... below `size`; the last array is kept."""
    return np.arange(size)


def _counting(total: int) -> NDArray[np.int64]:
    """Return 0, 1, 2, ... below `total`, a view of a shared array that must not be written to."""
    return _numbers(1 << max(16, (total - 1).bit_length()))[:total]


def _round_up(width_px: int) -> int:
    """Round a width up to whole words."""
    return -(-width_px // _WORD_PX) * _WORD_PX


def _grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Return the array if it has at least `size` rows, else a copy that is at least twice as long, zero-padded."""
    if size <= len(array):
        return array
    larger = np.zeros((max(size, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
