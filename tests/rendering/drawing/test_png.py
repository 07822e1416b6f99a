"""The PNG encoder: lossless, small, and strict about its input."""

from __future__ import annotations

import importlib.util
import io
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from seer.errors import InputError
from seer.rendering import png_bytes, render_text
from seer.rendering.drawing import png
from seer.rendering.drawing.png import _compress


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 70), st.integers(1, 9), st.sampled_from(["levels", "grey", "colour"]), st.integers(0, 2**31))
def test_png_bytes_round_trip_every_pixel(width, height, kind, seed):
    random = np.random.default_rng(seed)
    shape = (height, width, 3) if kind == "colour" else (height, width)
    image = random.integers(0, 256, shape, dtype=np.uint8)
    if kind == "levels":
        image = (image // 17 * 17).astype(np.uint8)
    data = png_bytes(image)
    assert (np.array(Image.open(io.BytesIO(data))) == image).all()


def test_png_bytes_accepts_views_and_rejects_other_arrays():
    image = np.arange(200, dtype=np.uint8).reshape(10, 20)[::2, ::3]
    assert (np.array(Image.open(io.BytesIO(png_bytes(image)))) == image).all()
    for bad in (np.zeros((2, 2), np.float32), np.zeros((0, 3), np.uint8), np.zeros((2, 2, 4), np.uint8)):
        with pytest.raises(InputError, match="is not an image"):
            png_bytes(bad)


def test_png_size_is_close_to_optimised_png():
    image = render_text("The quick brown fox jumps over the lazy dog. " * 150).page(1).image()
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", optimize=True)
    assert len(png_bytes(image)) <= 1.3 * len(buffer.getvalue())
    assert _compress(b"x" * 1000)


def test_png_bytes_without_isal_has_the_same_pixels(monkeypatch):
    """Some platforms have no wheel of ISA-L; the module then compresses with zlib."""
    for name in ("isal", "isal.isal_zlib"):
        monkeypatch.setitem(sys.modules, name, None)
    spec = importlib.util.spec_from_file_location("png_without_isal", png.__file__)
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    assert plain.crc32.__module__ != png.crc32.__module__
    image = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)
    assert (np.array(Image.open(io.BytesIO(plain.png_bytes(image)))) == image).all()
