"""Coordinates of a PDF page: from its own space to the page as it is shown.

A PDF page has its origin at the lower left; its visible part is the crop box, and it may be shown turned. Everything else
in this package uses points from the upper left corner of the page as shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Frame:
    """The visible part of a page in its own coordinates, and how far it is turned."""

    left: float
    bottom: float
    right: float
    top: float
    turns: int = 0
    """Quarter turns clockwise, 0 to 3."""

    @property
    def size_pt(self) -> tuple[float, float]:
        """Width and height of the page as shown, in points."""
        width, height = self.right - self.left, self.top - self.bottom
        return (height, width) if self.turns % 2 else (width, height)

    def shown(self, boxes: NDArray[np.floating]) -> NDArray[np.float64]:
        """Convert boxes to the page as shown.

        Args:
            boxes: (n, 4), each (left, bottom, right, top) in the page's own coordinates.

        Returns:
            float64 (n, 4), each (left, top, right, bottom) in points from the upper left corner of the page as shown.
        """
        left, bottom, right, top = np.asarray(boxes, np.float64).T
        if self.turns == 0:
            parts = (left - self.left, self.top - top, right - self.left, self.top - bottom)
        elif self.turns == 1:
            parts = (bottom - self.bottom, left - self.left, top - self.bottom, right - self.left)
        elif self.turns == 2:
            parts = (self.right - right, bottom - self.bottom, self.right - left, top - self.bottom)
        else:
            parts = (self.top - top, self.right - right, self.top - bottom, self.right - left)
        return np.stack(parts, 1)


def turned_back(boxes: NDArray[np.float64], quarter: int) -> NDArray[np.float64]:
    """Turn boxes so that text which is written at `quarter` quarter turns clockwise runs from left to right.

    Args:
        boxes: float64 (n, 4), each (left, top, right, bottom); the y axis points down.
        quarter: 0 to 3.
    """
    left, top, right, bottom = boxes.T
    if quarter == 1:
        return np.stack((top, -right, bottom, -left), 1)
    if quarter == 2:
        return np.stack((-right, -bottom, -left, -top), 1)
    if quarter == 3:
        return np.stack((-bottom, left, -top, right), 1)
    return boxes
