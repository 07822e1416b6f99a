"""The PDF writer: both PDF engines draw the lines at the positions of the direct raster."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from seer.errors import InputError
from seer.rendering import render_text, resolve_style
from seer.rendering.drawing.reportlab import pdf_bytes, rasterise

pytest.importorskip("reportlab")
pdfium = pytest.importorskip("pypdfium2")

SAMPLES: dict[str, str] = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "rendering" / "samples.json").read_text(encoding="utf-8")
)
ENGINES = ["pdfium", *(["poppler"] if shutil.which("pdftoppm") else [])]


def ink_edges(image: np.ndarray, page) -> list[tuple[int, int]]:
    """The first and last column with ink of each line; (-1, -1) for a blank line."""
    edges = []
    for box in page.line_boxes():
        band = image[round(box.y_px) + 1 : round(box.y_px + box.height_px) - 1] < 245
        columns = np.flatnonzero(band.any(0))
        edges.append((int(columns[0]), int(columns[-1])) if len(columns) else (-1, -1))
    return edges


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", sorted(SAMPLES))
@pytest.mark.parametrize("newline", ["break", "mark"])
def test_pdf_lines_match_raster_positions(name, engine, newline):
    document = render_text(SAMPLES[name] * 3, resolve_style("seer", newline=newline))
    images = list(rasterise(pdf_bytes(document), engine=engine))
    assert len(images) == len(document.pages)
    for page, image in zip(document, images, strict=True):
        assert image.shape == (page.height_px, page.width_px)
        for ours, theirs in zip(ink_edges(page.image(), page), ink_edges(image, page), strict=True):
            assert abs(ours[0] - theirs[0]) <= 1 and abs(ours[1] - theirs[1]) <= 1


def test_pdf_long_lines_do_not_drift():
    document = render_text("The committee approved the well-known plan by fourteen votes to two in May. " * 100)
    (image,) = rasterise(pdf_bytes(document, compress=False))
    page = document.page(1)
    for ours, theirs in zip(ink_edges(page.image(), page), ink_edges(image, page), strict=True):
        assert abs(ours[1] - theirs[1]) <= 1


def test_pdf_bytes_are_searchable_and_reproducible():
    document = render_text("Findable words in a line.\n中文也可以。\n")
    data = pdf_bytes(document)
    assert data == pdf_bytes(document)
    text = pdfium.PdfDocument(data)[0].get_textpage().get_text_range()
    assert "Findable words in a line." in text and "中文也可以。" in text


def test_pdf_supports_other_resolutions_and_columns():
    style = resolve_style("seer", dpi=144, page_width_px=1190, page_height_px=1684, columns=2)
    document = render_text("words in columns\n" * 200, style)
    (image, *_) = rasterise(pdf_bytes(document), dpi=144)
    page = document.page(1)
    assert image.shape == (page.height_px, page.width_px)
    assert np.abs(image.mean() - page.image().mean()) < 1


def test_rasterise_rejects_broken_pdf_and_unknown_engine():
    with pytest.raises(InputError, match="cannot be opened"):
        list(rasterise(b"%PDF-1.4 nothing"))
    with pytest.raises(InputError, match="pdfium or poppler"):
        rasterise(b"", engine="acrobat")  # type: ignore[arg-type]
