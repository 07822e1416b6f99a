"""Format detection: content decides, and unreadable formats are rejected with a remedy."""

from __future__ import annotations

import pytest

from seer.errors import InputError
from seer.rendering import load
from tests.rendering.makers import make_docx, make_pdf, write_file


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("empty.txt", b"", "is empty; use a document"),
        ("binary.txt", bytes(range(256)) * 8, "is binary, not text"),
        ("latin.txt", "café".encode("latin-1"), "byte 0xe9 at offset 3; name its encoding, e.g. --encoding"),
        ("old.doc", b"\xd0\xcf\x11\xe0" + bytes(600), "old Office file"),
        ("a.zip", make_docx("x", "notes.txt"), "is a zip archive; unpack it"),
        ("a.xlsx", make_docx("x", "xl/workbook.xml"), "Excel workbook"),
        ("broken.docx", b"PK\x03\x04 and nothing else", "damaged zip"),
        ("x.gz", b"\x1f\x8b\x08\x00" + bytes(20), "gzip archive"),
        ("cut.pdf", b"%PDF-1.7\n1 0 obj", "damaged or cut short"),
        ("cut.png", b"\x89PNG\r\n\x1a\n" + bytes(30), "damaged image"),
        ("blank.html", "<!doctype html><script>only()</script>", "holds no text"),
    ],
)
def test_load_rejects_unreadable_file(tmp_path, name, data, message):
    with pytest.raises(InputError, match=message):
        load(write_file(tmp_path, name, data))


@pytest.mark.parametrize(
    ("name", "content", "warning"),
    [
        (
            "a.pdf",
            b"<!doctype html><p>Please log in.</p>",
            "'a.pdf' is not a pdf file: its content is a web page and is read as",
        ),
        ("a.PDF", b"plain words", "'a.PDF' is not a pdf file: its content is text"),
        ("a.docx", b"plain words", "'a.docx' is not a docx file: its content is text"),
        ("a.png", make_pdf(1), "'a.png' is not a png file: its content is a PDF"),
        ("a.txt", make_pdf(1), ""),
        ("a.pdf", make_pdf(1), ""),
        ("a.html", b"plain words", ""),
        ("a", b"<!doctype html><p>words</p>", ""),
    ],
)
def test_load_warns_if_name_contradicts_content(tmp_path, name, content, warning):
    document = load(write_file(tmp_path, name, content))
    warned = [one.message for one in document.warnings if one.kind == "name"]
    assert len(warned) == bool(warning) and all(one.startswith(warning) for one in warned)
