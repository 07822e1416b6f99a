"""Read the text of page images by OCR through RapidOCR (extra `ocr`).

    lines = read_picture(image)                  # uint8 (height_px, width_px[, 3]) to lines with boxes

The OCR models are part of the RapidOCR wheel, so nothing is downloaded. OCR takes seconds per page and therefore runs
only on pages without a usable text layer.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from seer.errors import InputError
from seer.schema import LineBox, Page, PageStyle

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ocr = Literal["auto", "always", "never"]
"""When to read pages by OCR: where there is no usable text, always, or never."""
Progress = Callable[[int, int, str], None]
"""A callback with the arguments (pages done, pages in total, activity)."""

MAX_SIDE_PX = 4096
"""Larger images are scaled down to this side length, which is far above what vision models accept."""
_MIN_SIDE_PX = 28
"""The smallest page size that a `PageStyle` accepts."""


@dataclass(frozen=True)
class ReadLine:
    """One line found by OCR. The box is given in fractions of the image's width and height."""

    text: str
    left: float
    top: float
    right: float
    bottom: float


def ocr_installed() -> bool:
    """Return whether RapidOCR is installed."""
    return importlib.util.find_spec("rapidocr") is not None


@cache
def _recogniser() -> Any:
    """Load the OCR models, once per process."""
    if not ocr_installed():
        raise InputError(
            "scans can only be read by OCR, which is not installed; install it with: pip install 'seer-vlm[ocr]'"
        )
    import logging

    from rapidocr import RapidOCR

    logging.getLogger("RapidOCR").setLevel(logging.WARNING)
    return RapidOCR(params={"Global.log_level": "warning"})


def read_picture(image: NDArray[np.uint8]) -> list[ReadLine]:
    """Read the text of an image by OCR.

    Args:
        image: uint8 (height_px, width_px) or (height_px, width_px, 3).

    Returns:
        Lines from top to bottom, each joined from its pieces from left to right.

    Raises InputError if OCR is not installed.
    """
    colour = np.repeat(image[:, :, None], 3, axis=2) if image.ndim == 2 else image
    found = _recogniser()(colour)
    if found.boxes is None or found.txts is None:
        return []
    # RapidOCR returns the four corners of each piece in pixels; a line box is the box around them.
    height, width = image.shape[:2]
    pieces = [
        ReadLine(text, *(corners.min(0) / (width, height)).tolist(), *(corners.max(0) / (width, height)).tolist())
        for text, corners in zip(found.txts, np.asarray(found.boxes, np.float64), strict=True)
        if text.strip()
    ]
    return _in_lines(pieces)


def _in_lines(pieces: list[ReadLine]) -> list[ReadLine]:
    """Join pieces that lie next to each other into lines."""
    lines: list[list[ReadLine]] = []
    for piece in sorted(pieces, key=lambda piece: (piece.top + piece.bottom) / 2):
        middle = (piece.top + piece.bottom) / 2
        # A piece belongs to the current line if its middle lies within the height of the line's first piece.
        if lines and middle < lines[-1][0].bottom and middle > lines[-1][0].top:
            lines[-1].append(piece)
        else:
            lines.append([piece])
    joined = []
    for line in lines:
        line.sort(key=lambda piece: piece.left)
        joined.append(
            ReadLine(
                " ".join(piece.text for piece in line),
                min(piece.left for piece in line),
                min(piece.top for piece in line),
                max(piece.right for piece in line),
                max(piece.bottom for piece in line),
            )
        )
    return joined


def boxes_of(lines: list[ReadLine], start: int, width_px: int, height_px: int) -> tuple[LineBox, ...]:
    """Return the line boxes of a page whose text is `lines`, each followed by a newline.

    `start` is the source offset of the page; `width_px` and `height_px` are the size of its image.
    """
    boxes = []
    for line in lines:
        end = start + len(line.text) + 1
        boxes.append(
            LineBox(
                start=start,
                end=end,
                x_px=line.left * width_px,
                y_px=line.top * height_px,
                width_px=(line.right - line.left) * width_px,
                height_px=(line.bottom - line.top) * height_px,
            )
        )
        start = end
    return tuple(boxes)


def picture_style(name: str, page: Page, dpi: float) -> PageStyle:
    """Return a style that records the size and resolution of pages that were not laid out by Seer.

    Sizes and `dpi` are clamped to the limits of `PageStyle`.
    """
    return PageStyle(
        name=name,
        page_width_px=min(8192, max(_MIN_SIDE_PX, page.width_px)),
        page_height_px=min(8192, max(_MIN_SIDE_PX, page.height_px)),
        dpi=min(600, max(36, round(dpi))),
        margin_x_px=0,
        margin_y_px=0,
        font_size_pt=3,
        line_height_pt=3,
        crop_last_page=False,
    )
