"""Recognise PDF fonts whose text is not what they draw.

A font's ToUnicode map says which text its glyphs stand for, and may be wrong: letters arrive as control characters, or
shifted by one. The shapes tell: in every Latin font b, d, f, h, k and l are higher than a, c, e, m, n and o, and g, p, q
and y reach below the line; Greek and Cyrillic have such letters, too. Where text and shapes disagree, the text is not used.
"""

from __future__ import annotations

import re
from collections import Counter
from ctypes import create_string_buffer
from typing import TYPE_CHECKING

import numpy as np

from seer.rendering.formats.pdf.geometry import Frame
from seer.rendering.formats.pdf.library import calls
from seer.rendering.formats.pdf.objects import TEXT, PageObjects

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LETTERS = {
    name: re.compile(f"[{letters}]")
    for name, letters in (
        ("high", "bdfhklβδθλб"),
        ("low", "gpqyγηρμурцщ"),
        ("small", "aceomnrsuvwxzαεικνοπστυωавгежзиклмнопстхчшъыьэюя"),
    )
}
_NUM_SAMPLES = 16
"""Letters of each class whose shapes are looked at."""
_PAGES_PER_FONT = 3
_MAX_FONT_NAME = 128
_MIN_SAMPLES = 6
"""Letters of each class that a judgement about a font needs."""
_MIN_AGREEMENT = 0.75
"""Smallest fraction of pairs of letters whose heights are in the expected order. Correct fonts reach 0.95 or more."""
_MIN_SPREAD = 0.04
"""Heights that differ by less, in units of the font's height, say nothing: capitals, small capitals, symbols."""
_CONTROLS = "\x01\x03-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
"""Control characters, without U+0002, which is pdfium's sign for a hyphen at a line's end."""
_CONTROL = re.compile(f"[{_CONTROLS}]")
_UNMAPPED = re.compile(f"[{_CONTROLS}\ufffd\ue000-\uf8ff]")


def count_unmapped(text: str) -> int:
    """Return the number of characters of a page's raw text that no font could have drawn or that have no value.

    Characters without a Unicode value arrive as U+FFFD, in the private use area, or as control characters.
    """
    if not _UNMAPPED.search(text):
        return 0
    # U+0002 is a letter among other control characters.
    return len(_UNMAPPED.findall(text)) + (text.count("\x02") if _CONTROL.search(text) else 0)


class Judge:
    """Remembers the fonts of a document, so that the shapes of each are looked at on a few pages only."""

    def __init__(self) -> None:
        self._seen: Counter[bytes] = Counter()

    def is_new(self, objects: PageObjects) -> bool:
        """Return whether a page, given by its objects, has a font that was not looked at on enough pages."""
        pdfium, name = calls(), create_string_buffer(_MAX_FONT_NAME)
        fonts = {pdfium.font(objects.handles[row]) for row in np.flatnonzero(objects.kinds == TEXT)} - {None}
        names = set()
        for font in fonts:
            length = pdfium.font_name(font, name, _MAX_FONT_NAME)
            names.add(name.raw[: min(length, _MAX_FONT_NAME)])
        is_new = any(self._seen[one] < _PAGES_PER_FONT for one in names)
        if is_new:
            self._seen.update(names)
        return is_new


def is_lying(textpage: int, text: str, frame: Frame) -> bool:
    """Return whether the shapes of a page's letters contradict its text in one of its fonts.

    Args:
        textpage: the handle of an open text page.
        text: the raw text of the page.
        frame: how the page is shown.

    A font with fewer than six letters of each class is not judged.
    """
    places = {group: _samples(letters, text) for group, letters in _LETTERS.items()}
    if len(places["small"]) < _MIN_SAMPLES or max(len(places["high"]), len(places["low"])) < _MIN_SAMPLES:
        return False
    order = [(group, index) for group, indices in places.items() for index in indices]
    shapes = _measure(textpage, [index for _, index in order], frame, len(text))
    measured: dict[int, dict[str, list[tuple[float, float]]]] = {}
    for (group, _), (font, top, bottom) in zip(order, shapes, strict=True):
        if np.isfinite(top):
            measured.setdefault(font, {}).setdefault(group, []).append((top, bottom))
    return any(_contradicts(shapes) for shapes in measured.values())


