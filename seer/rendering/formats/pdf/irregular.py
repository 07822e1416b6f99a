"""Signs, found at little cost, that the text of a PDF page needs a look at each of its characters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from seer.rendering.formats.pdf.library import calls
from seer.rendering.formats.pdf.objects import TEXT, PageObjects, font_size
from seer.rendering.formats.pdf.segments import SCRIPT_SIZE

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GAP = 1.2
"""A gap between two texts at the same height, relative to their height, that may separate columns."""
_WIDE_LINE = 1.35
"""A line whose characters are this many times wider than usual may hold a gap."""
_MIN_GAPS = 2
"""A single gap is that of a header, a footer or a form's line."""
_SMALLER, _SHIFTED = 0.9, 0.3
"""Limits on the ink of scripts, relative to the ink of the text before them: their height, and how far they are moved."""
_MIN_LINE_CHARACTERS = 4
_LINE = re.compile("[^\r\n\x02\ufffe]+")
STACKED_FRACTION = 0.5
"""Vertical writing: more words than this fraction have a single character that is not a Latin letter."""
MIN_STACKED = 20


def is_scattered(raw_text: str) -> bool:
    """Return whether pdfium puts every character into its own line, as with fonts whose boxes are wrong."""
    lines = [line for line in raw_text.split("\r\n") if line.strip()]
    return len(lines) >= MIN_STACKED and sum(len(line) == 1 for line in lines) > STACKED_FRACTION * len(lines)


def has_scripts(objects: PageObjects) -> bool:
    """Return whether some text stands directly after other text, smaller and higher or lower, as scripts do."""
    texts = np.flatnonzero(objects.kinds == TEXT)
    before, after = objects.boxes[texts[:-1]], objects.boxes[texts[1:]]
    heights = before[:, 3] - before[:, 1]
    close = np.abs(after[:, 0] - before[:, 2]) < _SHIFTED * heights
    smaller = (after[:, 3] - after[:, 1]) < _SMALLER * heights
    overlap = np.minimum(before[:, 3], after[:, 3]) > np.maximum(before[:, 1], after[:, 1])
    shifted = (after[:, 1] > before[:, 1] + _SHIFTED * heights) | (
        after[:, 1] < before[:, 1] - 0.5 * _SHIFTED * heights
    )
    return any(
        0 < font_size(objects.handles[texts[k + 1]]) < SCRIPT_SIZE * font_size(objects.handles[texts[k]])
        for k in np.flatnonzero(close & smaller & overlap & shifted)
    )


def may_have_columns(objects: PageObjects, raw_text: str, textpage: int) -> bool:
    """Return whether some text of the page may be separated by a wide gap. It is then looked at character by character."""
    boxes = objects.boxes[objects.kinds == TEXT]
    boxes = boxes[(boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])]
    if len(boxes) > 1:
        heights = boxes[:, 3] - boxes[:, 1]
        usual = float(np.median(heights))
        # Texts that stand at about the same height follow one another in this order.
        level = np.round((boxes[:, 1] + boxes[:, 3]) / usual)
        in_line = np.lexsort((boxes[:, 0], level))
        reach = boxes[in_line, 2]
        gaps = boxes[in_line[1:], 0] - reach[:-1]
        same = np.abs(level[in_line[1:]] - level[in_line[:-1]]) <= 1
        if (same & (gaps > _GAP * usual)).sum() >= _MIN_GAPS:
            return True
    return _has_wide_line(objects, raw_text, textpage)


def _has_wide_line(objects: PageObjects, raw_text: str, textpage: int) -> bool:
    """Return whether lines have characters much wider than usual, as with a gap inside of one piece of text."""
    lines = [found.span() for found in _LINE.finditer(raw_text)]
    lengths = np.array([end - start for start, end in lines])
    long = lengths >= _MIN_LINE_CHARACTERS
    if not long.any():
        return False
    texts = objects.boxes[objects.kinds == TEXT]
    # Where each line is one object, its width is known.
    is_known = len(texts) == len(lines)
    extents = texts[:, 2] - texts[:, 0] if is_known else _extents(textpage, raw_text, lines)
    widths = extents[long] / lengths[long]
    return bool((widths > _WIDE_LINE * np.median(widths)).sum() >= _MIN_GAPS)


def _extents(textpage: int, raw_text: str, lines: list[tuple[int, int]]) -> NDArray[np.float64]:
    """Return the distance from the first to the last character of each line, given as spans of the raw text."""
    pdfium = calls()
    boxes = np.zeros((2 * len(lines), 4))
    at = boxes.ctypes.data
    same = pdfium.count_chars(textpage) == len(raw_text)
    for start, end in lines:
        for place in (start, end - 1):
            k = place if same else pdfium.char_of_text(textpage, place)
            pdfium.char_box(textpage, k, at, at + 16, at + 8, at + 24)
            at += 32
    extents: NDArray[np.float64] = np.abs(boxes[1::2, 2] - boxes[::2, 0])
    return extents
