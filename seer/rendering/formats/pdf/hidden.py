"""Find text of a PDF page that the picture does not show: off the page, in the colour of its ground, covered, or clipped.

Whether suspicious text can be seen is not computed but looked at: the page is drawn with it and without it, and text whose
place does not change is hidden. Most pages have nothing suspicious and are not drawn.

The text layer that OCR lays under a scan is invisible, too, but the picture above shows it, so it is kept.
"""

from __future__ import annotations

from ctypes import create_string_buffer
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.rendering.formats.pdf.geometry import Frame
from seer.rendering.formats.pdf.library import calls
from seer.rendering.formats.pdf.objects import IMAGE, PATH, SHADING, TEXT, PageObjects, clip_box, font_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

_INVISIBLE_MODES = (3, 7)
"""Text render modes that paint nothing: invisible, and clip path only."""
_LIGHT = 200
"""Text whose every colour channel is above this may vanish on white paper."""
_OPAQUE = 250
_FAINT_OPACITY = 64
_SAME_COLOR = 16
"""Colours that differ by less in every channel, 0 to 255, cannot be told apart."""
_COVERED = 0.8
"""Text is covered by what hides at least this fraction of its box."""
_SCAN_FRACTION = 0.3
"""An image that covers at least this fraction of the page may be a scan."""
_MIN_HEIGHT_PT = 1.5
"""Lower text cannot be read at any resolution in use."""
_MAX_PAIRS = 2_000_000
"""Limit on the pairs of a text and a painted area that are compared on one page."""
_RECTANGLE = 6
"""Most segments of a path that is a rectangle."""
_MAX_CHANGED = 0.01
"""The edge of a covered letter may change as many of the pixels in a text's box; its ink changes a tenth."""
_CHECK_SCALE = 1.5
"""Pixels per point of the drawings that are compared."""
_MAX_CHECK_SIDE_PX = 2500


def hidden_texts(page: Any, objects: PageObjects, frame: Frame, has_forms: bool) -> list[int]:
    """Return the rows of `objects` that are text which the page does not show.

    If all text of the page lies outside of it, nothing counts as hidden: see `lies_off_page`.

    Args:
        page: an open page of pypdfium2.
        objects: the objects of the page.
        frame: the visible part of the page.
        has_forms: whether form fields are drawn.
    """
    texts = np.flatnonzero(objects.kinds == TEXT)
    boxes = objects.boxes[texts]
    sides = boxes[:, 2:] - boxes[:, :2]
    has_box = (sides > 0).all(1)
    off_page = has_box & _is_off_page(boxes, frame)
    if off_page.sum() == has_box.sum():
        return []
    gone = off_page | (has_box & _is_tiny(texts, objects))
    suspects = texts[has_box & ~gone & _is_suspicious(texts, objects, frame)]
    hidden = set(texts[gone].tolist())
    if len(suspects):
        hidden.update(_unseen(page, suspects.tolist(), objects, frame, has_forms))
    return sorted(hidden)


def lies_off_page(objects: PageObjects, frame: Frame) -> bool:
    """Return whether a page has text and all of it lies outside the visible page, so that the page box must be wrong."""
    boxes = objects.boxes[objects.kinds == TEXT]
    boxes = boxes[(boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])]
    return bool(len(boxes)) and bool(_is_off_page(boxes, frame).all())


def _is_off_page(boxes: NDArray[np.float64], frame: Frame) -> NDArray[np.bool_]:
    off: NDArray[np.bool_] = (
        (boxes[:, 2] <= frame.left)
        | (boxes[:, 0] >= frame.right)
        | (boxes[:, 3] <= frame.bottom)
        | (boxes[:, 1] >= frame.top)
    )
    return off


def _is_tiny(texts: NDArray[np.intp], objects: PageObjects) -> NDArray[np.bool_]:
    """Return whether each text is too small to be read."""
    boxes = objects.boxes[texts]
    tiny: NDArray[np.bool_] = (boxes[:, 2:] - boxes[:, :2]).min(1) < _MIN_HEIGHT_PT
    # Dots, dashes and strokes are as flat in any font, so the size of the font decides.
    for place in np.flatnonzero(tiny):
        tiny[place] = font_size(objects.handles[texts[place]]) < _MIN_HEIGHT_PT
    return tiny


def _is_suspicious(texts: NDArray[np.intp], objects: PageObjects, frame: Frame) -> NDArray[np.bool_]:
    """Return for each text object whether it may be invisible, so that it is worth a look."""
    colors = objects.colors[texts].astype(np.int16)
    light = colors[:, :3].min(1) > _LIGHT
    faint = (colors[:, 3] < _FAINT_OPACITY) | objects.transparent[texts]
    invisible = np.isin(objects.modes[texts], _INVISIBLE_MODES)
    covered = np.zeros(len(texts), bool)
    painted = _painted(texts, objects)
    if len(painted):
        covers = _overlaps(texts, painted, objects) >= _COVERED
        later = painted[None, :] > texts[:, None]
        covered = np.asarray((covers & later).any(1))
        # The last area painted before a text is its ground; without one it stands on white paper.
        under = np.where(covers & ~later, painted[None, :], -1).max(1)
        plain = np.array([row >= 0 and _is_plain(int(row), objects) for row in under], bool)
        differs = np.abs(objects.colors[under, :3].astype(np.int16) - colors[:, :3]).max(1) >= _SAME_COLOR
        light = np.where(plain, ~differs, light)
    suspicious: NDArray[np.bool_] = light | faint
    if (invisible | covered).any():
        # What lies under or on a scan is the text that OCR found in it.
        suspicious = (suspicious | invisible | covered) & ~(
            (invisible | covered) & _lies_on_scan(texts, objects, frame)
        )
    for place in np.flatnonzero(objects.layered[texts]):
        suspicious[place] |= _is_on_layer(objects.handles[texts[place]])
    for place in np.flatnonzero(objects.clipped[texts] & ~suspicious):
        suspicious[place] = _is_clipped(int(texts[place]), objects)
    return suspicious


