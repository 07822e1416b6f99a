"""Read one page of a PDF: its text in reading order, where each character stands, and what the text leaves out.

Most pages need nothing but pdfium's own text, which takes one call. A page is read character by character if its text
would not be what a reader sees: it is turned, its lines run over wide gaps, or some of its text is hidden.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.rendering.formats.extract import Notice
from seer.rendering.formats.pdf import charmap, irregular
from seer.rendering.formats.pdf.annotations import Annotations
from seer.rendering.formats.pdf.characters import (
    LINE_HYPHENS,
    Characters,
    align,
    has_right_to_left,
    is_space,
    read_outlines,
)
from seer.rendering.formats.pdf.geometry import Frame, turned_back
from seer.rendering.formats.pdf.hidden import hidden_texts, lies_off_page
from seer.rendering.formats.pdf.library import calls, handle
from seer.rendering.formats.pdf.objects import PageObjects, scan
from seer.rendering.formats.pdf.order import has_joined_columns, has_table, in_reading_order
from seer.rendering.formats.pdf.segments import Line

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_QUOTES = 3
_MAX_QUOTE = 60
_MAX_ANGLE = np.pi / 18
"""Text is horizontal or vertical up to ten degrees; other text is slanted, such as a watermark."""
_SLANTED = 4
_OFF_PAGE = "all text of the page lies outside of its visible part: it is kept, but the picture does not show it"
_LINE_END = re.compile("[\x02\ufffe](?=\r\n|$)|[\x02\ufffe]")


@dataclass(frozen=True)
class PageText:
    """The text of a page.

    `places` and `marks` lead from the text to the page: `places[k]` is the place of character k among the page's
    characters followed by `marks`, -1 if it has none, such as a tab between columns. `places` is None if the text is
    pdfium's own, `raw`.
    """

    text: str
    raw: str
    places: NDArray[np.int32] | None = None
    marks: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 4)))
    """(m, 4): boxes of the signs that stand for check boxes, as shown."""
    notices: tuple[Notice, ...] = ()
    image_fraction: float = 0.0
    """The fraction of the page that its largest image covers."""
    num_unmapped: int = 0
    """Visible characters whose text is unknown."""
    is_lying: bool = False
    """Whether the text contradicts the shapes of its letters."""


@dataclass(frozen=True)
class _Visible:
    """The characters of a page: text, boxes (n, 4), which of them the page shows, and the direction of each.

    A direction is a number of quarter turns clockwise as shown, or _SLANTED.
    """

    text: str
    boxes: NDArray[np.float64]
    kept: NDArray[np.bool_]
    quarters: NDArray[np.int8]

    def part(self, chosen: NDArray[np.intp], quarter: int) -> tuple[str, NDArray[np.float64]]:
        """Return text and boxes of some characters, turned so that a direction runs from left to right."""
        text = self.text if len(chosen) == len(self.text) else "".join(map(self.text.__getitem__, chosen.tolist()))
        return text, turned_back(self.boxes[chosen], quarter)


def read_page(page: Any, annotations: Annotations, judge: charmap.Judge, *, has_forms: bool) -> PageText:
    """Read an open page of pypdfium2.

    Args:
        page: the page, with its `annotations` merged into it if they have text.
        annotations: what `read_annotations` found on it.
        judge: knows the fonts of the document that were looked at before.
        has_forms: whether the document has form fields.
    """
    frame = frame_of(page)
    objects = scan(handle(page.raw))
    textpage = page.get_textpage()
    try:
        return _read(page, textpage, frame, objects, annotations, judge, has_forms)
    finally:
        textpage.close()


def frame_of(page: Any) -> Frame:
    """Return the visible part of an open page of pypdfium2."""
    import pypdfium2.raw as raw

    rect = raw.FS_RECTF()
    raw.FPDF_GetPageBoundingBox(page, ctypes.byref(rect))
    turns = int(raw.FPDFPage_GetRotation(page)) % 4
    if not np.isfinite((rect.left, rect.bottom, rect.right, rect.top)).all():
        return Frame(0.0, 0.0, 0.0, 0.0, turns)
    return Frame(rect.left, min(rect.bottom, rect.top), rect.right, max(rect.bottom, rect.top), turns)


def _read(
    page: Any,
    textpage: Any,
    frame: Frame,
    objects: PageObjects,
    annotations: Annotations,
    judge: charmap.Judge,
    has_forms: bool,
) -> PageText:
    raw_text: str = textpage.get_text_range(errors="replace")
    text_handle = handle(textpage.raw)
    hidden = hidden_texts(page, objects, frame, has_forms)
    width, height = frame.size_pt
    read = PageText(
        clean(raw_text),
        raw_text,
        image_fraction=objects.image_fraction(width * height),
        # Characters that no font maps to Unicode are missing in pdfium's text.
        num_unmapped=charmap.count_unmapped(raw_text) + _count_missing(text_handle, raw_text),
        is_lying=judge.is_new(objects) and charmap.is_lying(text_handle, raw_text, frame),
    )
    notices = annotations.notices
    if lies_off_page(objects, frame):
        notices = (*notices, Notice("hidden-text", _OFF_PAGE))
    must_order = bool(frame.turns or annotations.has_text)
    has_scripts = irregular.has_scripts(objects)
    must_order |= has_scripts or irregular.is_scattered(raw_text)
    may_order = irregular.may_have_columns(objects, raw_text, text_handle)
    if not (hidden or must_order or may_order or has_right_to_left(raw_text)):
        return replace(read, notices=notices)
    characters = read_outlines(text_handle, raw_text, frame, every=has_scripts)
    unseen = _unseen(text_handle, characters, objects, hidden)
    visible, marks = _page_characters(text_handle, characters, unseen, frame, annotations)
    text, places = _joined(_lines(visible, must_order=must_order, may_order=may_order))
    notices = (*notices, *_hidden_notices(characters, unseen))
    return replace(read, text=text, places=places, marks=marks, notices=notices)


def _count_missing(textpage: int, raw_text: str) -> int:
    """Return the number of characters with a box that pdfium's text leaves out."""
    pdfium = calls()
    count = pdfium.count_chars(textpage)
    if count <= len(raw_text):
        return 0
    return sum(pdfium.char_code(textpage, k) == 0 for k in range(count))


