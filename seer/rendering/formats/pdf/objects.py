"""The objects of a PDF page: where its text, pictures and filled shapes lie, and in which order they are painted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seer.rendering.formats.pdf.library import Calls, calls

if TYPE_CHECKING:
    from numpy.typing import NDArray

TEXT, PATH, IMAGE, SHADING, FORM = 1, 2, 3, 4, 5
"""pdfium's kinds of objects."""
_MAX_DEPTH = 8
"""Limit on the nesting of form objects."""
_MAX_OBJECTS = 50_000
"""Limit on the objects of a page that are looked at."""


@dataclass(frozen=True)
class PageObjects:
    """The text, pictures, shadings and filled shapes of a page in the order in which they are painted.

    All arrays have one row per object. Boxes are (left, bottom, right, top) in the page's own coordinates.
    """

    handles: list[int]
    kinds: NDArray[np.uint8]
    boxes: NDArray[np.float64]
    colors: NDArray[np.uint32]
    """Red, green, blue and opacity of the fill, 0 to 255."""
    modes: NDArray[np.int8]
    """Text render modes; for a path 1 if it is filled, else 0."""
    layered: NDArray[np.bool_]
    """Whether an object has marks, as one on an optional layer has."""
    clipped: NDArray[np.bool_]
    """Whether an object has a clip path."""
    transparent: NDArray[np.bool_]
    """Whether an object is in a form that is painted with transparency."""

    def image_fraction(self, area: float) -> float:
        """Return the fraction of the page, of `area` square points, that its largest image covers."""
        boxes = self.boxes[self.kinds == IMAGE]
        extents = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
        return float(extents.prod(1).max(initial=0) / max(1.0, area))


def scan(page: int) -> PageObjects:
    """Return the objects of a page, with those inside of form objects.

    Args:
        page: the handle of an open page. The handles of the result are valid until it is closed.
    """
    pdfium = calls()
    handles: list[int] = []
    kinds: list[int] = []
    modes: list[int] = []
    layered: list[bool] = []
    clipped: list[bool] = []
    transparent: list[bool] = []
    places: list[tuple[int, NDArray[np.float64]]] = []
    count = min(_MAX_OBJECTS, pdfium.count_objects(page))
    bounds = np.zeros((count, 4), np.float32)
    colors = np.zeros((count, 4), np.uint32)
    draw_mode = np.zeros(2, np.int32)
    at, color_at, mode_at = bounds.ctypes.data, colors.ctypes.data, draw_mode.ctypes.data
    for handle, kind, form in _objects(pdfium, page, count):
        if len(handles) == len(bounds):
            if len(handles) >= _MAX_OBJECTS:
                break
            # Objects inside of form objects make the arrays grow.
            bounds, colors = (
                np.concatenate((array, np.zeros_like(array, shape=(len(array) + 64, 4)))) for array in (bounds, colors)
            )
            at, color_at = bounds.ctypes.data, colors.ctypes.data
        row = len(handles)
        left, color = at + 16 * row, color_at + 16 * row
        pdfium.bounds(handle, left, left + 4, left + 8, left + 12)
        mode = 0
        if kind in (TEXT, PATH):
            pdfium.fill_color(handle, color, color + 4, color + 8, color + 12)
        if kind == TEXT:
            mode = pdfium.render_mode(handle)
        elif kind == PATH:
            pdfium.draw_mode(handle, mode_at, mode_at + 4)
            mode = int(draw_mode[0] != 0)
        if form is not None:
            places.append((row, form.matrix))
        transparent.append(form is not None and form.is_transparent)
        handles.append(handle)
        kinds.append(kind)
        modes.append(mode)
        text = kind == TEXT
        layered.append(text and pdfium.count_marks(handle) > 0)
        clipped.append(text and pdfium.count_clip_paths(pdfium.clip(handle)) > 0)
    boxes = bounds[: len(handles)].astype(np.float64)
    for row, matrix in places:
        boxes[row] = _transform(boxes[row], matrix)
    boxes[~np.isfinite(boxes).all(1)] = 0  # damaged numbers; an empty box is passed over
    return PageObjects(
        handles,
        np.array(kinds, np.uint8),
        boxes,
        colors[: len(handles)],
        np.array(modes, np.int8),
        np.array(layered, bool),
        np.array(clipped, bool),
        np.array(transparent, bool),
    )


