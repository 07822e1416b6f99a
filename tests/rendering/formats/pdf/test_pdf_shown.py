"""The text of a PDF is what its pages show: rotation, crop box, hidden text, form fields and notes."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import numpy as np
import pytest

from seer.errors import InputError
from seer.rendering import load
from seer.rendering.documents import load_bytes
from seer.schema import Document

pytest.importorskip("reportlab")
FEE = "The fee is 90 crowns a month and is due within thirty days."
DEPOSIT = "The second line says that the deposit is 180 crowns."


def draw(*steps: Callable, **options: object) -> bytes:
    """A PDF of one A4 page; each step draws on its canvas."""
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(buffer := io.BytesIO(), pagesize=(595, 842), **options)
    for step in steps:
        step(canvas)
    canvas.save()
    return buffer.getvalue()


def line(text: str, x: float = 72, y: float = 700, size: float = 12, color: str = "#000000", mode: int = 0) -> Callable:
    """A step that writes a line of text."""

    def step(canvas) -> None:
        canvas.saveState()  # the render mode would stay
        written = canvas.beginText(x, y)
        written.setFont("Helvetica", size)
        written.setFillColor(color)
        written.setTextRenderMode(mode)
        written.textLine(text)
        canvas.drawText(written)
        canvas.restoreState()

    return step


def box(x: float, y: float, width: float, height: float, color: str) -> Callable:
    """A step that fills a rectangle."""

    def step(canvas) -> None:
        canvas.setFillColor(color)
        canvas.rect(x, y, width, height, stroke=0, fill=1)

    return step


def read(data: bytes) -> Document:
    return load_bytes(data, "page.pdf", ocr="never", dpi=72)


def edited(data: bytes, edit: Callable) -> bytes:
    """The PDF with its first page changed by `edit`."""
    pdfium = pytest.importorskip("pypdfium2")
    document = pdfium.PdfDocument(data)
    edit(document[0])
    document.save(buffer := io.BytesIO())
    return buffer.getvalue()


def hidden(document: Document) -> str:
    return " ".join(warning.message for warning in document.warnings if warning.kind == "hidden-text")


def assert_boxes_hold_ink(document: Document) -> None:
    """Every line box of the first page encloses ink, and no line lies outside of it."""
    page = document.page(1)
    image = page.image()
    image = image if image.ndim == 2 else image.min(2)
    covered = np.zeros(image.shape, bool)
    lines = page.line_boxes()
    assert len(lines) == page.text.count("\n")
    for one in lines:
        rows = slice(max(0, int(one.y_px) - 1), int(one.y_px + one.height_px) + 2)
        columns = slice(max(0, int(one.x_px) - 1), int(one.x_px + one.width_px) + 2)
        assert image[rows, columns].min() < 128
        covered[rows, columns] = True
    assert (image[~covered] > 128).all()


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_load_turned_page_has_lines_in_order_and_boxes_on_words(turn):
    document = read(edited(draw(line(FEE), line(DEPOSIT, y=680)), lambda page: page.set_rotation(turn)))
    assert document.text == f"{FEE}\n{DEPOSIT}\n"
    assert_boxes_hold_ink(document)
    (box_of_word,) = document.page(1).span_boxes(document.text.index("180"), document.text.index("180") + 3)
    assert max(box_of_word.width_px, box_of_word.height_px) < 25


def test_load_page_whose_text_is_turned_back_reads_from_left_to_right():
    def turned(canvas) -> None:
        canvas.rotate(90)
        canvas.drawString(100, -200, FEE)
        canvas.drawString(100, -220, DEPOSIT)

    document = read(edited(draw(turned), lambda page: page.set_rotation(90)))
    assert document.text == f"{FEE}\n{DEPOSIT}\n"
    assert_boxes_hold_ink(document)


def test_load_upright_page_keeps_labels_written_across_it():
    def label(canvas) -> None:
        canvas.saveState()
        canvas.translate(40, 400)
        canvas.rotate(90)
        canvas.drawString(0, 0, "draft of May")
        canvas.restoreState()

    document = read(draw(line(FEE), label, line(DEPOSIT, y=680)))
    assert sorted(document.text.splitlines()) == sorted([FEE, DEPOSIT, "draft of May"])
    assert_boxes_hold_ink(document)


@pytest.mark.parametrize("crop", [(0, 500, 595, 842), (50, 600, 500, 800)])
def test_load_page_with_crop_box_leaves_out_text_outside_and_places_boxes(crop):
    data = draw(line(FEE), line("CROPPED: the fee was 60 crowns.", y=300))
    document = read(edited(data, lambda page: page.set_cropbox(*crop)))
    assert document.text == f"{FEE}\n"
    assert "CROPPED: the fee was 60 crowns." in hidden(document)
    assert_boxes_hold_ink(document)


HIDING = {
    "white": [line("SECRET 60", y=600, color="#ffffff")],
    "nearly white": [line("SECRET 60", y=600, color="#fcfcfc")],
    "off the page": [line("SECRET 60", y=-40)],
    "beside the page": [line("SECRET 60", x=700, y=600)],
    "ground of its colour": [box(60, 590, 200, 30, "#203040"), line("SECRET 60", y=600, color="#203040")],
    "covered": [line("SECRET 60", y=600), box(60, 590, 200, 30, "#ffffff")],
    "blackened": [line("SECRET 60", y=600), box(60, 590, 200, 30, "#000000")],
    "invisible mode": [line("SECRET 60", y=600, mode=3)],
    "tiny": [line("SECRET 60", y=600, size=0.4)],
}


def clipped(canvas) -> None:
    path = canvas.beginPath()
    path.rect(300, 100, 20, 20)
    canvas.saveState()
    canvas.clipPath(path, stroke=0, fill=0)
    canvas.drawString(72, 600, "SECRET 60")
    canvas.restoreState()


def transparent(canvas) -> None:
    canvas.saveState()
    canvas.setFillAlpha(0)
    canvas.drawString(72, 600, "SECRET 60")
    canvas.restoreState()


@pytest.mark.parametrize("steps", [*HIDING.values(), [clipped], [transparent]], ids=[*HIDING, "clipped", "transparent"])
def test_load_leaves_out_text_that_the_page_does_not_show(steps):
    document = read(draw(line(FEE), *steps, line(DEPOSIT, y=500)))
    assert document.text == f"{FEE}\n{DEPOSIT}\n"
    assert "“SECRET 60”" in hidden(document)
    assert len(document.page(1).line_boxes()) == 2


SHOWN = {
    "white on dark": [box(60, 590, 200, 30, "#203040"), line("PLAIN 60", y=600, color="#ffffff")],
    "grey": [line("PLAIN 60", y=600, color="#bbbbbb")],
    "before a frame": [line("PLAIN 60", y=600), lambda canvas: canvas.rect(60, 590, 200, 30, stroke=1, fill=0)],
    "on a light ground": [box(60, 590, 200, 30, "#eeeeff"), line("PLAIN 60", y=600)],
    "above a rule": [line("PLAIN 60", y=600), box(72, 597, 100, 1, "#000000")],
    "small": [line("PLAIN 60", y=600, size=4)],
    "outlined": [line("PLAIN 60", y=600, color="#ffffff", mode=1)],
}


@pytest.mark.parametrize("steps", SHOWN.values(), ids=SHOWN)
def test_load_keeps_text_that_the_page_shows(steps):
    document = read(draw(line(FEE), *steps, line(DEPOSIT, y=500)))
    assert document.text == f"{FEE}\nPLAIN 60\n{DEPOSIT}\n"
    assert not document.warnings


def test_load_keeps_text_that_ocr_laid_under_a_scan():
    from PIL import Image
    from reportlab.lib.utils import ImageReader

    def scan(canvas) -> None:
        canvas.drawImage(ImageReader(Image.fromarray(np.full((84, 60), 230, np.uint8))), 0, 0, 595, 842)

    layer = [line(FEE, mode=3), line(DEPOSIT, y=680, mode=3)]
    for steps in ([scan, *layer], [*layer, scan]):
        document = read(draw(*steps))
        assert document.text == f"{FEE}\n{DEPOSIT}\n"
        assert not document.warnings


def test_load_page_whose_box_misses_all_text_keeps_it_with_a_warning():
    document = read(draw(line(FEE, y=2000)))
    assert document.text == f"{FEE}\n"
    assert "outside of its visible part" in hidden(document)
    assert not document.page(1).line_boxes()


def form(canvas) -> None:
    fields = canvas.acroForm
    canvas.drawString(72, 700, "Name of the applicant:")
    fields.textfield(name="name", value="ELLA EXAMPLE 4711", x=220, y=692, width=200, height=22)
    for name, checked, y in (("terms", True, 640), ("letter", False, 610)):
        fields.checkbox(name=name, checked=checked, x=72, y=y, size=16)
        canvas.drawString(100, y + 3, f"I accept the {name}")
    fields.choice(name="city", value="Brno", options=["Praha", "Brno"], x=220, y=560, width=100, height=20)
    canvas.drawString(72, 566, "City:")


def test_load_form_shows_and_reads_its_fields_at_their_place():
    document = read(draw(form))
    assert document.text.splitlines() == [
        "Name of the applicant:\tELLA EXAMPLE 4711",
        "☑ I accept the terms",
        "☐ I accept the letter",
        "City:\tBrno",
    ]
    image = document.page(1).image()
    grey = image if image.ndim == 2 else image.min(2)
    start = document.text.index("ELLA")
    (place,) = document.page(1).span_boxes(start, start + len("ELLA EXAMPLE 4711"))
    assert place.x_px > 215
    assert grey[int(place.y_px) : int(place.y_px + place.height_px), int(place.x_px) : int(place.x_px + 60)].min() < 128
    (tick,) = document.page(1).span_boxes(document.text.index("☑"), document.text.index("☑") + 1)
    assert (tick.x_px, tick.width_px) == (pytest.approx(72, abs=2), pytest.approx(16, abs=3))


def with_annotation(data: bytes, body: str) -> bytes:
    """The PDF with an annotation on its first page, written into the file's text."""
    data = data.replace(b"/Type /Page\n", b"/Type /Page /Annots [ << " + body.encode() + b" >> ]\n", 1)
    assert body.encode() in data
    return data


