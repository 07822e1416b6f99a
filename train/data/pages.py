"""The pages that a conversation shows: drawn again from its source, or as the set stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Protocol

import numpy as np

from seer.errors import InputError
from seer.schema import Trajectory, Turn


def pictures_of(trajectories: Sequence[Trajectory], index: int) -> Sequence[bytes]:
    """The PNG pages that a set stores beside a trajectory; empty where it stores none."""
    stored = getattr(trajectories, "pages_png", None)
    return stored(index) if stored else ()


class ShownPage(Protocol):
    """A page of a size, and its picture when asked."""

    @property
    def width_px(self) -> int: ...
    @property
    def height_px(self) -> int: ...
    def image(self) -> np.ndarray: ...


def shown_pages(trajectory: Trajectory, turns: Sequence[Turn]) -> Mapping[int, ShownPage]:
    """The pages that a conversation shows as pictures, by number. Laid out now, drawn when asked."""
    wanted = _numbers_shown(turns)
    if not wanted:
        return {}
    from seer.rendering import render_text

    document = render_text(trajectory.source, trajectory.style, name=trajectory.id)
    _check_numbers(trajectory, wanted, len(document.pages), f"its source has {{}} in style '{trajectory.style.name}'")
    return {page: document.page(page) for page in wanted}


def embedded_pages(trajectory: Trajectory, turns: Sequence[Turn], pictures: Sequence[bytes]) -> Mapping[int, ShownPage]:
    """The same from the PNG that were stored with it."""
    wanted = _numbers_shown(turns)
    _check_numbers(trajectory, wanted, len(pictures), "{} came with it")
    return {page: EmbeddedPage(pictures[page - 1], f"page {page} of trajectory '{trajectory.id}'") for page in wanted}


class EmbeddedPage:
    """A stored PNG. Raises InputError where it is none."""

    def __init__(self, png: bytes, name: str) -> None:
        from PIL import Image, UnidentifiedImageError

        self._name = name
        try:
            self._image = Image.open(BytesIO(png))
        except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
            raise InputError(f"{name} cannot be read as a picture: {error}; build the set again") from None
        self.width_px, self.height_px = self._image.size

    def image(self) -> np.ndarray:
        """uint8 (height, width), or (height, width, 3) where it has colour."""
        try:
            return np.asarray(self._image if self._image.mode in ("L", "RGB") else self._image.convert("RGB"))
        except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises on broken data
            raise InputError(f"{self._name} cannot be read as a picture: {error}; build the set again") from None


def _numbers_shown(turns: Sequence[Turn]) -> set[int]:
    return {page for turn in turns if turn.kind == "prompt" for page in turn.pages}


def _check_numbers(trajectory: Trajectory, wanted: set[int], available: int, where: str) -> None:
    missing = sorted(page for page in wanted if not 1 <= page <= available)
    if missing:
        raise InputError(
            f"trajectory '{trajectory.id}' shows pages {missing}, but {where.format(available)}; build it again from its source"
        )
