"""How many vision tokens an image costs, and where its tokens stand. Pure integers.

GLM-4.1V cuts an image into patches of 14 px and merges 2 x 2 of them into one token, so both sides snap to
multiples of 28 px. An image is counted as two frames (temporal patch 2) against the processor's pixel budget.

    >>> GLM_41V.resized(595, 842)
    (588, 840)
    >>> GLM_41V.grid(595, 842)
    (60, 42)
    >>> GLM_41V.tokens(595, 842)
    630
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from seer.errors import InputError


@dataclass(frozen=True)
class VisionGeometry:
    """The image processor's constants; the defaults are GLM-4.1V's."""

    patch_px: int = 14
    merge: int = 2
    frames: int = 2
    min_pixels: int = 112 * 112
    max_pixels: int = 28 * 28 * 15000
    """Budgets over `frames` frames: frames · height · width."""

    @property
    def snap_px(self) -> int:
        return self.patch_px * self.merge

    def resized(self, width_px: int, height_px: int) -> tuple[int, int]:
        """(width, height) in pixels after the processor's resize. Raises InputError on what it would refuse."""
        snap, frames = self.snap_px, self.frames
        if width_px < 1 or height_px < 1:
            raise InputError(f"an image of {width_px}x{height_px} px has no area; both sides must be at least 1 px")
        if width_px < snap or height_px < snap:
            scale = max(snap / width_px, snap / height_px)
            width_px, height_px = int(width_px * scale), int(height_px * scale)
        if max(width_px, height_px) / min(width_px, height_px) > 200:
            raise InputError(f"an image of {width_px}x{height_px} px is too narrow; sides may differ 200-fold at most")
        # round() halves to even, as the processor does
        width, height = round(width_px / snap) * snap, round(height_px / snap) * snap
        if frames * height * width > self.max_pixels:
            beta = math.sqrt(frames * height_px * width_px / self.max_pixels)
            height = max(snap, math.floor(height_px / beta / snap) * snap)
            width = max(snap, math.floor(width_px / beta / snap) * snap)
        elif frames * height * width < self.min_pixels:
            beta = math.sqrt(self.min_pixels / (frames * height_px * width_px))
            height = math.ceil(height_px * beta / snap) * snap
            width = math.ceil(width_px * beta / snap) * snap
        return width, height

    def grid(self, width_px: int, height_px: int) -> tuple[int, int]:
        """(rows, columns) of patches before merging."""
        width, height = self.resized(width_px, height_px)
        return height // self.patch_px, width // self.patch_px

    def tokens(self, width_px: int, height_px: int) -> int:
        """Vision tokens after merging, without the markers around them."""
        rows, columns = self.grid(width_px, height_px)
        return rows * columns // self.merge**2


GLM_41V = VisionGeometry()
