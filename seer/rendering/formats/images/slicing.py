"""Cut tall images, such as screenshots of whole web pages, into pages that can be read.

An image is cut where no text is: at rows of one colour. Where there is no such row, the next page begins above the cut, so that
no line is lost. Very wide images are cut in the same way from left to right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_TALL = 2.5
"""Images up to this height, relative to their width, stay whole: telephones are 2.2 times as high as wide."""
MAX_WIDE = 4.0
"""Images up to this width, relative to their height, stay whole."""
_MIN_CUT_PX = 1200
"""Smaller images stay whole: they are icons, bars and lines of text."""
_PAGE = 1.414
"""Height of a page relative to its width, as of A4."""
_SHORTEST, _LONGEST = 0.7, 1.25
"""A cut may lie at this part of a page's height."""
_OVERLAP = 0.12
"""Part of a page that is shown again if a cut goes through text."""
_SAME_COLOR = 12
"""Pixels whose values, 0 to 255, differ by less belong to one colour."""


@dataclass(frozen=True)
class Slice:
    """A part of an image: the rows, or the columns, [start, end). The first `shared` of them are in the part before, too."""

    start: int
    end: int
    shared: int = 0


def slices(image: NDArray[np.uint8]) -> tuple[list[Slice], bool]:
    """Return the parts of an image that become pages, and whether they lie side by side instead of below one another.

    Args:
        image: uint8 (height_px, width_px) or (height_px, width_px, 3).

    The parts cover the image; one that is not too tall or wide has a single part.
    """
    height, width = image.shape[:2]
    if height > MAX_TALL * width and height > _MIN_CUT_PX:
        return _cut(image, _PAGE * width), False
    if width > MAX_WIDE * height and width > _MIN_CUT_PX:
        return _cut(np.swapaxes(image, 0, 1), _PAGE * height), True
    return [Slice(0, height)], False


def _cut(image: NDArray[np.uint8], page: float) -> list[Slice]:
    """Cut an image, whose first axis is long, into parts of about `page` pixels."""
    length = image.shape[0]
    page = max(page, _MIN_CUT_PX / 4)
    blank = _blank_rows(image)
    parts: list[Slice] = []
    start = shared = 0
    while length - start > _LONGEST * page:
        first, last = start + int(_SHORTEST * page), start + int(_LONGEST * page)
        cut = _middle_of_gap(blank[first:last], int(page * (1 - _SHORTEST)))
        if cut is not None:
            parts.append(Slice(start, first + cut, shared))
            start, shared = first + cut, 0
        else:
            end = start + int(page)
            parts.append(Slice(start, end, shared))
            shared = int(_OVERLAP * page)
            start = end - shared
    return [*parts, Slice(start, length, shared)]


def _blank_rows(image: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return for each row whether all of its pixels have one colour."""
    spread = image.max(axis=1).astype(np.int16) - image.min(axis=1)
    blank: NDArray[np.bool_] = (spread if image.ndim == 2 else spread.max(-1)) < _SAME_COLOR
    return blank


def _middle_of_gap(blank: NDArray[np.bool_], target: int) -> int | None:
    """Return the middle of a run of blank rows: of the tallest ones the nearest to `target`; None without a blank row."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], blank, [False])).astype(np.int8)))
    starts, ends = edges[::2], edges[1::2]
    if not len(starts):
        return None
    lengths = ends - starts
    # The gap between paragraphs is better than that between lines, but any gap is good.
    tall = lengths >= 0.6 * lengths.max()
    middles = ((starts + ends) // 2)[tall]
    return int(middles[np.argmin(np.abs(middles - target))])
