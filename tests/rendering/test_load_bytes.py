"""A document read from memory equals the same document read from a file."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw
from reportlab.pdfgen.canvas import Canvas

import seer
from seer.errors import InputError, SeerError
from seer.rendering import documents, load, load_bytes
from seer.schema import Document

TEXT = "The total was 42.\n\tMünchen 北京 שלום عدد 17.\n" * 60
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def docx() -> bytes:
    body = "".join(f"<w:p><w:r><w:t>Paragraph {n} of a Word file.</w:t></w:r></w:p>" for n in range(80))
    with zipfile.ZipFile(buffer := io.BytesIO(), "w") as archive:
        archive.writestr("word/document.xml", f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>')
    return buffer.getvalue()


def pdf(password: str | None = None) -> bytes:
    canvas = Canvas(buffer := io.BytesIO(), pagesize=(300, 200), encrypt=password)
    for number in range(1, 4):
        canvas.drawString(40, 120, f"Words of page {number}.")
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def encode_frames(kind: str, num_frames: int = 1) -> bytes:
    frames = []
    for number in range(num_frames):
        frames.append(frame := Image.new("RGB", (120, 60), "white"))
        ImageDraw.Draw(frame).text((10, 20), f"frame {number}", "black")
    many = {"save_all": True, "append_images": frames[1:]} if num_frames > 1 else {}
    frames[0].save(buffer := io.BytesIO(), kind, **many)
    return buffer.getvalue()


def html(encoding: str) -> bytes:
    head = f'<!doctype html><html><head><meta charset="{encoding}"></head>'
    return f"{head}<body><h1>Rechnung</h1><p>Für München</p></body></html>".encode(encoding)


CASES: dict[str, tuple[str, Callable[[], bytes], dict[str, Any]]] = {
    "text": ("report.txt", TEXT.encode, {}),
    "text with a byte order mark": ("report.txt", lambda: TEXT.encode("utf-16"), {}),
    "text in a named encoding": ("report.txt", lambda: "Grüße aus Köln".encode("cp1252"), {"encoding": "cp1252"}),
    "text of some pages": ("report.txt", (TEXT * 4).encode, {"pages": "2-3"}),
    "text in another style": ("report.txt", TEXT.encode, {"style": "glyph", "changes": {"font_size_pt": 8.0}}),
    "markdown": ("notes.md", lambda: b"# Title\n\n* one\n* two\n" * 20, {}),
    "code": ("main.py", lambda: b"def f(x):\n    return x\n" * 20, {}),
    "html": ("page.html", lambda: html("utf-8"), {}),
    "html in latin-1": ("page.html", lambda: html("iso-8859-1"), {}),
    "html in a named encoding": ("page.htm", lambda: html("cp1252"), {"encoding": "cp1252"}),
    "docx": ("letter.docx", docx, {}),
    "pdf": ("report.pdf", pdf, {"dpi": 72}),
    "pdf, some pages": ("report.pdf", pdf, {"pages": "3,1", "max_pages": 2}),
    "pdf, laid out": ("report.pdf", pdf, {"reflow": True}),
    "pdf with a password": ("report.pdf", lambda: pdf("secret"), {"password": "secret"}),
    "png": ("scan.png", lambda: encode_frames("PNG"), {"ocr": "never"}),
    "jpeg": ("scan.jpg", lambda: encode_frames("JPEG"), {"ocr": "never"}),
    "gif": ("scan.gif", lambda: encode_frames("GIF"), {"ocr": "never"}),
    "bmp": ("scan.bmp", lambda: encode_frames("BMP"), {"ocr": "never"}),
    "webp": ("scan.webp", lambda: encode_frames("WEBP"), {"ocr": "never"}),
    "tiff of three frames": ("scan.tiff", lambda: encode_frames("TIFF", 3), {"ocr": "never"}),
    "pdf with the extension of another format": ("report.txt", pdf, {}),
}


def shown(document: Document) -> tuple[Any, ...]:
    """Everything that a document holds, including drawn pages and line boxes."""
    return (
        document.model_dump(mode="json"),
        [page.png() for page in document],
        [page.line_boxes() for page in document],
    )


@pytest.mark.parametrize("case", CASES)
def test_load_bytes_equals_load_for_every_format(tmp_path: Path, case: str) -> None:
    name, make, options = CASES[case]
    data = make()
    (tmp_path / name).write_bytes(data)
    from_file = load(tmp_path / name, **options)
    assert from_file.name == name
    assert from_file.pages
    assert shown(load_bytes(data, name, **options)) == shown(from_file)


FAULTS: dict[str, tuple[str, bytes, dict[str, Any]]] = {
    "empty": ("a.txt", b"", {}),
    "binary": ("a.txt", b"\x00\x01\x02\x03" * 50, {}),
    "undecodable": ("a.txt", b"\xff\xfe\xfa", {"encoding": "utf-8"}),
    "damaged docx": ("a.docx", b"PK\x03\x04 torn", {}),
    "damaged pdf": ("a.pdf", b"%PDF-1.7 torn", {}),
    "damaged image": ("a.png", b"\x89PNG\r\n\x1a\n torn", {}),
    "encrypted pdf": ("a.pdf", pdf("secret"), {}),
    "archive": ("a.gz", b"\x1f\x8b\x08\x00\x00", {}),
    "no such page": ("a.txt", b"words", {"pages": "7"}),
    "too many pages": ("a.pdf", pdf(), {"max_pages": 2}),
    "unknown style": ("a.txt", b"words", {"style": "no such style"}),
    "character without a glyph": ("a.txt", "\U000f1234".encode(), {"strict_glyphs": True}),
}


@pytest.mark.parametrize("case", FAULTS)
def test_load_bytes_raises_same_errors_as_load(tmp_path: Path, case: str) -> None:
    name, data, options = FAULTS[case]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SeerError) as of_file:
        load(tmp_path / name, **options)
    with pytest.raises(SeerError) as of_bytes:
        load_bytes(data, name, **options)
    assert type(of_bytes.value) is type(of_file.value)
    assert str(of_bytes.value) == str(of_file.value)


@pytest.mark.parametrize("name", ["-", "/etc/passwd", "../up.txt", "https://example.org/a.txt", "a\0b", "", "x" * 999])
def test_load_bytes_never_opens_a_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str) -> tuple[str, bytes]:
        raise AssertionError(source)

    monkeypatch.setattr(documents, "_read", refuse)
    document = load_bytes(b"words in memory", name)
    assert (document.name, document.text) == (name, "words in memory")


def test_load_bytes_rejects_data_above_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_FILE_BYTES", 3)
    with pytest.raises(InputError, match=r"'a\.txt' is larger than"):
        load_bytes(b"words", "a.txt")


def test_load_bytes_is_exported() -> None:
    assert seer.load_bytes is load_bytes is documents.load_bytes
