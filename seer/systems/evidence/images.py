"""Images for chats: pages and crops of pages, reduced where a server limits their size.

image = page_image(page, max_side_px=1500)
crop = crop_image(page, box, scale=2.0)
smaller = halve_images(chat)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from seer.engines.base import Chat, ChatImage
from seer.schema import Box, Page

MIN_SIDE_PX = 28
"""A side of an image is never reduced below this, the smallest size that vision models read."""


def page_image(page: Page, max_side_px: int | None = None) -> ChatImage:
    """Return the image of a page, reduced so that no side exceeds `max_side_px`."""
    image = ChatImage.of_page(page)
    longest = max(image.width_px, image.height_px)
    return image if max_side_px is None or longest <= max_side_px else scale_image(image, max_side_px / longest)


def crop_image(page: Page, box: Box, margin_px: int = 4) -> ChatImage:
    """Return the part of a page's image inside `box`, with a margin, clipped to the page.

    Raises ValueError if the box lies outside the page.
    """
    left, top = max(0, int(box.x_px) - margin_px), max(0, int(box.y_px) - margin_px)
    right = min(page.width_px, int(np.ceil(box.x_px + box.width_px)) + margin_px)
    bottom = min(page.height_px, int(np.ceil(box.y_px + box.height_px)) + margin_px)
    if right - left < 1 or bottom - top < 1:
        raise ValueError(f"box {box} lies outside page {page.number} of {page.width_px}x{page.height_px} px")

    def draw() -> np.ndarray:
        return np.ascontiguousarray(page.image()[top:bottom, left:right])

    digest = f"{page.content_hash}-crop-{left}-{top}-{right}-{bottom}"
    return ChatImage(digest, right - left, bottom - top, draw)


def scale_image(image: ChatImage, factor: float) -> ChatImage:
    """Return the image with both sides multiplied by `factor`, at least MIN_SIDE_PX each."""
    width = max(MIN_SIDE_PX, round(image.width_px * factor))
    height = max(MIN_SIDE_PX, round(image.height_px * factor))
    return ChatImage(f"{image.content_hash}-{width}x{height}", width, height, _resized(image.draw, width, height))


def halve_images(chat: Chat) -> Chat:
    """Return the chat with the sides of every image halved."""
    messages = tuple(
        replace(
            message,
            content=tuple(scale_image(part, 0.5) if isinstance(part, ChatImage) else part for part in message.content),
        )
        for message in chat.messages
    )
    return Chat(messages)


def _resized(draw: Callable[[], np.ndarray], width_px: int, height_px: int) -> Callable[[], np.ndarray]:
    """Return a function that draws an image and scales it to the given size."""

    def resize() -> np.ndarray:
        from PIL import Image

        return np.asarray(Image.fromarray(draw()).resize((width_px, height_px), Image.Resampling.LANCZOS))

    return resize