def clean(raw_text: str) -> str:
    """Return pdfium's text of a page as source text: lines end with LF, also those that end with a hyphen."""
    text = _LINE_END.sub(
        lambda found: "-" if found.end() == len(raw_text) or raw_text[found.end()] == "\r" else "-\n", raw_text
    )
    text = text.replace("\r\n", "\n").replace("\0", " ")
    return text if not text or text.endswith("\n") else text + "\n"


def places_of(raw_text: str, characters: Characters) -> NDArray[np.int32]:
    """Return `places` for `clean(raw_text)`."""
    aligned = align(raw_text, characters)
    places: list[int] = []
    for k, character in enumerate(raw_text):
        if character == "\r" and raw_text[k + 1 : k + 2] == "\n":
            continue
        places.append(-1 if character == "\n" else int(aligned[k]))
        if character in LINE_HYPHENS and k + 1 < len(raw_text) and raw_text[k + 1] != "\r":
            places.append(-1)
    return np.array(places, np.int32)


def _unseen(textpage: int, characters: Characters, objects: PageObjects, hidden: list[int]) -> NDArray[np.bool_]:
    """Return for each character whether it belongs to hidden text."""
    if not hidden:
        return np.zeros(len(characters.text), bool)
    pdfium = calls()
    handles = {objects.handles[row] for row in hidden}
    return np.array([pdfium.char_object(textpage, int(row)) in handles for row in characters.rows], bool)


def _page_characters(
    textpage: int, characters: Characters, unseen: NDArray[np.bool_], frame: Frame, annotations: Annotations
) -> tuple[_Visible, NDArray[np.float64]]:
    """Return what the page shows: its characters without hidden ones, followed by the signs of its check boxes.

    Text inside of a check box is a tick in a symbol font, so the sign replaces it. The second value has the boxes of the
    signs, (m, 4) as shown.
    """
    signs = "".join(mark.sign for mark in annotations.marks)
    marks = frame.shown(np.array([mark.box for mark in annotations.marks]).reshape(-1, 4))
    kept = ~unseen
    x, y = characters.boxes[:, [0, 2]].mean(1), characters.boxes[:, [1, 3]].mean(1)
    for left, top, right, bottom in marks:
        kept &= ~((x >= left) & (x <= right) & (y >= top) & (y <= bottom))
    shown = _quarters(textpage, characters, frame)
    visible = _Visible(
        characters.text + signs,
        np.concatenate((characters.boxes, marks)),
        np.concatenate((kept, np.ones(len(signs), bool))),
        np.concatenate((shown, np.zeros(len(signs), np.int8))),
    )
    return visible, marks


