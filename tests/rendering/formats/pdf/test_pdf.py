"""PDF files: pages, text, line boxes, labels, encryption, and scans."""

from __future__ import annotations

import gc
import io

import numpy as np
import pytest

from seer.errors import InputError
from seer.rendering import load, png_bytes
from seer.rendering.drawing.reportlab import PDFIUM_LOCK, rasterise
from seer.rendering.formats import scans
from seer.rendering.formats.images import load as images
from seer.rendering.formats.pdf import load as pdfsource
from tests.rendering.makers import make_pdf, make_scanned_pdf, write_file


def test_load_pdf_keeps_pages_text_and_line_boxes(tmp_path):
    document = load(write_file(tmp_path, "wrong.txt", make_pdf()), dpi=72)
    assert len(document.pages) == 3 and document.style.name == "pdf"
    page = document.page(2)
    assert page.text == "Page 2 has a first line of text\nand a second line, which is longer than the first.\n"
    assert page.image().shape == (page.height_px, page.width_px) == (842, 596)
    first, second = page.line_boxes()
    assert document.text[first.start : first.end] == "Page 2 has a first line of text\n"
    for box in (first, second):
        inside = page.image()[
            round(box.y_px) : round(box.y_px + box.height_px), round(box.x_px) : round(box.x_px + box.width_px)
        ]
        assert inside.min() < 100
    assert second.y_px > first.y_px and second.width_px > first.width_px
    assert document.page_at(second.start).number == 2


def test_load_pdf_page_selection_keeps_numbers_as_labels(tmp_path):
    path = write_file(tmp_path, "a.pdf", make_pdf(5))
    part = load(path, pages="2,4-")
    assert [page.label for page in part] == ["2", "4", "5"]
    assert part.page(1).content_hash == load(path).page(2).content_hash
    assert load(path, dpi=72).page(2).content_hash != part.page(1).content_hash


def test_load_pdf_rejects_pages_and_dpi_out_of_range(tmp_path):
    path = write_file(tmp_path, "a.pdf", make_pdf(5))
    with pytest.raises(InputError, match="pages '6': must lie within the document's pages, 1 to 5"):
        load(path, pages="6")
    with pytest.raises(InputError, match="dpi=5: must be between 36 and 600"):
        load(path, dpi=5)


def test_load_pdf_keeps_printed_labels(tmp_path):
    pdfium = pytest.importorskip("pypdfium2")
    data = make_pdf(3).replace(
        b"/Type /Catalog", b"/Type /Catalog /PageLabels << /Nums [0 << /S /r >> 2 << /S /D /St 1 >>] >>"
    )
    assert pdfium.PdfDocument(data).get_page_label(0) == "i"
    assert [page.label for page in load(write_file(tmp_path, "a.pdf", data))] == ["i", "ii", "1"]


def test_load_pdf_reflow_lays_out_its_text(tmp_path):
    document = load(write_file(tmp_path, "a.pdf", make_pdf()), "dense", reflow=True)
    assert document.style.name == "dense" and len(document.pages) == 1
    assert document.text == load(tmp_path / "a.pdf").text


def test_load_encrypted_pdf_requires_password(tmp_path):
    path = write_file(tmp_path, "a.pdf", make_pdf(encrypt="secret"))
    with pytest.raises(InputError, match="no password was given; pass the right one \\(--password"):
        load(path)
    with pytest.raises(InputError, match="does not open it"):
        load(path, password="guess")
    assert len(load(path, password="secret").pages) == 3


def test_load_pdf_very_large_page_is_scaled_to_limit(tmp_path):
    canvas = pytest.importorskip("reportlab.pdfgen.canvas").Canvas(buffer := io.BytesIO(), pagesize=(14000, 9000))
    canvas.drawString(100, 100, "a poster")
    canvas.save()
    page = load(write_file(tmp_path, "poster.pdf", buffer.getvalue())).page(1)
    assert max(page.image().shape) == scans.MAX_SIDE_PX == page.width_px


def test_pdf_file_closes_every_object_under_lock(tmp_path, monkeypatch):
    raw = pytest.importorskip("pypdfium2.raw")
    under_lock: dict[str, set[bool]] = {}

    def watched(name: str, call):
        def close(*arguments):
            under_lock.setdefault(name, set()).add(PDFIUM_LOCK._is_owned())
            return call(*arguments)

        return close

    names = ("FPDF_ClosePage", "FPDFText_ClosePage", "FPDFBitmap_Destroy", "FPDF_CloseDocument")
    for name in names:
        monkeypatch.setattr(raw, name, watched(name, getattr(raw, name)))
    document = load(write_file(tmp_path, "a.pdf", make_pdf(2)))
    document.page(1).image()
    document.page(2).line_boxes()
    pdfsource.PdfFile(make_pdf(1), "b.pdf").read(0)
    assert len(list(rasterise(make_pdf(2)))) == 2
    del document
    gc.collect()
    assert under_lock == {name: {True} for name in names}


def test_load_scanned_pdf_without_ocr_is_rejected_unless_ocr_is_never(tmp_path, monkeypatch):
    monkeypatch.setattr(pdfsource, "ocr_installed", lambda: False)
    grey = np.full((100, 300), 200, np.uint8)
    path = write_file(tmp_path, "scan.pdf", make_scanned_pdf(grey))
    with pytest.raises(InputError, match=r"seer-vlm\[ocr\]"):
        load(path)
    assert load(path, ocr="never").text == ""
    assert load(path, ocr="never").page(1).image().shape == (134, 400)


def test_load_pdf_with_some_scanned_pages_warns(tmp_path, monkeypatch):
    monkeypatch.setattr(pdfsource, "ocr_installed", lambda: False)
    pages = [make_pdf(1), make_scanned_pdf(np.full((100, 300), 200, np.uint8))]
    pdfium = pytest.importorskip("pypdfium2")
    joined = pdfium.PdfDocument.new()
    for data in pages:
        joined.import_pages(pdfium.PdfDocument(data))
    joined.save(buffer := io.BytesIO())
    document = load(write_file(tmp_path, "mixed.pdf", buffer.getvalue()))
    (warning,) = document.warnings
    assert (warning.page, warning.kind) == (2, "no-text") and "OCR is not installed" in warning.message
    assert len(document.pages) == 2 and document.page(2).text == ""


def test_load_runs_ocr_on_scanned_pages_only(tmp_path, monkeypatch):
    seen = []

    def fake(image):
        seen.append(image.shape)
        return [scans.ReadLine("text of the scan", 0.1, 0.2, 0.5, 0.4)]

    monkeypatch.setattr(pdfsource, "ocr_installed", lambda: True)
    monkeypatch.setattr(pdfsource, "read_picture", fake)
    monkeypatch.setattr(images, "read_picture", fake)
    path = write_file(tmp_path, "scan.pdf", make_scanned_pdf(np.full((100, 300), 200, np.uint8), caption="12"))
    document = load(path, dpi=72)
    assert document.text == "text of the scan\n" and len(seen) == 1
    (box,) = document.page(1).line_boxes()
    assert (box.x_px, box.width_px) == (pytest.approx(30), pytest.approx(120))
    load(write_file(tmp_path, "text.pdf", make_pdf()))
    assert len(seen) == 1
    scan = load(write_file(tmp_path, "scan.png", png_bytes(np.full((100, 300), 200, np.uint8))))
    assert scan.text == "text of the scan\n" and scan.style.name == "image"
