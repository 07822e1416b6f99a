"""Decode image files to the pixels that a viewer shows. The files are untrusted: formats, sizes and frames are limited."""

from __future__ import annotations

import io
import struct
import warnings
from typing import TYPE_CHECKING

import numpy as np

from seer.errors import InputError
from seer.rendering.formats.extract import cause_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image

MAX_IMAGE_PIXELS = 100_000_000
"""Limit on the pixels of one frame as stored in the file."""
_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "AVIF", "HEIF")
"""The formats to read. Pillow supports many more, some of which start external programs."""
_MAX_FRAMES = 2000
_MAX_FRAMES_BYTES = 4 << 30
"""Limit on the memory of all frames. An animation of a few megabytes can unpack to a hundred gigabytes."""
_BROKEN_IMAGE = (
    *(OSError, ValueError, SyntaxError, EOFError, struct.error),
    *(LookupError, TypeError, ArithmeticError, AttributeError),
)
"""The exceptions that Pillow's readers raise for damaged files."""
HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1")
"""Brands of HEIC files, which follow "ftyp" in the first box of the file."""


def read_frames(data: bytes, name: str) -> tuple[list[NDArray[np.uint8]], int]:
    """Decode the pages of an image file, and count its frames.

    Every frame of a TIFF file is a page; of an animation the first frame is the only page.

    Returns:
        uint8 (height_px, width_px) or (height_px, width_px, 3) for each page, and the number of frames in the file.

    Raises InputError if the image is damaged or too large, or if its format needs a package that is not installed.
    """
    from PIL import Image, UnidentifiedImageError

    _register_heif(data, name)
    frames: list[NDArray[np.uint8]] = []
    try:
        # Pillow decodes frames lazily: `open` reads headers only, `convert` and `thumbnail` the pixels.
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", Image.DecompressionBombWarning
            )  # `_check_size` applies the limit of this module
            opened = Image.open(io.BytesIO(data), formats=_FORMATS)
        with opened as image:
            count = getattr(image, "n_frames", 1)
            if count > _MAX_FRAMES and image.format == "TIFF":
                raise InputError(f"'{name}' has more than {_MAX_FRAMES:,} pages, the limit; split the file")
            for index in range(count if image.format == "TIFF" else 1):
                image.seek(index)
                _check_size(image.size, name)
                frames.append(np.array(_on_paper(image)))
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
        raise InputError(
            f"'{name}' is a damaged image ({cause_of(error)}); use one that an image viewer opens"
        ) from None
    return frames, count


def _register_heif(data: bytes, name: str) -> None:
    """Teach Pillow to read HEIC files if `data` is one. Raises InputError if the package for it is missing."""
    if data[4:8] != b"ftyp" or data[8:12] not in HEIF_BRANDS:
        return
    try:
        import pillow_heif
    except ImportError:
        raise InputError(
            f"'{name}' is a HEIC image, which needs pillow-heif; install it with: pip install 'seer-vlm[heic]'"
        ) from None
    pillow_heif.register_heif_opener()


def _on_paper(image: Image.Image) -> Image.Image:
    """Convert a frame to what a viewer shows: upright, on white if transparent, with 8 bits per channel.

    Returns an image of mode "L" or "RGB".
    """
    from PIL import Image as Pillow
    from PIL import ImageOps

    if _is_turned(image):
        image = ImageOps.exif_transpose(image)
    mode = "L" if image.mode in ("1", "L", "LA", "F") or image.mode.startswith("I") else "RGB"
    if image.mode.startswith("I"):
        # Modes "I" and "I;16" hold up to 16 bits of grey, but some files use only the lower eight.
        values = np.asarray(image)
        eight = values >> 8 if values.max() > 255 else values
        image = Pillow.fromarray(eight.clip(0, 255).astype(np.uint8))
    elif image.mode == "F":
        # Measured values; the usual ranges are 0 to 1 and 0 to 255.
        values = np.nan_to_num(np.asarray(image))
        image = Pillow.fromarray((values * (255 if values.max(initial=0) <= 1 else 1)).clip(0, 255).astype(np.uint8))
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
