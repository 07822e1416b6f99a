"""Join the characters of a PDF page into segments: words in one line without a wide gap between them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from seer.rendering.formats.pdf.characters import LINE_HYPHENS, code_points, is_space
from seer.rendering.formats.scripts import lowered, raised

Glyph = tuple[str, int]
"""A character of the text and its place among the page's characters, -1 for one that the order adds."""
Line = list[Glyph]
COLUMN_GAP_EM = 1.0
"""A wider gap ends a segment, and a gutter is at least this wide."""
_SPACE_EM = 0.15
"""A narrower gap is none."""
_LINE_STEP_EM = 0.6
"""Characters whose middles differ by more are not in one line."""
_WORD = re.compile(r"[^\s\0]+")
SCRIPT_SIZE = 0.85
"""Characters of at most this size, relative to the line, may be superscripts and subscripts."""
_SAME_HEIGHT = 0.02
_SCRIPT_SHIFT = 0.12
"""How far a script's line lies above or below that of its text, relative to the text's height."""
_HYPHENS = np.array([ord(hyphen) for hyphen in sorted(LINE_HYPHENS)])


@dataclass
class Segment:
    """Words in one line without a wide gap between them."""

    glyphs: Line
    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2

    @property
    def height(self) -> float:
        return self.bottom - self.top


def ink_of(text: str, boxes: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the places of the visible characters that have a box."""
    return np.flatnonzero(~is_space(text) & (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1]))


def steps(boxes: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the horizontal gap from each box to the next, negative where they overlap, and the height of the higher one."""
    before, after = boxes[:-1], boxes[1:]
    gaps = np.maximum(after[:, 0] - before[:, 2], before[:, 0] - after[:, 2])
    heights = boxes[:, 3] - boxes[:, 1]
    return gaps, np.maximum(heights[:-1], heights[1:])


def segments_of(text: str, boxes: NDArray[np.float64]) -> list[Segment]:
    """Join the characters of a page into segments, in pdfium's order.

    A character without a box, such as a combining mark, stays with the one before it.
    """
    ink = ink_of(text, boxes)
    if not len(ink):
        return []
    own = boxes[ink]
    gaps, ems = steps(own)
    middles = (own[:, 1] + own[:, 3]) / 2
    ends = (
        (gaps > COLUMN_GAP_EM * ems)
        # A raised or lowered character overlaps its line; the next line does not.
        | (np.abs(np.diff(middles)) > _LINE_STEP_EM * ems)
        # The start of another column or of the next line lies to the left.
        | (own[1:, 2] < own[:-1, 0] - 0.5 * ems)
        | np.isin(code_points(text)[ink[:-1]], _HYPHENS)
    )
    close = set(ink[1:][gaps < _SPACE_EM * ems].tolist())
    starts = [0, *(np.flatnonzero(ends) + 1).tolist(), len(ink)]
    segments = []
    for number, (first, last) in enumerate(pairwise(starts)):
        until = int(ink[last]) if last < len(ink) else len(text)
        lead = 0 if number == 0 else int(ink[first])
        extent = own[first:last]
        left, top = extent[:, :2].min(0).tolist()
        right, bottom = extent[:, 2:].max(0).tolist()
        glyphs = _glyphs(text, lead, until, close)
        if text.isascii() or text[lead:until].isascii():
            levels = dict(zip(ink[first:last].tolist(), _levels(extent).tolist(), strict=True))
            glyphs = _with_scripts(glyphs, levels)
        segments.append(Segment(glyphs, left, top, right, bottom))
    return segments


def _levels(boxes: NDArray[np.float64]) -> NDArray[np.int8]:
    """Return for each character of a line whether it is raised (1), lowered (-1) or neither (0)."""
    heights = boxes[:, 3] - boxes[:, 1]
    usual = heights >= SCRIPT_SIZE * heights.max()
    levels = np.zeros(len(boxes), np.int8)
    # Where the characters of a font differ in height, pdfium does not know the font's own box.
    if usual.all() or heights[usual].std() > _SAME_HEIGHT * heights.max():
        return levels
    # A font's box reaches about a fifth of its height below the line.
    lines = boxes[:, 3] - 0.2 * heights
    line = np.median(lines[usual])
    shift = _SCRIPT_SHIFT * heights.max()
    levels[~usual & (lines < line - shift)] = 1
    levels[~usual & (lines > line + shift)] = -1
    return levels


def _with_scripts(glyphs: Line, levels: dict[int, int]) -> Line:
    """Write raised and lowered characters of a line as superscripts and subscripts."""
    if not any(levels.values()):
        return glyphs
    line: Line = []
    for level, run in groupby(glyphs, key=lambda glyph: levels.get(glyph[1], 0)):
        part = list(run)
        script = "".join(character for character, _ in part)
        # At the start of a line there is nothing that a script belongs to: it is a note's number or a list's mark.
        written = (raised if level > 0 else lowered)(script) if level and (line or len(part) < len(glyphs)) else script
        if written == script:
            line += part
        elif len(written) == len(part):
            line += [(character, place) for character, (_, place) in zip(written, part, strict=True)]
        else:
            lead = written.index(script)
            line += [(one, -1) for one in written[:lead]] + part + [(one, -1) for one in written[lead + len(script) :]]
    return line


def _glyphs(text: str, start: int, end: int, close: set[int]) -> Line:
    """Return the characters of a segment with single spaces between its words, and without spaces at its ends.

    A line break that pdfium adds in the middle of a line is no space if the character after it is among `close`, those
    that stand directly after another.
    """
    glyphs: Line = []
    at = start
    for word in _WORD.finditer(text, start, end):
        first, last = word.span()
        if glyphs and not (first in close and not text[at:first].strip("\r\n")):
            glyphs.append((" ", -1))
        at = last
        glyphs += zip(word.group(), range(first, last), strict=True)
    if glyphs and glyphs[-1][0] in LINE_HYPHENS:
        glyphs[-1] = ("-", glyphs[-1][1])
    return glyphs
