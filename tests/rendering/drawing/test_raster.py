"""The direct raster: reproducible images with the right ink in the right place."""

from __future__ import annotations

import hashlib
import io
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from seer.rendering import png_bytes, render_text, resolve_style
from seer.rendering.drawing import raster as raster_module

FIXTURES = Path(__file__).parents[2] / "fixtures" / "rendering"
SAMPLES: dict[str, str] = json.loads((FIXTURES / "samples.json").read_text(encoding="utf-8"))
PAGE = resolve_style("seer", page_width_px=392, page_height_px=168, margin_x_px=10, margin_y_px=8)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_page_image_matches_golden_file(name):
    """Pixels are equal, unless another HarfBuzz version rasterises outlines slightly differently.

    Set SEER_UPDATE_GOLDEN to rewrite the golden files.
    """
    image = render_text(SAMPLES[name], PAGE).page(1).image()
    path = FIXTURES / f"{name}.png"
    if os.environ.get("SEER_UPDATE_GOLDEN"):
        path.write_bytes(png_bytes(image))
    golden = np.array(Image.open(path).convert("L"))
    assert image.shape == golden.shape
    if hashlib.sha256(image.tobytes()).digest() != hashlib.sha256(golden.tobytes()).digest():
        difference = np.abs(image.astype(int) - golden)
        assert difference.mean() < 0.5 and difference.max() <= 68


def test_page_image_does_not_depend_on_earlier_pages():
    text = "Some words, 中文 and (brackets); e\u0301."
    raster_module.atlas_for.cache_clear()
    first = render_text(text).page(1)
    alone = first.image()
    render_text("entirely other glyphs 0123456789 {}[]\n" * 50 + "字体渲染").page(1).image()
    again = render_text(text).page(1)
    assert again.content_hash == first.content_hash
    assert (again.image() == alone).all()


def test_page_image_is_equal_from_several_threads():
    pages = render_text("".join(chr(0x4E00 + k) for k in range(6000))).pages
    raster_module.atlas_for.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda page: page.image(), pages * 2))
    assert all((image == page.image()).all() for image, page in zip(together, pages * 2, strict=True))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2**63 - 1), max_size=5), max_size=6), st.data())
def test_word_store_add_sums_rows_at_their_origins(rows, data):
    """Rows may have any number of words, be appended in one or two calls, and be drawn in any order and repeatedly."""
    places = [[data.draw(st.integers(-9, 9)) for _ in row] for row in rows]
    store, split = raster_module.WordStore(), data.draw(st.integers(0, len(rows)))
    for some in (range(split), range(split, len(rows))):
        store.append(
            np.array([len(rows[k]) for k in some], np.int64),
            np.array([place for k in some for place in places[k]], np.int64),
            np.array([word for k in some for word in rows[k]], np.int64),
        )
    drawn = data.draw(st.lists(st.tuples(st.integers(0, len(rows)), st.integers(9, 30)), max_size=8))
    page, expected = np.zeros(40, np.int64), [0] * 40
    store.add(np.array([row for row, _ in drawn], np.int32), np.array([at for _, at in drawn], np.int64), page)
    for row, at in drawn:
        for place, word in zip(places[row - 1], rows[row - 1], strict=True) if row else ():
            expected[at + place] += word
    assert page.view(np.uint64).tolist() == [total % 2**64 for total in expected]


def test_content_hash_depends_on_text_style_and_fonts():
    base = render_text("a b").page(1).content_hash
    assert base != render_text("a c").page(1).content_hash
    assert base != render_text("a b", "large").page(1).content_hash
    assert base != render_text("a b", resolve_style("seer", fonts=("DejaVuSans",))).page(1).content_hash
    assert base == render_text("a b", resolve_style("seer", name="other")).page(1).content_hash


@settings(max_examples=30, deadline=None)
@given(st.text(st.sampled_from("lij.,AW中é"), min_size=1, max_size=40))
def test_ink_of_line_is_sum_of_its_characters(text):
    """The ink of a line equals that of its characters, apart from overlaps and sub-pixel phases."""
    whole = (255 - render_text(text).page(1).image().astype(int)).sum()
    parts = sum((255 - render_text(character).page(1).image().astype(int)).sum() for character in text)
    assert whole == pytest.approx(parts, rel=0.12)


def test_ink_lies_within_line_boxes():
    document = render_text("\n".join(SAMPLES.values()), "seer")
    image = document.page(1).image()
    inked = np.zeros(image.shape, bool)
    for box in document.page(1).line_boxes():
        top, left = int(box.y_px) - 2, int(box.x_px) - 2
        inked[max(0, top) : top + int(box.height_px) + 5, left : left + int(box.width_px) + 5] = True
    assert (image[~inked] == 255).all()


def test_stack_of_marks_does_not_overflow_pixels():
    image = render_text("e" + "\u0336" * 500 + " end").page(1).image()
    assert set(np.unique(image).tolist()) <= set(range(0, 256, 17))
    assert (image[:, 200:] == 255).all()


def test_large_letters_on_narrow_page_are_drawn():
    style = resolve_style("seer", font_size_pt=96, line_height_pt=110, page_width_px=300)
    assert render_text("Wgfﷺ", style).page(1).image().min() == 0


def test_newline_marks_are_lighter_than_text():
    style = resolve_style("seer", newline="mark", crop_last_page=True)
    plain, marked = render_text("x\n", "seer").page(1).image(), render_text("\n\n\n", style).page(1).image()
    assert plain.min() < 100 < marked.min() < 255


@settings(max_examples=40, deadline=None)
@given(st.text(st.sampled_from("Wij中 \n\ue000é"), min_size=1, max_size=120), st.integers(60, 200))
def test_page_png_equals_page_image(text, width_px):
    style = resolve_style("seer", page_width_px=width_px, page_height_px=90, margin_x_px=3, crop_width=True)
    for page in render_text(text, style).pages[:2]:
        assert (np.array(Image.open(io.BytesIO(page.png()))) == page.image()).all()
        assert len(page.png()) <= len(png_bytes(page.image())) + 8
