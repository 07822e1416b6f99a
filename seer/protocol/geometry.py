"""The number of vision tokens of an image and their grid, in integers, equal to the GLM-4V image processor.

GLM-4.1V cuts an image into patches of 14 px and merges 2 x 2 patches into one token, so both sides are rounded to
multiples of 28 px. An image counts as two frames (temporal patch 2) against the processor's pixel budget.

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
    """The constants of the image processor; the defaults are those of GLM-4.1V."""

    patch_px: int = 14
    merge: int = 2
    frames: int = 2
    min_pixels: int = 112 * 112
    max_pixels: int = 28 * 28 * 15000
    """Both limits apply to the pixels of all frames: frames · height · width."""

    @property
    def snap_px(self) -> int:
        """Both sides of a resized image are multiples of this."""
        return self.patch_px * self.merge

    def resized(self, width_px: int, height_px: int) -> tuple[int, int]:
        """Return (width, height) in pixels after the processor's resize.

        Raises InputError for a size that the processor rejects: no area, or sides that differ more than 200-fold.
        The arithmetic is that of `smart_resize` in transformers (models/glm4v/image_processing_glm4v.py).
        """
        snap, frames = self.snap_px, self.frames
        if width_px < 1 or height_px < 1:
            raise InputError(f"an image of {width_px}x{height_px} px has no area; both sides must be at least 1 px")
        if width_px < snap or height_px < snap:
            scale = max(snap / width_px, snap / height_px)
            width_px, height_px = int(width_px * scale), int(height_px * scale)
        if max(width_px, height_px) / min(width_px, height_px) > 200:
            raise InputError(
                f"an image of {width_px}x{height_px} px is too narrow; the longer side may be at most 200 times the shorter"
            )
        # round() rounds halves to even, like the processor.
        width, height = round(width_px / snap) * snap, round(height_px / snap) * snap
        if frames * height * width > self.max_pixels:
            # Scale both sides by 1/sqrt(excess), which keeps the aspect ratio; rounding down stays within the budget.
            beta = math.sqrt(frames * height_px * width_px / self.max_pixels)
            height = max(snap, math.floor(height_px / beta / snap) * snap)
            width = max(snap, math.floor(width_px / beta / snap) * snap)
        elif frames * height * width < self.min_pixels:
            beta = math.sqrt(self.min_pixels / (frames * height_px * width_px))
            height = math.ceil(height_px * beta / snap) * snap
            width = math.ceil(width_px * beta / snap) * snap
        return width, height

    def grid(self, width_px: int, height_px: int) -> tuple[int, int]:
        """Return (rows, columns) of patches before merging, for an image of this size. Raises like `resized`."""
        width, height = self.resized(width_px, height_px)
        return height // self.patch_px, width // self.patch_px

    def tokens(self, width_px: int, height_px: int) -> int:
        """Return the number of vision tokens after merging, without the markers around them. Raises like `resized`."""
        rows, columns = self.grid(width_px, height_px)
        return rows * columns // self.merge**2


GLM_41V = VisionGeometry()
