"""Load image files as documents: pages as a viewer shows them, their text by OCR.

document = load_image(data, "scan.png")
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.rendering.drawing.png import page_png_bytes
from seer.rendering.formats.images.frames import read_frames
from seer.rendering.formats.images.slicing import slices
from seer.rendering.formats.pageranges import check_count, parse_pages
from seer.rendering.formats.scans import (
    MAX_SIDE_PX,
    Ocr,
    Progress,
    ReadLine,
    boxes_of,
    picture_style,
    read_picture,
)
from seer.schema import Document, DocumentWarning, Page

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EDGE = 0.003
"""A line that reaches into this fraction of a page at its upper or lower end may be cut by it."""


def load_image(
    data: bytes,
    name: str,
    *,
    pages: str | None = None,
    max_pages: int | None = None,
    ocr: Ocr = "auto",
    progress: Progress | None = None,
) -> Document:
    """Load an image file as a document, and read its text by OCR.

    A TIFF file has a page per frame, other files have one. A tall or very wide image becomes several pages.

    Args:
        data: the bytes of the file.
        name: the document's name, also used in error messages.
        pages: the pages to keep, such as "10-40,52"; None keeps all.
        max_pages: limit on the number of kept pages; None means no limit.
        ocr: "never" keeps the images without text; the other values read them by OCR.
        progress: called with (pages done, pages in total, activity).

    Raises InputError if the image is damaged or too large, if `pages` are out of range, if there are more than `max_pages`
    pages, or if OCR is needed but not installed.
    """
    frames, num_frames = read_frames(data, name)
    parts = [part for frame in frames for part in _parts(frame)]
    chosen = parse_pages(pages or "1-", len(parts))
    check_count(len(chosen), max_pages, name)
    out, texts, start = [], [], 0
    before: tuple[int, list[ReadLine]] = (0, [])
    for number, original in enumerate(chosen, 1):
        if progress:
            progress(number - 1, len(chosen), "reading scans")
        image, shared = parts[original - 1]
        found = [] if ocr == "never" else read_picture(image)
        if original < len(parts) and parts[original][1]:
            # The cut at the end may go through a line, which the next page shows whole.
            found = [line for line in found if line.bottom < 1 - _EDGE]
        # What the page before shows as well is read once.
        lines = _unread(found, shared, before[1]) if before[0] == original - 1 and shared else found
        before = (original, found)
        text = "".join(line.text + "\n" for line in lines)
        height_px, width_px = image.shape[:2]
        page = Page(
            number=number,
            label=str(original) if original != number else None,
            start=start,
            end=start + len(text),
            text=text,
            width_px=width_px,
            height_px=height_px,
            content_hash=hashlib.sha256(f"image {image.shape} ".encode() + image.tobytes()).hexdigest()[:32],
        )
        boxes = boxes_of(lines, start, width_px, height_px)
        out.append(page.attach(partial(_given, image), partial(_given, boxes), page_png_bytes))
        texts.append(text)
        start += len(text)
    warnings = [_frames_warning(num_frames)] if num_frames > len(frames) else []
    return Document(
        name=name,
        text="".join(texts),
        style=picture_style("image", out[0], 72),
        pages=tuple(out),
        warnings=tuple(warnings),
    )


def _parts(frame: NDArray[np.uint8]) -> Iterator[tuple[NDArray[np.uint8], float]]:
    """Yield the pages of a frame, and the fraction of each that the page before it shows, too."""
    found, side_by_side = slices(frame)
    for part in found:
        piece = frame[:, part.start : part.end] if side_by_side else frame[part.start : part.end]
        # Parts side by side share columns, not lines, so OCR reads what both show twice.
        shared = 0.0 if side_by_side else part.shared / (part.end - part.start)
        yield _within_limit(piece), shared


def _within_limit(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Scale an image down so that no side exceeds MAX_SIDE_PX."""
    from PIL import Image

    if max(image.shape[:2]) <= MAX_SIDE_PX:
        return np.ascontiguousarray(image)
    scaled = Image.fromarray(np.ascontiguousarray(image))
    scaled.thumbnail((MAX_SIDE_PX, MAX_SIDE_PX))
    return np.array(scaled)


def _unread(lines: list[ReadLine], shared: float, before: list[ReadLine]) -> list[ReadLine]:
    """Return the lines of a page without those that the page before it shows whole.

    `shared` is the fraction of the page, at its top, that the page before shows at its end. A line that the cut goes through
    is read from the page that shows all of it.
    """
    known = {line.text for line in before}
    return [line for line in lines if line.bottom > shared or (line.text not in known and line.top > _EDGE)]


def _frames_warning(num_frames: int) -> DocumentWarning:
    message = f"the first of {num_frames:,} frames of the animation is shown and read; the others are left out"
    return DocumentWarning(kind="frames", message=message)


def _given(value: Any, page: Page) -> Any:
    """Return `value`: a page's draw or line function for a result that already exists."""
    return value