def _quarters(textpage: int, characters: Characters, frame: Frame) -> NDArray[np.int8]:
    """Return the direction of each character as shown. Characters of one of pdfium's lines have the same direction."""
    starts = [found.start() for found in re.finditer(r"[^\s\0]+[^\r\n]*", characters.text)]
    angles = np.array([calls().char_angle(textpage, int(characters.rows[start])) for start in starts], np.float64)
    turns = angles / (np.pi / 2)
    nearest = np.round(turns)
    slanted = np.abs(turns - nearest) * (np.pi / 2) > _MAX_ANGLE
    # A character's angle is that on the page itself, which may be shown turned.
    shown = np.where(slanted, _SLANTED, (nearest + frame.turns) % 4).astype(np.int8)
    lengths = np.diff([0, *starts[1:], len(characters.text)]) if starts else [len(characters.text)]
    return np.repeat(shown if starts else np.zeros(1, np.int8), lengths)


def _lines(visible: _Visible, *, must_order: bool, may_order: bool) -> list[Line]:
    """Return the lines of a page: in reading order if it needs one, else in the order of the file."""
    spaces = is_space(visible.text)
    ink = visible.kept & ~spaces
    # Spaces and line breaks separate words in every direction. The main direction comes first.
    parts = [
        (quarter, np.flatnonzero((ink & (visible.quarters == quarter)) | spaces))
        for quarter, _ in Counter(visible.quarters[ink].tolist()).most_common()
    ]
    orders = must_order or (
        may_order and any(_is_out_of_order(*visible.part(chosen, quarter)) for quarter, chosen in parts)
    )
    if not orders or _is_stacked(visible, ink):
        return _raw_lines(visible.text, np.flatnonzero(visible.kept))
    lines: list[Line] = []
    for quarter, chosen in parts:
        if quarter == _SLANTED:
            lines += _raw_lines(visible.text, chosen)
            continue
        found = in_reading_order(*visible.part(chosen, quarter))
        if len(chosen) < len(visible.text):
            places = [*chosen.tolist(), -1]
            found = [[(one, places[place]) for one, place in line] for line in found]
        lines += found
    return lines


def _is_out_of_order(text: str, boxes: NDArray[np.float64]) -> bool:
    return has_joined_columns(text, boxes) or has_table(text, boxes)


def _is_stacked(visible: _Visible, ink: NDArray[np.bool_]) -> bool:
    """Return whether most characters stand below one another, as in vertical writing, which has no rows to order by."""
    boxes = visible.boxes[ink]
    if len(boxes) < irregular.MIN_STACKED:
        return False
    sides = boxes[:, 2:] - boxes[:, :2]
    steps = np.abs(boxes[1:, :2] - boxes[:-1, :2])
    below = (steps[:, 0] < 0.3 * sides[1:, 0]) & (steps[:, 1] > 0.5 * sides[1:, 0])
    upright = visible.quarters[ink][1:] == 0
    return bool((below & upright).mean() > irregular.STACKED_FRACTION)


def _raw_lines(text: str, chosen: NDArray[np.intp]) -> list[Line]:
    """Return the chosen characters in the order of the file. Lines left without a visible character are dropped."""
    lines: list[Line] = [[]]
    for place in chosen.tolist():
        character = text[place]
        if character == "\n":
            lines.append([])
        elif character in LINE_HYPHENS:
            lines[-1].append(("-", place))
            lines.append([])
        elif character != "\r":
            lines[-1].append((" " if character == "\0" else character, place))
    return [line for line in lines if any(not character.isspace() for character, _ in line)]


def _joined(lines: list[Line]) -> tuple[str, NDArray[np.int32]]:
    """Return the text of lines, each ended by LF, and the place of each character."""
    glyphs: Line = []
    for line in lines:
        glyphs += line
        glyphs.append(("\n", -1))
    characters, places = zip(*glyphs, strict=True) if glyphs else ((), ())
    return "".join(characters), np.array(places, np.int32)


def _hidden_notices(characters: Characters, unseen: NDArray[np.bool_]) -> list[Notice]:
    """Return a notice that quotes the hidden text of a page."""
    if not unseen.any():
        return []
    hidden = "".join(
        character if is_unseen else "\n" for character, is_unseen in zip(characters.text, unseen, strict=True)
    )
    pieces = [" ".join(piece.split()) for piece in re.split(r"\n{2,}", hidden)]
    pieces = [piece for piece in pieces if piece]
    if not pieces:
        return []
    quotes = [f"“{piece if len(piece) <= _MAX_QUOTE else piece[: _MAX_QUOTE - 1] + '…'}”" for piece in pieces]
    more = f" and {len(quotes) - _MAX_QUOTES} more" if len(quotes) > _MAX_QUOTES else ""
    return [
        Notice(
            "hidden-text",
            f"text that the page does not show is left out: {', '.join(quotes[:_MAX_QUOTES])}{more}",
        )
    ]