def _samples(letters: re.Pattern[str], text: str) -> list[int]:
    """Return the places of at most _NUM_SAMPLES letters, spread over the text."""
    places = []
    at = 0
    for number in range(_NUM_SAMPLES):
        found = letters.search(text, max(at, number * len(text) // _NUM_SAMPLES))
        if found is None:
            break
        places.append(found.start())
        at = found.end()
    return places


def _measure(textpage: int, indices: list[int], frame: Frame, length: int) -> list[tuple[int, float, float]]:
    """Return (font, top, bottom) of letters above their line, in units of the height of their font.

    They are NaN for letters that are not written from left to right.
    """
    pdfium = calls()
    same = pdfium.count_chars(textpage) == length
    rows = indices if same else [max(0, pdfium.char_of_text(textpage, index)) for index in indices]
    tight, lines, loose = np.zeros((len(rows), 4)), np.zeros((len(rows), 4)), np.zeros((len(rows), 4), np.float32)
    fonts, turns = [], []
    for place, k in enumerate(rows):
        at, line, wide = (array.ctypes.data + array.strides[0] * place for array in (tight, lines, loose))
        pdfium.char_box(textpage, k, at, at + 16, at + 8, at + 24)
        pdfium.char_origin(textpage, k, line, line + 8)
        pdfium.loose_box(textpage, k, wide)
        fonts.append(pdfium.font(pdfium.char_object(textpage, k)) or 0)
        turns.append(pdfium.char_angle(textpage, k))
    lines[:, 2:] = lines[:, :2]
    upright = np.abs((np.array(turns) + frame.turns * np.pi / 2 + np.pi) % (2 * np.pi) - np.pi) < 0.1
    # A loose box, in the order left, top, right, bottom, has the height of the font.
    sides = np.abs(loose[:, :2] - loose[:, 2:])
    heights = sides[:, 0] if frame.turns % 2 else sides[:, 1]
    shown, baseline = frame.shown(tight), frame.shown(lines)[:, 1]
    heights[~upright | (heights <= 0)] = np.nan
    shown[~np.isfinite(shown)] = np.nan
    baseline = np.where(np.isfinite(baseline), baseline, np.nan)
    tops, bottoms = (baseline - shown[:, 1]) / heights, (baseline - shown[:, 3]) / heights
    return list(zip(fonts, tops.tolist(), bottoms.tolist(), strict=True))


def _contradicts(shapes: dict[str, list[tuple[float, float]]]) -> bool:
    """Return whether letters of one font have the heights of other letters."""
    small = np.array(shapes.get("small", []))
    high, low = np.array(shapes.get("high", [])), np.array(shapes.get("low", []))
    if len(small) < _MIN_SAMPLES:
        return False
    agreements = []
    if len(high) >= _MIN_SAMPLES and np.concatenate((high[:, 0], small[:, 0])).std() > _MIN_SPREAD:
        agreements.append(_agreement(high[:, 0], small[:, 0]))
    if len(low) >= _MIN_SAMPLES and np.concatenate((low[:, 1], small[:, 1])).std() > _MIN_SPREAD:
        agreements.append(_agreement(-low[:, 1], -small[:, 1]))
    return bool(agreements) and float(np.mean(agreements)) < _MIN_AGREEMENT


def _agreement(larger: NDArray[np.float64], smaller: NDArray[np.float64]) -> float:
    """Return the fraction of pairs in which the value of `larger` is the greater one; ties count half."""
    differences = larger[:, None] - smaller[None, :]
    return float((differences > 1e-6).mean() + 0.5 * (np.abs(differences) <= 1e-6).mean())
