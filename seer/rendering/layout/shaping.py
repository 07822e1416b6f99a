"""Shaping: glyphs of scripts whose letters join, stack or reorder, and of combining marks, through HarfBuzz.

    flags = complex_flags(codes)                                     # None if the text needs no shaping
    starts, ends = complex_runs(flags, codes, font_index, levels)    # [start, end) of each run
    run = shape(chain, font_index=0, text="...", rtl=True)           # a ShapedRun

Most text needs no shaping and is measured by table look-ups. A *complex run* is a stretch of characters of one font
that must be shaped together, such as an Arabic or Indic word, or a Latin letter with its combining marks. The layout
uses a run's advances, the raster and the PDF writer use its glyphs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from seer.errors import InputError
from seer.rendering.layout.breaking import CM, classes
from seer.rendering.layout.fonts import FontChain

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COMPLEX_RANGES = (
    (0x0300, 0x036F),  # combining marks
    (0x0483, 0x0489),
    (0x0591, 0x08FF),  # Hebrew, Arabic, Syriac, Thaana, N'Ko, ...
    (0x0900, 0x109F),  # Indic scripts, Thai, Lao, Tibetan, Myanmar
    (0x1700, 0x18AF),  # Philippine scripts, Khmer, Mongolian
    (0x1900, 0x1CFF),
    (0x1DC0, 0x1DFF),
    (0x20D0, 0x20FF),
    (0x302A, 0x302F),
    (0x3099, 0x309A),
    (0xA800, 0xABFF),
    (0xFB1D, 0xFDFF),
    (0xFE20, 0xFE2F),
    (0xFE70, 0xFEFC),
    (0x10A00, 0x11FFF),
    (0x1E800, 0x1EEFF),
)
_FIRST_COMPLEX_CODE = 0x0300
_is_complex = np.zeros(0, np.bool_)


@dataclass(frozen=True)
class ShapedRun:
    """The glyphs of one run from left to right. Positions are in em from the run's left edge; y points upwards."""

    advance_em: NDArray[np.float64]
    """(characters,): the advance of each cluster at its first character, 0 at its other characters."""
    slot: NDArray[np.int64]
    """(glyphs,): slots of the font chain."""
    x_em: NDArray[np.float64]
    """(glyphs,)"""
    y_em: NDArray[np.float64]
    """(glyphs,)"""
    character: NDArray[np.int64]
    """(glyphs,): the index in the run of the character that each glyph belongs to."""


def complex_runs(
    flags: NDArray[np.bool_],
    codes: NDArray[np.uint32],
    font_index: NDArray[np.int8],
    levels: NDArray[np.uint8] | None = None,
    cuts: NDArray[np.int32] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the runs to shape. A run has one font and one direction and does not cross a cut.

    Args:
        flags: bool (characters,), the result of `complex_flags(codes)`; it is overwritten.
        codes: uint32 (characters,) code points.
        font_index: int8 (characters,), the font that draws each character; -1 if none does.
        levels: uint8 (characters,) bidirectional levels; None or empty if all text runs from left to right.
        cuts: int32 (cuts,) offsets that no run crosses.

    Returns:
        (starts, ends): int64 (runs,) each; run k covers the characters [starts[k], ends[k]).
    """
    # A mark is shaped with the letter before it. Joiners act on their neighbours and belong to the character before.
    marks = classes(codes) == CM
    flags[:-1] |= marks[1:] & flags[1:]
    joiners = np.flatnonzero((codes == 0x200C) | (codes == 0x200D))
    if len(joiners):
        font_index = font_index.copy()
        font_index[joiners] = font_index[joiners - 1]
        flags[joiners] = flags[joiners - 1]
    flags &= font_index >= 0
    # continues[k]: character k belongs to the same run as character k - 1.
    continues = flags[1:] & flags[:-1] & (font_index[1:] == font_index[:-1])
    if levels is not None and len(levels):
        continues &= levels[1:] == levels[:-1]
    continues = np.concatenate(([False], continues, [False]))
    if cuts is not None:
        continues[cuts] = False
    starts = np.flatnonzero(flags & ~continues[:-1])
    return starts, np.flatnonzero(flags & ~continues[1:]) + 1


def complex_flags(codes: NDArray[np.uint32]) -> NDArray[np.bool_] | None:
    """Return a mask, bool (characters,), of the characters that need shaping, or None if there are none.

    Text below U+0300, the common case, is answered by a single comparison of the array.
    """
    global _is_complex
    high = codes.take((codes >= _FIRST_COMPLEX_CODE).nonzero()[0])
    if not len(high):
        return None
    if not len(_is_complex):
        table = np.zeros(0x110000, np.bool_)
        for first, last in _COMPLEX_RANGES:
            table[first : last + 1] = True
        _is_complex = table
    return _is_complex.take(codes) if _is_complex.take(high).any() else None


@lru_cache(maxsize=65_536)
def shape(chain: FontChain, font_index: int, text: str, rtl: bool) -> ShapedRun:
    """Shape one run of text in one font of the chain, from right to left if `rtl`.

    Raises InputError if the run is longer than HarfBuzz can shape.
    """
    import uharfbuzz as hb

    font = chain.fonts[font_index]
    base = chain.font_base[font_index]
    buffer = hb.Buffer()
    buffer.add_codepoints([ord(character) for character in text])
    buffer.guess_segment_properties()
    buffer.direction = "rtl" if rtl else "ltr"
    try:
        hb.shape(font.font, buffer)
    except MemoryError:  # HarfBuzz limits the work for one run, independent of the memory available.
        raise InputError(
            f"{len(text)} characters of a complex script without a line break: too many to shape at once; "
            "break the line"
        ) from None
    # A cluster's index is that of its first character, so several glyphs may add to one character's advance.
    advances = [0.0] * len(text)
    slots, x_em, y_em, characters, pen = [], [], [], [], 0.0
    for info, position in zip(buffer.glyph_infos, buffer.glyph_positions, strict=True):
        advances[info.cluster] += position.x_advance / font.upem
        slots.append(base + info.codepoint)
        x_em.append((pen + position.x_offset) / font.upem)
        y_em.append(position.y_offset / font.upem)
        characters.append(info.cluster)
        pen += position.x_advance
    return ShapedRun(
        np.array(advances), np.array(slots, np.int64), np.array(x_em), np.array(y_em), np.array(characters, np.int64)
    )
