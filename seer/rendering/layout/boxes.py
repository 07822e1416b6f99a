"""Bitmaps for characters that no font covers: a frame around the code point in hexadecimal digits.

    missing_box(0xF0000, size_px=9.0)     # uint8 (height_px, width_px), 1 for ink

At 9 px text the digits are three pixels wide and five high. They are bitmaps because no font outline is legible at
that size. Larger text scales them by whole factors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DIGITS = (
    "0:###,#.#,#.#,#.#,### 1:.#.,##.,.#.,.#.,### 2:##.,..#,.#.,#..,### 3:##.,..#,.#.,..#,##. "
    "4:#.#,#.#,###,..#,..# 5:###,#..,##.,..#,##. 6:.##,#..,###,#.#,### 7:###,..#,.#.,.#.,.#. "
    "8:###,#.#,###,#.#,### 9:###,#.#,###,..#,##. A:.#.,#.#,###,#.#,#.# B:##.,#.#,##.,#.#,##. "
    "C:.##,#..,#..,#..,.## D:##.,#.#,#.#,#.#,##. E:###,#..,##.,#..,### F:###,#..,##.,#..,#.."
)
_BITMAPS = {
    entry[0]: np.array([[pixel == "#" for pixel in row] for row in entry[2:].split(",")], np.uint8)
    for entry in _DIGITS.split()
}


def box_width_px(num_digits: int, size_px: float) -> int:
    """Return the width in pixels of the box around a code point of `num_digits` hexadecimal digits."""
    return (4 * num_digits + 3) * _scale(size_px)


def _scale(size_px: float) -> int:
    """Return the whole factor by which a box for text of `size_px` pixels is enlarged."""
    return max(1, round(size_px / 9))


@lru_cache(maxsize=4096)
def missing_box(code: int, size_px: float) -> NDArray[np.uint8]:
    """Draw the box of a code point for text of `size_px` pixels.

    Returns uint8 (height_px, width_px) with 1 for ink and 0 for blank; its last row lies on the baseline.
    """
    digits = f"{code:04X}"
    # At scale 1: a one-pixel frame, a blank pixel inside it, then 3x5 digits that are one blank column apart.
    box = np.zeros((9, 4 * len(digits) + 3), np.uint8)
    box[[0, -1], :] = 1
    box[:, [0, -1]] = 1
    for k, digit in enumerate(digits):
        box[2:7, 2 + 4 * k : 5 + 4 * k] = _BITMAPS[digit]
    return np.kron(box, np.ones((_scale(size_px), _scale(size_px)), np.uint8))
