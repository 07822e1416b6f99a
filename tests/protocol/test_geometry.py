"""Tests of the vision geometry: token counts and patches equal those of transformers' GLM-4V image processor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.models.checkpoint import PixelScaling, patchify
from seer.protocol.encoding import ImageSlot
from seer.protocol.geometry import GLM_41V, VisionGeometry

sizes = st.integers(1, 4000)


def test_tokens_of_the_paper_page_are_630():
    assert GLM_41V.resized(595, 842) == (588, 840)
    assert GLM_41V.grid(595, 842) == (60, 42)
    assert GLM_41V.tokens(595, 842) == 630
    assert GLM_41V.tokens(794, 1123) == 1120  # the same page at 96 dpi


@given(sizes, sizes)
@settings(max_examples=500, deadline=None)
def test_resized_any_size_equals_transformers(width, height):
    from transformers.models.glm4v.image_processing_glm4v import Glm4vImageProcessor, smart_resize

    size = Glm4vImageProcessor.size
    try:
        expected = smart_resize(2, height, width, 2, 28, size["shortest_edge"], size["longest_edge"])
    except ValueError:
        with pytest.raises(InputError):
            GLM_41V.resized(width, height)
        return
    assert GLM_41V.resized(width, height) == expected[::-1]


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(28, 4_000_000))
@settings(max_examples=200, deadline=None)
def test_resized_with_other_pixel_budget_equals_transformers(width, height, max_pixels):
    from transformers.models.glm4v.image_processing_glm4v import smart_resize

    geometry = VisionGeometry(min_pixels=28 * 28, max_pixels=max_pixels)
    try:
        expected = smart_resize(2, height, width, 2, 28, 28 * 28, max_pixels)
    except ValueError:
        return
    assert geometry.resized(width, height) == expected[::-1]


@pytest.mark.parametrize("size", [(0, 10), (10, 0), (1, 28 * 300)])
def test_resized_rejects_impossible_size(size):
    with pytest.raises(InputError):
        GLM_41V.resized(*size)


@pytest.mark.parametrize(("width", "height"), [(588, 840), (112, 84), (595, 842)])
def test_patchify_equals_transformers_image_processor(width, height):
    from PIL import Image
    from transformers import Glm4vImageProcessor

    grey = np.random.default_rng(0).integers(0, 256, (height, width), np.uint8)
    scaling = PixelScaling(mean=(0.48, 0.45, 0.40), std=(0.26, 0.27, 0.28))
    rows, columns = GLM_41V.grid(width, height)
    ours = patchify(grey, ImageSlot(1, 0, rows, columns, rows * columns // 4), GLM_41V, scaling)
    processor = Glm4vImageProcessor(image_mean=list(scaling.mean), image_std=list(scaling.std))
    theirs = processor(images=[Image.fromarray(grey)], return_tensors="np")
    assert tuple(theirs["image_grid_thw"][0]) == (1, rows, columns)
    # A page on the grid is not resampled. Off the grid torchvision and Pillow round differently.
    on_grid = width % 28 == 0 and height % 28 == 0
    difference = np.abs(ours - np.asarray(theirs["pixel_values"]))
    assert difference.max() < (1e-5 if on_grid else 0.05)