@dataclass(frozen=True)
class _Form:
    """A form object: the matrix that leads from it to the page, its depth, and whether it is painted with transparency."""

    matrix: NDArray[np.float64]
    depth: int
    is_transparent: bool


def _objects(pdfium: Calls, page: int, count: int) -> Iterator[tuple[int, int, _Form | None]]:
    """Yield (handle, kind, form) of each object; the form is None for an object of the page itself."""
    for k in range(count):
        handle = pdfium.page_object(page, k)
        kind = pdfium.kind(handle)
        if kind == FORM:
            yield from _nested(pdfium, handle, None)
        else:
            yield handle, kind, None


def _nested(pdfium: Calls, handle: int, outer: _Form | None) -> Iterator[tuple[int, int, _Form]]:
    values = np.zeros(6, np.float32)
    pdfium.matrix(handle, values.ctypes.data)
    matrix = values.astype(np.float64)
    is_transparent = bool(pdfium.has_transparency(handle))
    if outer is None:
        form = _Form(matrix, 1, is_transparent)
    else:
        form = _Form(_multiply(matrix, outer.matrix), outer.depth + 1, outer.is_transparent or is_transparent)
    for k in range(min(_MAX_OBJECTS, pdfium.count_nested(handle))):
        inner = pdfium.nested_object(handle, k)
        kind = pdfium.kind(inner)
        if kind != FORM:
            yield inner, kind, form
        elif form.depth < _MAX_DEPTH:
            yield from _nested(pdfium, inner, form)


def _multiply(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the matrix (a, b, c, d, e, f) that applies `first` and then `second`."""
    a, b, c, d, e, f = first
    p, q, r, s, t, u = second
    return np.array((a * p + b * r, a * q + b * s, c * p + d * r, c * q + d * s, e * p + f * r + t, e * q + f * s + u))


def _transform(box: NDArray[np.float64], matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the box around a transformed box."""
    a, b, c, d, e, f = matrix
    x, y = box[[0, 2, 0, 2]], box[[1, 1, 3, 3]]
    xs, ys = a * x + c * y + e, b * x + d * y + f
    return np.array((xs.min(), ys.min(), xs.max(), ys.max()))


def clip_box(handle: int) -> tuple[float, float, float, float] | None:
    """Return the box (left, bottom, right, top) that an object's clip paths leave visible, None without a clip path.

    A path that is not a rectangle counts as the box around its points; the box is in the coordinates of the object's form.
    """
    pdfium = calls()
    clip = pdfium.clip(handle)
    point = np.zeros(2, np.float32)
    at = point.ctypes.data
    found: list[NDArray[np.float32]] = []
    for path in range(max(0, pdfium.count_clip_paths(clip))):
        segments = pdfium.count_clip_segments(clip, path)
        points = np.empty((max(0, min(segments, 1000)), 2), np.float32)
        for k in range(len(points)):
            pdfium.segment_point(pdfium.clip_segment(clip, path, k), at, at + 4)
            points[k] = point
        if len(points):
            found.append(np.concatenate((points.min(0), points.max(0))))
    if not found:
        return None
    boxes = np.stack(found)
    left, bottom = boxes[:, :2].max(0)
    right, top = boxes[:, 2:].min(0)
    return float(left), float(bottom), float(right), float(top)


def font_size(handle: int) -> float:
    """Return the size of a text object's font in the units of its page or form."""
    pdfium, size, matrix = calls(), np.zeros(1, np.float32), np.zeros(6, np.float32)
    pdfium.font_size(handle, size.ctypes.data)
    pdfium.matrix(handle, matrix.ctypes.data)
    return float(size[0]) * float(np.hypot(matrix[2], matrix[3]))
