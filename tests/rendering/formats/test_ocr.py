"""OCR with a small fake of RapidOCR: lines, their boxes, and the missing extra."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from seer.errors import InputError
from seer.rendering.formats import scans


@pytest.fixture
def recogniser(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the recogniser saw last, and what it finds next."""
    state = SimpleNamespace(image=None, found=SimpleNamespace(boxes=None, txts=None))

    class RapidOCR:
        def __init__(self, params: dict[str, str]) -> None:
            pass

        def __call__(self, image: np.ndarray) -> SimpleNamespace:
            state.image = image
            return state.found

    module = ModuleType("rapidocr")
    module.RapidOCR = RapidOCR
    monkeypatch.setitem(sys.modules, "rapidocr", module)
    monkeypatch.setattr(scans, "ocr_installed", lambda: True)
    scans._recogniser.cache_clear()
    yield state
    scans._recogniser.cache_clear()


def corners(left: float, top: float, right: float, bottom: float) -> list[list[float]]:
    return [[left, top], [right, top], [right, bottom], [left, bottom]]


def test_read_picture_joins_pieces_into_lines_with_boxes_as_fractions(recogniser):
    boxes = [corners(100, 10, 180, 20), corners(20, 10, 90, 20), corners(20, 50, 90, 60), corners(0, 80, 9, 90)]
    recogniser.found = SimpleNamespace(boxes=boxes, txts=("world", "hello", "below", "  "))
    lines = scans.read_picture(np.zeros((100, 200), np.uint8))
    assert recogniser.image.shape == (100, 200, 3)
    assert [line.text for line in lines] == ["hello world", "below"]
    assert (lines[0].left, lines[0].top, lines[0].right, lines[0].bottom) == pytest.approx((0.1, 0.1, 0.9, 0.2))


def test_read_picture_without_text_returns_no_lines(recogniser):
    colour = np.zeros((10, 20, 3), np.uint8)
    assert scans.read_picture(colour) == []
    assert recogniser.image is colour


def test_read_picture_without_ocr_names_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    monkeypatch.setattr(scans, "ocr_installed", lambda: False)
    scans._recogniser.cache_clear()
    with pytest.raises(InputError, match=r"install it with: pip install 'seer-vlm\[ocr\]'"):
        scans.read_picture(np.zeros((10, 20), np.uint8))
