"""Overview images: a contact sheet of many pages, and the first pages of documents side by side.

sheet = contact_sheet(document.pages)            # uint8 (height_px, width_px)
sheet = side_by_side([first, second], ["seer", "dense"])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from seer.rendering.documents import render_text
from seer.rendering.styles import resolve_style
from seer.schema import Document, Page

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GAP_PX = 12
_CAPTION_PX = 16
_BACKGROUND = 208
_MAX_SIDE_PX = 8192
_THUMBNAIL_PX = 220


def contact_sheet(pages: Sequence[Page], width_px: int = _THUMBNAIL_PX) -> NDArray[np.uint8]:
    """Draw thumbnails of all pages in rows, with page numbers.

    Args:
        pages: the pages, at least one.
        width_px: the largest width of a thumbnail. Thumbnails shrink so that no side of the sheet exceeds 8192 px.

    Returns:
        uint8 (height_px, width_px), grey.
    """
    # The factor makes the sheet a little wider than high for pages in portrait format.
    columns = max(1, min(len(pages), math.ceil(math.sqrt(len(pages) * 1.6))))
    rows = math.ceil(len(pages) / columns)
    ratio = max(page.height_px / page.width_px for page in pages)
    width_px = min(width_px, (_MAX_SIDE_PX - _GAP_PX) // columns - _GAP_PX)
    room_px = (_MAX_SIDE_PX - _GAP_PX) // rows - _GAP_PX - _CAPTION_PX
    width_px = max(8, min(width_px, int(room_px / ratio)))
    cell_px = math.ceil(width_px * ratio)
    sheet = np.full(
        (rows * (cell_px + _CAPTION_PX + _GAP_PX) + _GAP_PX, columns * (width_px + _GAP_PX) + _GAP_PX),
        _BACKGROUND,
        np.uint8,
    )
    for k, page in enumerate(pages):
        row, column = divmod(k, columns)
        top, left = _GAP_PX + row * (cell_px + _CAPTION_PX + _GAP_PX), _GAP_PX + column * (width_px + _GAP_PX)
        # All pages have the same scale, so that cropped pages look smaller.
        scale = width_px / max(other.width_px for other in pages)
        thumbnail = _resized(page.image(), scale)[:cell_px, :width_px]
        sheet[top : top + thumbnail.shape[0], left : left + thumbnail.shape[1]] = thumbnail
        if width_px >= 24:
            label = f"{page.number}" if page.label is None else f"{page.number} ({page.label})"
            _caption(sheet, label, left, top + cell_px + 1, width_px)
    return sheet


def side_by_side(documents: Sequence[Document], captions: Sequence[str]) -> NDArray[np.uint8]:
    """Draw the first page of each document at full size, side by side, with a caption above each.

    Returns uint8 (height_px, width_px), grey.
    """
    images = [_grey(document.page(1).image()) for document in documents]
    height = max(len(image) for image in images) + _CAPTION_PX + 2 * _GAP_PX
    width = sum(image.shape[1] + _GAP_PX for image in images) + _GAP_PX
    sheet, left = np.full((height, width), _BACKGROUND, np.uint8), _GAP_PX
    for image, caption in zip(images, captions, strict=True):
        _caption(sheet, caption, left, _GAP_PX // 2, image.shape[1])
        top = _CAPTION_PX + _GAP_PX
        sheet[top : top + len(image), left : left + image.shape[1]] = image
        left += image.shape[1] + _GAP_PX
    return sheet


def _caption(sheet: NDArray[np.uint8], text: str, left: int, top: int, width_px: int) -> None:
    """Write a line of small text onto the sheet, in place. The text is cut off at `width_px`."""
    style = resolve_style("seer", page_width_px=2000, page_height_px=28, margin_x_px=0, margin_y_px=2)
    line = render_text(text.replace("\n", " ") or " ", style).page(1).image()[:_CAPTION_PX, :width_px]
    place = sheet[top : top + len(line), left : left + line.shape[1]]
    np.minimum(place, line[: place.shape[0], : place.shape[1]], out=place)


def _resized(image: NDArray[np.uint8], scale: float) -> NDArray[np.uint8]:
    """Scale an image down, in grey."""
    from PIL import Image

    height, width = image.shape[:2]
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.array(Image.fromarray(_grey(image)).resize(size, Image.Resampling.BOX))


def _grey(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert a colour image to grey by the mean of its channels."""
    return image if image.ndim == 2 else image.mean(axis=2).astype(np.uint8)