def test_load_free_text_note_is_shown_and_read():
    body = (
        "/Type /Annot /Subtype /FreeText /Rect [72 600 400 630] /Contents (CORRECTION: the fee is 95 crowns.) "
        "/DA (/Helv 12 Tf 0 g) /F 4"
    )
    document = read(with_annotation(draw(line(FEE), pageCompression=0), body))
    assert document.text.splitlines() == [FEE, "CORRECTION: the fee is 95 crowns."]
    first, second = document.page(1).line_boxes()
    assert 842 - 630 < second.y_px < 842 - 600 and second.x_px == pytest.approx(74, abs=3) and first.y_px < second.y_px


def test_load_comment_becomes_a_warning():
    body = "/Type /Annot /Subtype /Text /Rect [500 700 520 720] /Contents (ask the bank first) /F 4"
    document = read(with_annotation(draw(line(FEE), pageCompression=0), body))
    assert document.text == f"{FEE}\n"
    (warning,) = document.warnings
    assert (warning.kind, warning.page) == ("comment", 1) and "“ask the bank first”" in warning.message


def test_load_hidden_annotation_is_neither_read_nor_reported():
    body = "/Type /Annot /Subtype /Text /Rect [500 700 520 720] /Contents (ask the bank first) /F 2"
    assert not read(with_annotation(draw(line(FEE), pageCompression=0), body)).warnings


