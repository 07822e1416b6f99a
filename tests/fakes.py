"""Small stand-ins: documents with pages that are fast to draw, and an encoder without a checkpoint."""

from __future__ import annotations

import functools
import hashlib

import numpy as np

from seer.engines.base import Completion
from seer.models.small import default_corpus, train_tokenizer
from seer.protocol.encoding import Encoder
from seer.rendering import png_bytes
from seer.schema import Document, Page, PageStyle


def draw_noise(page: Page) -> np.ndarray:
    """A grey image that depends only on the page's content."""
    seed = int(page.content_hash[:8], 16)
    return np.random.default_rng(seed).integers(0, 256, (page.height_px, page.width_px), np.uint8)


def make_document(texts: list[str], width_px: int = 112, height_px: int = 84, name: str = "fake") -> Document:
    """A document with one page a text."""
    pages, start = [], 0
    for number, text in enumerate(texts, 1):
        digest = hashlib.sha256(f"{number}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()
        page = Page(
            number=number,
            start=start,
            end=start + len(text),
            text=text,
            width_px=width_px,
            height_px=height_px,
            content_hash=digest,
        )
        pages.append(page.attach(draw_noise, encode=lambda page: png_bytes(draw_noise(page))))
        start += len(text)
    return Document(name=name, text="".join(texts), style=PageStyle(), pages=tuple(pages))


@functools.cache
def small_encoder() -> Encoder:
    return Encoder(train_tokenizer(default_corpus(), 2048))


def error_text(generation: Completion) -> str:
    """The message of a failed generation; "" for one that did not fail."""
    return str(getattr(generation, "error", None) or "")
