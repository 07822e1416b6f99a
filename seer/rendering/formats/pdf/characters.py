"""The characters of a PDF page with their boxes, as pdfium finds them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seer.rendering.formats.pdf.geometry import Frame
from seer.rendering.formats.pdf.library import calls

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]{2,}")
_RARE_SPACES = np.array([0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000], np.uint32)
LINE_HYPHENS = frozenset("\x02\ufffe")
"""pdfium reports a hyphen at a line's end as U+0002 or U+FFFE, and no line break after it."""


def code_points(text: str) -> NDArray[np.uint32]:
    """Return the code points of a text."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def has_right_to_left(text: str) -> bool:
    """Return whether a text has a word in Hebrew, Arabic or another script that is written from right to left."""
    return not text.isascii() and _RIGHT_TO_LEFT.search(text) is not None


def is_space(text: str) -> NDArray[np.bool_]:
    """Return for each character whether it is white space or a null character."""
    points = code_points(text)
    spaces: NDArray[np.bool_] = (points == 0) | (points == 0x20) | ((points >= 9) & (points <= 13)) | (points == 0xA0)
    if points.size and points.max() >= 0x1680:
        spaces |= np.isin(points, _RARE_SPACES)
    return spaces


@dataclass(frozen=True)
class Characters:
    """The characters of a page in pdfium's order, which is that of the file.

    Spaces and line breaks that pdfium adds between lines and words are among them.
    """

    text: str
    """One Python character for each row of the arrays."""
    boxes: NDArray[np.float64]
    """(n, 4): left, top, right, bottom in points from the upper left corner of the page as shown."""
    rows: NDArray[np.int32]
    """(n,): pdfium's index of each character."""


def read_characters(textpage: int, raw_text: str, frame: Frame) -> Characters:
    """Return the characters of an open text page, with the boxes of their ink.

    Args:
        textpage: the handle of the text page.
        raw_text: pdfium's text of the page.
        frame: how the page is shown.
    """
    box = calls().char_box
    text, rows, count = _text_of(textpage, raw_text)
    boxes = np.zeros((count, 4), np.float64)
    at = boxes.ctypes.data
    for k in range(count):
        # pdfium's order is left, right, bottom, top; the addresses put them into left, bottom, right, top.
        box(textpage, k, at, at + 16, at + 8, at + 24)
        at += 32
    return _in_logical_order(Characters(text, frame.shown(boxes[rows]), rows))


def read_outlines(textpage: int, raw_text: str, frame: Frame, *, every: bool) -> Characters:
    """Return the characters of an open text page with the boxes of their font: as high as its lines, as wide as the advance.

    Unless `every` is set, only the first and the last character of each word are measured, and those between them are
    interpolated; that is enough to find lines and columns, but no scripts inside of a word.
    """
    box = calls().loose_box
    text, rows, count = _text_of(textpage, raw_text)
    if not count:
        return Characters("", np.zeros((0, 4)), rows)
    if every or len(rows) != count:
        measured = np.arange(count)
    else:
        spaces = is_space(text)
        edges = np.ones(count, bool)
        edges[1:-1] = ~spaces[1:-1] & (spaces[:-2] | spaces[2:])
        measured = np.flatnonzero(edges)
    found = np.zeros((len(measured), 4), np.float32)
    at = found.ctypes.data
    for k in measured.tolist():
        box(textpage, k, at)
        at += 16
    # A loose box has the order left, top, right, bottom.
    boxes = np.stack([np.interp(rows, measured, found[:, side]) for side in (0, 3, 2, 1)], 1)
    return _in_logical_order(Characters(text, frame.shown(boxes), rows))


def _in_logical_order(characters: Characters) -> Characters:
    order = _logical_order(characters.text, characters.boxes)
    if order is None:
        return characters
    text = "".join(map(characters.text.__getitem__, order.tolist()))
    return Characters(text, characters.boxes[order], characters.rows[order])


def _logical_order(text: str, boxes: NDArray[np.float64]) -> NDArray[np.intp] | None:
    """Return the order in which words written from right to left have their first letter first; None if they have.

    Some files hold the letters of such a word from left to right, and pdfium returns them so.
    """
    if not has_right_to_left(text):
        return None
    order = np.arange(len(text))
    for word in _RIGHT_TO_LEFT.finditer(text):
        first, last = word.start(), word.end() - 1
        if boxes[first, [0, 2]].sum() < boxes[last, [0, 2]].sum():
            order[first : last + 1] = order[first : last + 1][::-1]
    return order


def _text_of(textpage: int, raw_text: str) -> tuple[str, NDArray[np.int32], int]:
    """Return the text of all characters, the row of each, and the number of rows.

    The raw text is that if it has as many UTF-16 units. It lacks a few characters, such as those without a Unicode value.
    """
    pdfium = calls()
    count = max(0, pdfium.count_chars(textpage))
    if count == len(raw_text) and (not raw_text or max(raw_text) < "\U00010000"):
        return raw_text, np.arange(count, dtype=np.int32), count
    return *_decode([pdfium.char_code(textpage, k) for k in range(count)]), count


def _decode(codes: list[int]) -> tuple[str, NDArray[np.int32]]:
    """Return the text of UTF-16 or UTF-32 units, and the row of each character. Halves without a partner become U+FFFD."""
    units = np.array(codes, np.uint32)
    if not ((units >= 0xD800) & (units < 0xE000) | (units > 0x10FFFF)).any():
        return units.tobytes().decode("utf-32-le"), np.arange(len(units), dtype=np.int32)
    characters: list[str] = []
    rows: list[int] = []
    k = 0
    while k < len(codes):
        unit, row = codes[k], k
        k += 1
        if 0xD800 <= unit < 0xDC00 and k < len(codes) and 0xDC00 <= codes[k] < 0xE000:
            unit = 0x10000 + ((unit - 0xD800) << 10) + (codes[k] - 0xDC00)
            k += 1
        elif 0xD800 <= unit < 0xE000 or unit > 0x10FFFF:
            unit = 0xFFFD
        characters.append(chr(unit))
        rows.append(row)
    return "".join(characters), np.array(rows, np.int32)


def align(text: str, characters: Characters) -> NDArray[np.int32]:
    """Return for each character of a page's raw text its place in `characters`, -1 where there is none.

    The raw text leaves out a few of the characters, such as those without a Unicode value.
    """
    places = np.full(len(text), -1, np.int32)
    at = 0
    for k, character in enumerate(text):
        found = characters.text.find(character, at)
        # A character that is missing must not make the search run to the end of the page.
        if 0 <= found <= at + 64:
            places[k] = found
            at = found + 1
    return places