def test_load_pdf_with_a_damaged_page_keeps_the_others():
    from tests.rendering.makers import make_pdf

    data = re.sub(rb"/Kids \[ \d+ 0 R", b"/Kids [ 99 0 R", make_pdf(3))
    document = read(data)
    (warning,) = document.warnings
    assert (warning.kind, warning.page) == ("damaged-page", 1) and "page 1 of 'page.pdf' is damaged" in warning.message
    assert document.page(1).text == "" and (document.page(1).image() == 255).all()
    assert document.page(2).text.startswith("Page 2 has a first line")


def test_load_pdf_without_pages_says_so():
    pdfium = pytest.importorskip("pypdfium2")
    pdfium.PdfDocument.new().save(buffer := io.BytesIO())
    with pytest.raises(InputError, match=r"'page.pdf' has no pages; use a PDF with at least one page"):
        read(buffer.getvalue())


def test_load_right_to_left_words_start_with_their_first_letter(tmp_path):
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFont

    from seer.rendering.layout.fonts import load_chain

    path = load_chain(("DejaVuSans",)).fonts[0].path
    pdfmetrics.registerFont(TTFont("DejaVuSans", str(path)))

    def words(canvas) -> None:
        canvas.setFont("DejaVuSans", 12)
        canvas.drawString(300, 700, "םולש")  # the letters of the word from left to right, as some programs write them

    (tmp_path / "a.pdf").write_bytes(draw(words))
    assert load(tmp_path / "a.pdf", ocr="never").text == "שלום\n"
