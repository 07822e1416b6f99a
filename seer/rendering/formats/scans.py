"""Load image files as documents, and read their text by OCR through RapidOCR (extra `ocr`).

    document = load_image(data, "scan.png")      # one page per frame
    lines = read_picture(image)                  # uint8 (height_px, width_px[, 3]) to lines with boxes

The OCR models are part of the RapidOCR wheel, so nothing is downloaded. OCR takes seconds per page and therefore runs
only on pages without a usable text layer. Image files are untrusted: their formats, sizes and frames are limited.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from seer.errors import InputError
from seer.rendering.drawing.png import page_png_bytes
from seer.rendering.formats.pageranges import check_count
from seer.schema import Document, LineBox, Page, PageStyle

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image

Ocr = Literal["auto", "always", "never"]
"""When to read pages by OCR: where there is no usable text, always, or never."""
Progress = Callable[[int, int, str], None]
"""A callback with the arguments (pages done, pages in total, activity)."""

MAX_IMAGE_PIXELS = 100_000_000
"""Limit on the pixels of one frame as stored in the file."""
MAX_SIDE_PX = 4096
"""Larger images are scaled down to this side length, which is far above what vision models accept."""
_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")
"""The formats to read. Pillow supports many more, some of which start external programs."""
_MAX_FRAMES = 2000
_MAX_FRAMES_BYTES = 4 << 30
"""Limit on the memory of all frames. An animation of a few megabytes can unpack to a hundred gigabytes."""
_BROKEN_IMAGE = (
    *(OSError, ValueError, SyntaxError, EOFError, struct.error),
    *(LookupError, TypeError, ArithmeticError, AttributeError),
)
"""The exceptions that Pillow's readers raise for damaged files."""
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


def load_image(
    data: bytes, name: str, *, max_pages: int | None = None, ocr: Ocr = "auto", progress: Progress | None = None
) -> Document:
    """Load an image file as a document with one page per frame, and read its text by OCR.

    Args:
        data: the bytes of the file.
        name: the document's name, also used in error messages.
        max_pages: limit on the number of frames; None means no limit.
        ocr: "never" keeps the images without text; the other values read them by OCR.
        progress: called with (pages done, pages in total, activity).

    Raises InputError if the image is damaged or too large, if it has more than `max_pages` frames, or if OCR is
    needed but not installed.
    """
    frames = _frames(data, name)
    check_count(len(frames), max_pages, name)
    pages, texts, start = [], [], 0
    for number, image in enumerate(frames, 1):
        if progress:
            progress(number - 1, len(frames), "reading scans")
        lines = [] if ocr == "never" else read_picture(image)
        text = "".join(line.text + "\n" for line in lines)
        height_px, width_px = image.shape[:2]
        page = Page(
            number=number,
            start=start,
            end=start + len(text),
            text=text,
            width_px=width_px,
            height_px=height_px,
            content_hash=hashlib.sha256(f"image {image.shape} ".encode() + image.tobytes()).hexdigest()[:32],
        )
        boxes = boxes_of(lines, start, width_px, height_px)
        pages.append(page.attach(partial(_given, image), partial(_given, boxes), page_png_bytes))
        texts.append(text)
        start += len(text)
    return Document(name=name, text="".join(texts), style=picture_style("image", pages[0], 72), pages=tuple(pages))


def _given(value: Any, page: Page) -> Any:
    """Return `value`: a page's draw or line function for a result that already exists."""
    return value


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


def _frames(data: bytes, name: str) -> list[NDArray[np.uint8]]:
    """Decode the frames of an image file, each scaled down to at most MAX_SIDE_PX."""
    from PIL import Image, UnidentifiedImageError

    frames: list[NDArray[np.uint8]] = []
    try:
        # Pillow decodes frames lazily: `open` reads headers only, `convert` and `thumbnail` the pixels.
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", Image.DecompressionBombWarning
            )  # `_check_size` applies the limit of this module
            opened = Image.open(io.BytesIO(data), formats=_FORMATS)
        with opened as image:
            for index in range(min(_MAX_FRAMES, getattr(image, "n_frames", 1))):
                image.seek(index)
                _check_size(image.size, name)
                frame = _on_paper(image)
                frame.thumbnail((MAX_SIDE_PX, MAX_SIDE_PX))
                frames.append(np.array(frame))
                if sum(kept.nbytes for kept in frames) > _MAX_FRAMES_BYTES:
                    raise InputError(
                        f"the frames of '{name}' take more than {_MAX_FRAMES_BYTES >> 30} GB, the limit; split the file"
                    )
    except InputError:
        raise
    except UnidentifiedImageError:  # its own message names an address in memory
        raise InputError(
            f"'{name}' is a damaged image (its format cannot be identified); use one that an image viewer opens"
        ) from None
    except (Image.DecompressionBombError, *_BROKEN_IMAGE) as error:
        raise InputError(f"'{name}' is a damaged image ({error}); use one that an image viewer opens") from None
    return frames


def _on_paper(image: Image.Image) -> Image.Image:
    """Convert a frame to what a viewer shows: upright, on white if transparent, with 8 bits per channel.

    Returns an image of mode "L" or "RGB".
    """
    from PIL import Image as Pillow
    from PIL import ImageOps

    if _is_turned(image):
        image = ImageOps.exif_transpose(image)
    mode = "L" if image.mode in ("1", "L", "LA") or image.mode.startswith("I") else "RGB"
    if image.mode.startswith("I"):
        # Modes "I" and "I;16" hold up to 16 bits of grey, but some files use only the lower eight.
        values = np.asarray(image)
        eight = values >> 8 if values.max() > 255 else values
        image = Pillow.fromarray(eight.clip(0, 255).astype(np.uint8))
    elif image.has_transparency_data:
        colours = image.convert("RGBA")
        image = Pillow.alpha_composite(Pillow.new("RGBA", colours.size, "white"), colours)
    return image.convert(mode)


def _is_turned(image: Image.Image) -> bool:
    """Return whether the EXIF data record a rotation. Damaged EXIF data count as no rotation."""
    from PIL.ExifTags import Base

    try:
        return image.getexif().get(Base.Orientation, 1) in range(2, 9)
    except _BROKEN_IMAGE:
        return False


def _check_size(size_px: tuple[int, int], name: str) -> None:
    """Check the size of a frame before it is unpacked; the frames of one file can differ in size."""
    width_px, height_px = size_px
    if width_px * height_px > MAX_IMAGE_PIXELS:
        raise InputError(
            f"'{name}' is {width_px}x{height_px} px, more than {MAX_IMAGE_PIXELS // 1_000_000} megapixels, the limit; "
            "use a smaller image"
        )
