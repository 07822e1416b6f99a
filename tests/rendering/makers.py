"""Small documents of every format, built in memory for the tests."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
"""The namespace declaration of a Word document's XML."""


def write_file(folder: Path, name: str, data: bytes | str) -> Path:
    """Write `data` to a file, text as UTF-8, and return its path."""
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def make_pdf(pages: int = 3, **options: Any) -> bytes:
    """A PDF with two lines of text per page; `options` go to reportlab's Canvas."""
    canvas = pytest.importorskip("reportlab.pdfgen.canvas").Canvas(buffer := io.BytesIO(), **options)
    for number in range(1, pages + 1):
        canvas.drawString(72, 700, f"Page {number} has a first line of text")
        canvas.drawString(72, 680, "and a second line, which is longer than the first.")
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def make_scanned_pdf(image: np.ndarray, caption: str = "") -> bytes:
    """A PDF of one page of 300x100 points that an image covers, with a caption as its only text."""
    canvas = pytest.importorskip("reportlab.pdfgen.canvas").Canvas(buffer := io.BytesIO(), pagesize=(300, 100))
    canvas.drawInlineImage(Image.fromarray(image), 0, 0, 300, 100)
    canvas.drawString(10, 5, caption)
    canvas.save()
    return buffer.getvalue()


def make_docx(body: str | bytes, name: str = "word/document.xml") -> bytes:
    """A zip archive with `body` as its only member."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, body)
    return buffer.getvalue()


def encode_image(image: Image.Image, kind: str, **options: Any) -> bytes:
    """An image file; `kind` and `options` go to Pillow's `save`."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()
