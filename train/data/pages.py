"""The pages that a conversation shows: rendered from its source, or decoded from pictures that the set stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Protocol

import numpy as np

from seer.errors import InputError
from seer.schema import Trajectory, Turn


def pictures_of(trajectories: Sequence[Trajectory], index: int) -> Sequence[bytes]:
    """The pages of a trajectory as PNG, if the set stores them; empty otherwise."""
    stored = getattr(trajectories, "pages_png", None)
    return stored(index) if stored else ()


class ShownPage(Protocol):
    """A page with its size; the picture is made by `image`."""

    @property
    def width_px(self) -> int: ...
    @property
    def height_px(self) -> int: ...
    def image(self) -> np.ndarray:
        """The picture as uint8, (height, width) or (height, width, 3)."""


def shown_pages(trajectory: Trajectory, turns: Sequence[Turn]) -> Mapping[int, ShownPage]:
    """The pages that a conversation shows as pictures, by number. Layout happens here, drawing in `image`.

    Raises InputError if a turn shows a page that the source does not have.
    """
    wanted = _numbers_shown(turns)
    if not wanted:
        return {}
    from seer.rendering import render_text

    document = render_text(trajectory.source, trajectory.style, name=trajectory.id)
    _check_numbers(trajectory, wanted, len(document.pages), f"its source has {{}} in style '{trajectory.style.name}'")
    return {page: document.page(page) for page in wanted}


def embedded_pages(trajectory: Trajectory, turns: Sequence[Turn], pictures: Sequence[bytes]) -> Mapping[int, ShownPage]:
    """The pages that a conversation shows, by number, from PNG stored with the trajectory.

    Raises InputError if a turn shows a page without a stored picture, or a picture is damaged.
    """
    wanted = _numbers_shown(turns)
    _check_numbers(trajectory, wanted, len(pictures), "the set stores {} of its pages")
    return {page: EmbeddedPage(pictures[page - 1], f"page {page} of trajectory '{trajectory.id}'") for page in wanted}


class EmbeddedPage:
    """A page stored as PNG. Raises InputError if the bytes are not a readable picture."""

    def __init__(self, png: bytes, name: str) -> None:
        from PIL import Image, UnidentifiedImageError

        self._name = name
        try:
            self._image = Image.open(BytesIO(png))
        except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
            raise InputError(f"{name} cannot be read as a picture: {error}; build the set again") from None
        self.width_px, self.height_px = self._image.size

    def image(self) -> np.ndarray:
        """uint8 (height, width), or (height, width, 3) for a coloured page. Raises InputError if its data is damaged."""
        try:
            return np.asarray(self._image if self._image.mode in ("L", "RGB") else self._image.convert("RGB"))
        except (OSError, SyntaxError, ValueError) as error:  # Pillow raises these on damaged data
            raise InputError(f"{self._name} cannot be read as a picture: {error}; build the set again") from None


def _numbers_shown(turns: Sequence[Turn]) -> set[int]:
    return {page for turn in turns if turn.kind == "prompt" for page in turn.pages}


def _check_numbers(trajectory: Trajectory, wanted: set[int], available: int, where: str) -> None:
    missing = sorted(page for page in wanted if not 1 <= page <= available)
    if missing:
        raise InputError(
            f"trajectory '{trajectory.id}' shows pages {missing}, but {where.format(available)}; build it again from its source"
        )
