"""One small document of each format, made in memory, for tests that change files at random."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Callable, Sequence
from email.message import EmailMessage
from html import escape

import pytest
from PIL import Image

from tests.rendering.makers import WORD, encode_image

LINES = ("The fee is 90 crowns a month.", "The deposit is 180 crowns.", "It is due within thirty days.")


def zipped(members: dict[str, str]) -> bytes:
    with zipfile.ZipFile(buffer := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def make_word(lines: Sequence[str] = LINES) -> bytes:
    body = "".join(f"<w:p><w:r><w:t xml:space='preserve'>{escape(line)}</w:t></w:r></w:p>" for line in lines)
    return zipped({"word/document.xml": f"<w:document {WORD}><w:body>{body}</w:body></w:document>"})


def make_html(lines: Sequence[str] = LINES) -> bytes:
    return (
        "<!doctype html><html><body>" + "".join(f"<p>{escape(line)}</p>" for line in lines) + "</body></html>"
    ).encode()


def make_workbook(lines: Sequence[str] = LINES) -> bytes:
    openpyxl = pytest.importorskip("openpyxl", reason="needs the extra formats")
    book = openpyxl.Workbook()
    for line in lines:
        book.active.append(line.split(" "))
    book.save(buffer := io.BytesIO())
    return buffer.getvalue()


def make_slides(lines: Sequence[str] = LINES) -> bytes:
    pptx = pytest.importorskip("pptx", reason="needs the extra formats")
    deck = pptx.Presentation()
    for line in lines:
        deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = line
    deck.save(buffer := io.BytesIO())
    return buffer.getvalue()


def make_odt(lines: Sequence[str] = LINES) -> bytes:
    body = "".join(f"<t:p>{escape(line)}</t:p>" for line in lines)
    content = (
        f'<o:document-content xmlns:o="o" xmlns:t="t"><o:body><o:text>{body}</o:text></o:body></o:document-content>'
    )
    return zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content})


def make_epub(lines: Sequence[str] = LINES) -> bytes:
    package = '<package><manifest><item id="a" href="a.xhtml"/></manifest><spine><itemref idref="a"/></spine></package>'
    container = '<container><rootfiles><rootfile full-path="a.opf"/></rootfiles></container>'
    return zipped({"META-INF/container.xml": container, "a.opf": package, "a.xhtml": make_html(lines).decode()})


def make_rtf(lines: Sequence[str] = LINES) -> bytes:
    pytest.importorskip("striprtf", reason="needs the extra formats")
    escaped = (re.sub(r"[^ -\[\]-z|~]", lambda found: f"\\u{ord(found[0])}?", line) for line in lines)
    return ("{\\rtf1\\ansi " + "\\par ".join(escaped) + "}").encode()


def make_mail(lines: Sequence[str] = LINES) -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "a@example.com", "b@example.com", "The fee"
    message.set_content("\n".join(lines))
    message.add_attachment(b"abc" * 50, maintype="image", subtype="png", filename="a.png")
    return message.as_bytes()


def make_text(lines: Sequence[str] = LINES) -> bytes:
    return "\n".join(lines).encode()


def make_csv(lines: Sequence[str] = LINES) -> bytes:
    rows = io.StringIO()
    csv.writer(rows).writerows(line.split(" ") for line in lines)
    return rows.getvalue().encode()


def make_pdf_text(lines: Sequence[str] = LINES) -> bytes:
    canvas = pytest.importorskip("reportlab.pdfgen.canvas").Canvas(buffer := io.BytesIO())
    for number, line in enumerate(lines):
        canvas.drawString(40, 800 - 15 * (number % 50), line)
        if number % 50 == 49:
            canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def make_notebook(lines: Sequence[str] = LINES) -> bytes:
    cells = [{"cell_type": "markdown", "source": [line]} for line in lines]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}).encode()


SAMPLES: dict[str, tuple[str, Callable[..., bytes]]] = {
    "text": ("a.txt", make_text),
    "html": ("a.html", make_html),
    "word": ("a.docx", make_word),
    "excel": ("a.xlsx", make_workbook),
    "csv": ("a.csv", make_csv),
    "slides": ("a.pptx", make_slides),
    "opendocument": ("a.odt", make_odt),
    "epub": ("a.epub", make_epub),
    "rtf": ("a.rtf", make_rtf),
    "mail": ("a.eml", make_mail),
    "notebook": ("a.ipynb", make_notebook),
    "pdf": ("a.pdf", make_pdf_text),
    "png": ("a.png", lambda: encode_image(Image.new("RGB", (60, 40), (200, 10, 10)), "PNG")),
    "jpeg": ("a.jpg", lambda: encode_image(Image.new("RGB", (60, 40), (200, 10, 10)), "JPEG")),
    "gif": ("a.gif", lambda: encode_image(Image.new("L", (60, 40), 200), "GIF")),
    "tiff": ("a.tif", lambda: encode_image(Image.new("L", (60, 40), 200), "TIFF")),
    "webp": ("a.webp", lambda: encode_image(Image.new("RGB", (60, 40), (200, 10, 10)), "WEBP")),
}
"""File name and maker of each format."""
