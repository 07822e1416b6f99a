"""Image files and OCR: frames become pages as a viewer shows them, within limits."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from PIL import Image

from seer.errors import InputError
from seer.rendering import load, png_bytes, render_text
from seer.rendering.formats import scans
from seer.rendering.formats.images import frames
from tests.rendering.makers import encode_image, write_file


def test_in_lines_joins_pieces_in_reading_order():
    pieces = [
        scans.ReadLine("world", 0.5, 0.11, 0.8, 0.19),
        scans.ReadLine("below", 0.1, 0.3, 0.4, 0.4),
        scans.ReadLine("hello", 0.1, 0.1, 0.4, 0.2),
    ]
    assert [line.text for line in scans._in_lines(pieces)] == ["hello world", "below"]


def test_load_image_reads_text_by_ocr(tmp_path):
    pytest.importorskip("rapidocr")
    image = render_text("The quick brown fox\njumps over 1234 dogs", "large", "x").page(1).image()
    document = load(write_file(tmp_path, "scan.png", png_bytes(image)))
    assert "quick brown fox" in document.text and "1234" in document.text


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_load_image_transparent_pixels_become_white(tmp_path, mode):
    ink = Image.new("LA", (60, 40), (0, 0))
    ink.paste((0, 255), (10, 10, 30, 30))
    drawn, options = ink.convert(mode) if mode != "P" else Image.new("P", (60, 40), 1), {}
    if mode == "P":  # both palette entries are black, and one is transparent
        drawn.putpalette([0] * 6)
        drawn.paste(0, (10, 10, 30, 30))
        options = {"transparency": 1}
    image = load(write_file(tmp_path, "a.png", encode_image(drawn, "PNG", **options)), ocr="never").page(1).image()
    assert (image[0, 0] == 255).all() and (image[20, 20] == 0).all()


@pytest.mark.parametrize(("orientation", "shape"), [(1, (40, 60)), (3, (40, 60)), (6, (60, 40)), (8, (60, 40))])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_load_image_applies_exif_rotation(tmp_path, kind, orientation, shape):
    exif = Image.Exif()
    exif[0x112] = orientation
    data = encode_image(Image.new("L", (60, 40), 200), kind, exif=exif)
    assert load(write_file(tmp_path, "photo", data), ocr="never").page(1).image().shape[:2] == shape


def test_load_image_ignores_damaged_exif(tmp_path):
    data = encode_image(Image.new("L", (60, 40), 200), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\x7f")
    assert load(write_file(tmp_path, "photo", data), ocr="never").page(1).image().shape == (40, 60)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_load_image_sixteen_bit_grey_keeps_upper_bits(tmp_path, kind):
    shades = np.linspace(0, 65535, 256 * 40).reshape(40, 256).astype(np.uint16)
    image = load(write_file(tmp_path, "deep", encode_image(Image.fromarray(shades), kind)), ocr="never").page(1).image()
    assert (image == shades >> 8).all()


def test_load_image_scales_down_and_rejects_huge_images(tmp_path, monkeypatch):
    data = png_bytes(np.full((1500, 5000), 255, np.uint8))
    document = load(write_file(tmp_path, "wide.png", data), ocr="never")
    assert document.page(1).width_px == scans.MAX_SIDE_PX
    monkeypatch.setattr(frames, "MAX_IMAGE_PIXELS", 1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match="megapixels"):
            load(tmp_path / "wide.png", ocr="never")
