"""Format detection: content decides, and unreadable formats are rejected with a remedy."""

from __future__ import annotations

import pytest

from seer.errors import InputError
from seer.rendering import load
from seer.rendering.formats.sniff import sniff
from tests.rendering.makers import make_docx, make_pdf, write_file


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("empty.txt", b"", "is empty; use a document"),
        ("binary.txt", bytes(range(256)) * 8, "is binary, not text"),
        ("latin.txt", "café".encode("latin-1"), "byte 0xe9 at offset 3; name its encoding, e.g. --encoding"),
        ("old.doc", b"\xd0\xcf\x11\xe0" + bytes(600), "old Office file"),
        ("a.zip", make_docx("x", "notes.txt"), "is a zip archive; unpack it"),
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


@pytest.mark.parametrize(
    "text",
    [
        "Every PDF begins with %PDF-1.7.\n",
        "%PDF-1.7 is a signature.\n",
        "GIF89a is a format.\n",
        "SQLite format 3 is a header.\n",
        "PAR1 is a signature.\n",
        "BZh is a signature of bzip2.\n",
        "Rar! Seltene Bücher.\n",
    ],
)
def test_sniff_reads_text_that_names_a_signature(text: str) -> None:
    assert sniff(text.encode(), "a.md") == "text"


@pytest.mark.parametrize(
    ("data", "name", "kind"),
    [
        (b"<div><p>x</p></div>", "a.html", "html"),
        (b"<meta charset=utf-8><p>x", "a.htm", "html"),
        (b"<!--" + b"x" * 5000 + b"--><!doctype html><p>x", "a", "html"),
        ("\ufeff<html><p>x".encode("utf-16-le"), "a", "html"),
        ("\ufeff<html><p>x".encode("utf-32-be"), "a", "html"),
        (b"<div>\n\n# Title\n</div>", "a.md", "text"),
        (b"<script>let a</script>", "a.vue", "text"),
        (b"<note><to>x</to></note>", "a.xml", "text"),
    ],
)
def test_sniff_decides_web_pages_by_content(data: bytes, name: str, kind: str) -> None:
    assert sniff(data, name) == kind