def _painted(texts: NDArray[np.intp], objects: PageObjects) -> NDArray[np.intp]:
    """Return the rows of the objects that paint an area as large as a text: filled shapes, pictures and shadings."""
    kinds = objects.kinds
    if (kinds == TEXT).all():
        return np.zeros(0, np.intp)
    filled = (kinds == PATH) & (objects.modes == 1) & (objects.colors[:, 3] >= _OPAQUE)
    boxes = objects.boxes[texts]
    smallest = ((boxes[:, 2:] - boxes[:, :2]) * 0.5).min(0, initial=np.inf)
    large = (objects.boxes[:, 2:] - objects.boxes[:, :2] > smallest).all(1)
    rows = np.flatnonzero((filled | (kinds == IMAGE) | (kinds == SHADING)) & large)
    # A drawing of thousands of shapes: the largest ones are looked at.
    if len(rows) * len(texts) > _MAX_PAIRS:
        extents = (objects.boxes[rows, 2:] - objects.boxes[rows, :2]).prod(1)
        rows = np.sort(rows[np.argsort(-extents, kind="stable")[: max(1, _MAX_PAIRS // len(texts))]])
    return rows


def _is_plain(row: int, objects: PageObjects) -> bool:
    """Return whether an object is a rectangle, so that its colour is known everywhere."""
    return bool(objects.kinds[row] == PATH) and calls().count_path_segments(objects.handles[row]) <= _RECTANGLE


def _overlaps(texts: NDArray[np.intp], others: NDArray[np.intp], objects: PageObjects) -> NDArray[np.float64]:
    """Return (texts, others): the fraction of each text's box that each other box covers."""
    boxes, over = objects.boxes[texts][:, None], objects.boxes[others][None]
    sides = np.minimum(boxes[..., 2:], over[..., 2:]) - np.maximum(boxes[..., :2], over[..., :2])
    extents = (boxes[..., 2:] - boxes[..., :2]).prod(2)
    fractions: NDArray[np.float64] = np.maximum(sides, 0).prod(2) / np.maximum(extents, 1e-9)
    return fractions


def _lies_on_scan(texts: NDArray[np.intp], objects: PageObjects, frame: Frame) -> NDArray[np.bool_]:
    images = np.flatnonzero(objects.kinds == IMAGE)
    width, height = frame.size_pt
    extents = np.maximum(objects.boxes[images, 2:] - objects.boxes[images, :2], 0).prod(1)
    scans = images[extents >= _SCAN_FRACTION * width * height]
    return np.asarray((_overlaps(texts, scans, objects) >= 0.5).any(1))


def _is_on_layer(handle: int) -> bool:
    """Return whether an object is on an optional layer, which may be switched off."""
    pdfium = calls()
    name, length = create_string_buffer(16), create_string_buffer(8)
    for k in range(min(16, pdfium.count_marks(handle))):
        # Names that do not fit are other marks: "OC" takes six bytes in UTF-16 with its end.
        if pdfium.mark_name(pdfium.mark(handle, k), name, 16, length) and name.raw[:6] == "OC\0".encode("utf-16-le"):
            return True
    return False


def _is_clipped(row: int, objects: PageObjects) -> bool:
    """Return whether a clip path cuts off most of a text. Objects inside of a form count as clipped if in doubt."""
    clip = clip_box(objects.handles[row])
    if clip is None:
        return False
    box = objects.boxes[row]
    width = min(box[2], clip[2]) - max(box[0], clip[0])
    height = min(box[3], clip[3]) - max(box[1], clip[1])
    area = float((box[2:] - box[:2]).prod())
    return max(0.0, width) * max(0.0, height) < (1 - _COVERED) * area


def _unseen(page: Any, suspects: list[int], objects: PageObjects, frame: Frame, has_forms: bool) -> list[int]:
    """Return the suspects whose removal does not change the picture of the page."""
    pdfium = calls()
    scale = min(_CHECK_SCALE, _MAX_CHECK_SIDE_PX / max(*frame.size_pt, 1.0))
    with_them = _draw(page, scale, has_forms)
    for row in suspects:
        pdfium.set_active(objects.handles[row], 0)
    try:
        without = _draw(page, scale, has_forms)
    finally:
        for row in suspects:
            pdfium.set_active(objects.handles[row], 1)
    changed = (np.abs(with_them.astype(np.int16) - without) >= _SAME_COLOR).any(2)
    rects = np.round(frame.shown(objects.boxes[suspects]) * scale).astype(int)
    rects[:, :2] = np.maximum(rects[:, :2] - 1, 0)
    places = [
        changed[top : max(bottom, top) + 1, left : max(right, left) + 1] for left, top, right, bottom in rects.tolist()
    ]
    return [row for row, place in zip(suspects, places, strict=True) if place.sum() <= _MAX_CHANGED * place.size]


def _draw(page: Any, scale: float, has_forms: bool) -> NDArray[np.uint8]:
    bitmap = page.render(scale=scale, may_draw_forms=has_forms)
    try:
        return np.array(bitmap.to_numpy()[:, :, :3])
    finally:
        bitmap.close()
