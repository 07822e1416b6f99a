"""Tall and wide images become pages that can be read, and no line is lost."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from seer.rendering.documents import load_bytes
from seer.rendering.formats import scans
from seer.rendering.formats.images import load as images
from seer.rendering.formats.images.slicing import slices
from tests.rendering.makers import encode_image

STEP = 49
"""Pixels from one line of the picture to the next."""


def tall(lines: int, width: int = 700, ground: str = "plain") -> np.ndarray:
    """A picture of numbered lines; the ground may leave no row of one colour."""
    height = STEP * lines + 40
    picture = Image.fromarray(np.full((height, width), 255, np.uint8))
    if ground == "striped":
        stripes = np.tile(np.repeat(np.array([255, 200], np.uint8), 50), width // 100 + 1)[:width]
        picture = Image.fromarray(np.tile(stripes, (height, 1)))
    draw = ImageDraw.Draw(picture)
    for number in range(lines):
        draw.text((20, 20 + STEP * number), f"Line {number}", fill=0)
    return np.asarray(picture)


def test_slices_of_an_ordinary_image_are_one():
    for shape in ((800, 600), (1500, 600), (600, 2300), (1200, 20), (20, 1200)):
        (part,), side_by_side = slices(np.full(shape, 255, np.uint8))
        assert (part.start, part.end, side_by_side) == (0, shape[0], False)


@pytest.mark.parametrize("color", [False, True])
def test_slices_of_a_tall_image_lie_between_lines(color):
    image = tall(100)
    parts, side_by_side = slices(np.repeat(image[:, :, None], 3, 2) if color else image)
    assert not side_by_side and len(parts) >= 4
    assert [part.start for part in parts[1:]] == [part.end for part in parts[:-1]]
    assert (parts[0].start, parts[-1].end) == (0, len(image))
    for part in parts[1:]:
        assert (image[part.start - 3 : part.start + 3] == 255).all()


def test_slices_without_a_gap_overlap_by_more_than_a_line():
    parts, _ = slices(tall(100, ground="striped"))
    for before, part in pairwise(parts):
        assert part.shared == before.end - part.start > 2 * STEP


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 4000), st.integers(1, 4000), st.integers(0, 2**32 - 1))
def test_slices_cover_every_image(height, width, seed):
    random = np.random.default_rng(seed)
    image = np.repeat(random.integers(0, 2, (height, 1), np.uint8) * 255, width, 1)
    image[:, : width // 2] = 255
    parts, side_by_side = slices(image)
    length = width if side_by_side else height
    assert parts[0].start == 0 and parts[-1].end == length
    for before, part in pairwise(parts):
        assert before.start < part.start <= before.end < part.end
        assert part.shared == before.end - part.start


def read_marks(image: np.ndarray) -> list[scans.ReadLine]:
    """Reads the lines of `tall` from rows of dark pixels: each run of such rows is one line, cut ones included."""
    dark = (image[:, :200] < 100).any(1)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], dark, [False])).astype(int)))
    height = len(image)
    return [
        scans.ReadLine(str(int(image[start:end, :200].sum())), 0, start / height, 1, end / height)
        for start, end in edges.reshape(-1, 2)
    ]


@pytest.mark.parametrize("ground", ["plain", "striped"])
def test_load_tall_image_reads_each_line_once(ground, monkeypatch):
    image = tall(100, ground=ground)
    monkeypatch.setattr(images, "read_picture", read_marks)
    document = load_bytes(encode_image(Image.fromarray(image), "PNG"), "tall.png")
    assert document.text.splitlines() == [line.text for line in read_marks(image)]
    assert len(document.pages) >= 4 and all(page.width_px == 700 for page in document)
    for page in document:
        assert all(box.y_px + box.height_px <= page.height_px for box in page.line_boxes())


def test_load_wide_image_becomes_parts_from_left_to_right():
    image = np.full((400, 4000), 255, np.uint8)
    document = load_bytes(encode_image(Image.fromarray(image), "PNG"), "wide.png", ocr="never")
    assert sum(page.width_px for page in document) == 4000 and len(document.pages) > 4


def test_load_tall_image_keeps_only_the_pages_that_are_named(monkeypatch):
    seen = []
    monkeypatch.setattr(images, "read_picture", lambda image: seen.append(image) or [])
    data = encode_image(Image.fromarray(tall(100)), "PNG")
    document = load_bytes(data, "tall.png", pages="2-3")
    assert [page.label for page in document] == ["2", "3"] and len(seen) == 2


def test_load_tiff_has_a_page_per_frame_and_keeps_the_named_ones():
    frames = [Image.new("L", (60, 40), shade) for shade in (10, 20, 30)]
    data = encode_image(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    document = load_bytes(data, "scan.tif", ocr="never", pages="2-")
    assert [int(page.image()[0, 0]) for page in document] == [20, 30] and not document.warnings


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_load_animation_shows_its_first_frame_and_warns(kind):
    frames = [Image.new("RGB", (60, 40), (shade, 0, 0)) for shade in (10, 100, 200)]
    data = encode_image(
        frames[0], kind, save_all=True, append_images=frames[1:], **({"lossless": True} if kind == "WEBP" else {})
    )
    document = load_bytes(data, "film", ocr="never")
    (warning,) = document.warnings
    assert len(document.pages) == 1 and warning.kind == "frames" and "first of 3 frames" in warning.message
    assert document.page(1).image()[0, 0, 0] == pytest.approx(10, abs=2)


@pytest.mark.parametrize("value", [0.5, 127.0])
def test_load_image_of_measured_values_is_grey(value):
    data = encode_image(Image.fromarray(np.full((40, 60), value, np.float32)), "TIFF")
    assert load_bytes(data, "a.tif", ocr="never").page(1).image()[0, 0] == pytest.approx(127, abs=1)


def test_load_cmyk_image_has_the_colours_of_a_viewer():
    data = encode_image(Image.new("CMYK", (60, 40), (0, 255, 255, 0)), "JPEG")
    red, green, blue = load_bytes(data, "a.jpg", ocr="never").page(1).image()[0, 0]
    assert red > 200 and green < 60 and blue < 60


def test_load_avif_image():
    data = encode_image(Image.new("L", (60, 40), 200), "AVIF")
    assert load_bytes(data, "a.avif", ocr="never").page(1).image().shape[:2] == (40, 60)


def test_load_heic_image_or_name_the_extra(monkeypatch):
    import sys

    from seer.errors import InputError

    heif = pytest.importorskip("pillow_heif", reason="needs the extra heic")
    heif.register_heif_opener()
    data = encode_image(Image.new("RGB", (64, 48), (200, 10, 10)), "HEIF")
    assert load_bytes(data, "a.heic", ocr="never").page(1).image().shape == (48, 64, 3)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(InputError, match=r"seer-vlm\[heic\]"):
        load_bytes(data, "a.heic", ocr="never")
