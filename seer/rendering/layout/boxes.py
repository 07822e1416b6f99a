"""The box that stands for a character no font covers: a frame around its code point in hexadecimal digits.

The digits are three pixels wide and five high at 9 px text, drawn here because no outline is legible at that size.
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
    """Width of the box around a code point of so many hexadecimal digits."""
    return (4 * num_digits + 3) * _scale(size_px)


def _scale(size_px: float) -> int:
    return max(1, round(size_px / 9))


@lru_cache(maxsize=4096)
def missing_box(code: int, size_px: float) -> NDArray[np.uint8]:
    """Bitmap of the box, 1 for ink, shape (height, width) in pixels; it stands on the baseline."""
    digits = f"{code:04X}"
    box = np.zeros((9, 4 * len(digits) + 3), np.uint8)
    box[[0, -1], :] = 1
    box[:, [0, -1]] = 1
    for k, digit in enumerate(digits):
        box[2:7, 2 + 4 * k : 5 + 4 * k] = _BITMAPS[digit]
    return np.kron(box, np.ones((_scale(size_px), _scale(size_px)), np.uint8))
