"""Documents: files of every kind become pages, and what cannot be read is refused with what to do about it."""

from __future__ import annotations

import gc
import io
import json
import sys
import unicodedata
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from seer.errors import DocumentNotFound, DocumentWarning, InputError
from seer.rendering import STYLES, load, png_bytes, render_text
from seer.rendering.drawing import reportlab as pdf
from seer.rendering.formats import docx, scans
from seer.rendering.formats import pdf as pdfsource
from seer.rendering.formats.html import html_text
from seer.rendering.formats.pageranges import parse_pages
from seer.rendering.layout.fonts import load_font

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def written(folder: Path, name: str, data: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def make_pdf(pages: int = 3, **options) -> bytes:
    canvas = pytest.importorskip("reportlab.pdfgen.canvas").Canvas(buffer := io.BytesIO(), **options)
    for number in range(1, pages + 1):
        canvas.drawString(72, 700, f"Page {number} has a first line of text")
        canvas.drawString(72, 680, "and a second line, which is longer than the first.")
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def make_docx(body: str, name: str = "word/document.xml") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, body)
    return buffer.getvalue()


# ── Text ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\r\nb\rc\n", "a\r\nb\rc\n"),
        ("\ufeffmarked".encode(), "\ufeffmarked"),
        ("wide é".encode("utf-16"), "\ufeffwide é"),
        ("wide é".encode("utf-32"), "\ufeffwide é"),
        (b"form\ffeed \x1b[0m", "form\ffeed \x1b[0m"),
    ],
)
def test_text_is_kept_to_the_byte(tmp_path, data, text):
    document = load(written(tmp_path, "a.txt", data))
    assert document.text == text and document.name == "a.txt"


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("from stdin é".encode())))
    document = load("-")
    assert (document.name, document.text) == ("stdin", "from stdin é")


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("empty.txt", b"", "is empty; give a document"),
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
def test_what_cannot_be_read_is_refused(tmp_path, name, data, said):
    with pytest.raises(InputError, match=said):
        load(written(tmp_path, name, data))


def test_paths_that_lead_nowhere(tmp_path):
    with pytest.raises(DocumentNotFound, match="no document at"):
        load(tmp_path / "missing.txt")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing.txt")
    with pytest.raises(InputError, match="is a folder"):
        load(tmp_path)
    with pytest.raises(InputError, match="nothing is fetched"):
        load("https://example.org/report.pdf")


def test_encodings_are_asked_for_by_name(tmp_path):
    path = written(tmp_path, "a.txt", "价格 100 元".encode("gb18030"))
    with pytest.raises(InputError, match="gb18030"):
        load(path)
    assert load(path, encoding="gb18030").text == "价格 100 元"
    with pytest.raises(InputError, match="no encoding is called 'klingon'"):
        load(path, encoding="klingon")
    with pytest.raises(InputError, match="is not ascii"):
        load(path, encoding="ascii")


# ── Page ranges ──────────────────────────────────────────────────────────────────────────────────


def test_page_ranges():
    assert parse_pages("2-4,9,3", 10) == (2, 3, 4, 9)
    assert parse_pages("8-", 10) == (8, 9, 10) and parse_pages("-2", 10) == (1, 2)
    for bad in ("", "x", "-", "4-2", "0", "11", "1,,2", "1-99"):
        with pytest.raises(InputError, match="pages"):
            parse_pages(bad, 10)


@settings(max_examples=50, deadline=None)
@given(st.sets(st.integers(1, 40), min_size=1))
def test_page_ranges_name_what_was_meant(numbers):
    assert parse_pages(",".join(map(str, numbers)), 40) == tuple(sorted(numbers))


def test_some_pages_of_a_text(tmp_path):
    text = "".join(f"line {number}\n" for number in range(400))
    path = written(tmp_path, "a.txt", text)
    whole, part = load(path), load(path, pages="2-3,5")
    assert [page.text for page in part] == [whole.page(number).text for number in (2, 3, 5)]
    assert [page.label for page in part] == ["2", "3", "5"]
    box = part.page(3).line_boxes()[0]
    assert part.text[box.start : box.end] == "line 320\n"
    assert (part.page(1).image() == whole.page(2).image()).all()


# ── HTML and Word ────────────────────────────────────────────────────────────────────────────────


def test_html(tmp_path):
    page = (
        "<html><head><title>Title</title><style>p {}</style></head><body><h1>Head &amp; tail</h1>"
        "<p>Some <b>bold</b>\n  words.<br>Next<p>Last<ul><li>one<li>two</ul><pre>keep\n  this</pre>"
        "<table><tr><th>a</th><th>b</th></tr><tr><td>1<td>2</table><script>no()</script><img alt='picture'></body>"
    )
    assert load(written(tmp_path, "page.txt", page)).text == (
        "Title\n\nHead & tail\n\nSome bold words.\nNext\n\nLast\n\n- one\n- two\n\nkeep\n  this\n\na\tb\n1\t2\n\npicture\n"
    )
    assert load(written(tmp_path, "notes.html", "no tags at all")).text == "no tags at all"
    old = '<html><head><meta charset="gb2312"></head><body>价格</body></html>'.encode("gb18030")
    assert load(written(tmp_path, "old.html", old)).text == "价格\n"


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from("<>/apre td&;\"'=\n!-scriptx"), max_size=80))
def test_html_of_any_kind_is_read_without_fault(source):
    assert "\0" not in html_text(source)


def test_docx(tmp_path):
    body = (
        f"<w:document {WORD}><w:body><w:p><w:r><w:t>Hello</w:t><w:tab/><w:t>there</w:t></w:r></w:p>"
        "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:ins><w:r><w:t>new</w:t></w:r></w:ins></w:p>"
        "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr>"
        "</w:tbl></w:body></w:document>"
    )
    assert load(written(tmp_path, "no-suffix", make_docx(body))).text == "Hello\tthere\nnew\na\tb\n"


def test_a_table_within_a_cell_is_said_once(tmp_path):
    def cell(*inside: str) -> str:
        return f"<w:tc>{''.join(inside)}</w:tc>"

    def said(text: str) -> str:
        return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"

    inner = (
        f"<w:tbl><w:tr>{cell(said('c'))}<w:sdt><w:sdtContent>{cell(said('d'))}</w:sdtContent></w:sdt></w:tr></w:tbl>"
    )
    outer = f"<w:tbl><w:tr>{cell(said('a'), inner, said('z'))}{cell(said('b'))}</w:tr></w:tbl>"
    body = f"<w:document {WORD}><w:body>{outer}</w:body></w:document>"
    assert load(written(tmp_path, "nested.docx", make_docx(body))).text == "a c\td z\tb\n"


def test_hostile_docx(tmp_path, monkeypatch):
    monkeypatch.setattr(docx, "MAX_XML_BYTES", 1 << 20)
    for body, said in (
        ("<a>" + " " * (2 << 20) + "</a>", "zip bombs"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>', "document type"),
        ("<a>" * 20_000 + "</a>" * 20_000, "too deeply"),
        ("<a><b></a>", "damaged"),
    ):
        with pytest.raises(InputError, match=said):
            load(written(tmp_path, "x.docx", make_docx(body)))


# ── PDF and pictures ─────────────────────────────────────────────────────────────────────────────


def test_pdf_keeps_its_pages_text_and_boxes(tmp_path):
    document = load(written(tmp_path, "wrong.txt", make_pdf()), dpi=72)
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


def test_pdf_pages_and_labels(tmp_path):
    path = written(tmp_path, "a.pdf", make_pdf(5))
    part = load(path, pages="2,4-")
    assert [page.label for page in part] == ["2", "4", "5"]
    assert part.page(1).content_hash == load(path).page(2).content_hash
    assert load(path, dpi=72).page(2).content_hash != part.page(1).content_hash
    with pytest.raises(InputError, match="has pages 1 to 5"):
        load(path, pages="6")
    with pytest.raises(InputError, match="36 to 600"):
        load(path, dpi=5)


def test_printed_labels_are_kept(tmp_path):
    pdfium = pytest.importorskip("pypdfium2")
    data = make_pdf(3).replace(
        b"/Type /Catalog", b"/Type /Catalog /PageLabels << /Nums [0 << /S /r >> 2 << /S /D /St 1 >>] >>"
    )
    assert pdfium.PdfDocument(data).get_page_label(0) == "i"
    assert [page.label for page in load(written(tmp_path, "a.pdf", data))] == ["i", "ii", "1"]


def test_pdf_text_can_be_laid_out_anew(tmp_path):
    document = load(written(tmp_path, "a.pdf", make_pdf()), "dense", reflow=True)
    assert document.style.name == "dense" and len(document.pages) == 1
    assert document.text == load(tmp_path / "a.pdf").text


def test_encrypted_pdf(tmp_path):
    path = written(tmp_path, "a.pdf", make_pdf(encrypt="secret"))
    with pytest.raises(InputError, match="no password was given; give the right one \\(--password"):
        load(path)
    with pytest.raises(InputError, match="does not open it"):
        load(path, password="guess")
    assert len(load(path, password="secret").pages) == 3


def scanned_pdf(image: np.ndarray, caption: str = "") -> bytes:
    canvas = pytest.importorskip("reportlab.pdfgen.canvas").Canvas(buffer := io.BytesIO(), pagesize=(300, 100))
    canvas.drawInlineImage(Image.fromarray(image), 0, 0, 300, 100)
    canvas.drawString(10, 5, caption)
    canvas.save()
    return buffer.getvalue()


def test_scans_without_ocr_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(pdfsource, "ocr_installed", lambda: False)
    grey = np.full((100, 300), 200, np.uint8)
    path = written(tmp_path, "scan.pdf", scanned_pdf(grey))
    with pytest.raises(InputError, match=r"seer-vlm\[ocr\]"):
        load(path)
    assert load(path, ocr="never").text == ""
    assert load(path, ocr="never").page(1).image().shape == (134, 400)


def test_scans_are_read_once_and_text_pages_are_not(tmp_path, monkeypatch):
    seen = []

    def fake(image):
        seen.append(image.shape)
        return [scans.ReadLine("read by eye", 0.1, 0.2, 0.5, 0.4)]

    monkeypatch.setattr(pdfsource, "ocr_installed", lambda: True)
    monkeypatch.setattr(pdfsource, "read_picture", fake)
    monkeypatch.setattr(scans, "read_picture", fake)
    path = written(tmp_path, "scan.pdf", scanned_pdf(np.full((100, 300), 200, np.uint8), caption="12"))
    document = load(path, dpi=72)
    assert document.text == "read by eye\n" and len(seen) == 1
    (box,) = document.page(1).line_boxes()
    assert (box.x_px, box.width_px) == (pytest.approx(30), pytest.approx(120))
    load(written(tmp_path, "text.pdf", make_pdf()))
    assert len(seen) == 1
    picture = load(written(tmp_path, "scan.png", png_bytes(np.full((100, 300), 200, np.uint8))))
    assert picture.text == "read by eye\n" and picture.style.name == "image"


def test_whatever_is_opened_of_a_pdf_is_closed_under_the_lock(tmp_path, monkeypatch):
    raw = pytest.importorskip("pypdfium2.raw")
    under_lock: dict[str, set[bool]] = {}

    def watched(name: str, call):
        def close(*arguments):
            under_lock.setdefault(name, set()).add(pdfsource.PDFIUM_LOCK._is_owned())
            return call(*arguments)

        return close

    names = ("FPDF_ClosePage", "FPDFText_ClosePage", "FPDFBitmap_Destroy", "FPDF_CloseDocument")
    for name in names:
        monkeypatch.setattr(raw, name, watched(name, getattr(raw, name)))
    document = load(written(tmp_path, "a.pdf", make_pdf(2)))
    document.page(1).image()
    document.page(2).line_boxes()
    pdfsource.PdfFile(make_pdf(1), "b.pdf").picture_share(0)
    assert len(list(pdf.rasterise(make_pdf(2)))) == 2
    del document
    gc.collect()
    assert under_lock == {name: {True} for name in names}


def test_some_unreadable_pages_warn(tmp_path, monkeypatch):
    monkeypatch.setattr(pdfsource, "ocr_installed", lambda: False)
    pages = [make_pdf(1), scanned_pdf(np.full((100, 300), 200, np.uint8))]
    pdfium = pytest.importorskip("pypdfium2")
    joined = pdfium.PdfDocument.new()
    for data in pages:
        joined.import_pages(pdfium.PdfDocument(data))
    joined.save(buffer := io.BytesIO())
    with pytest.warns(UserWarning, match=r"page\(s\) 2 of 'mixed.pdf'"):
        document = load(written(tmp_path, "mixed.pdf", buffer.getvalue()))
    assert len(document.pages) == 2 and document.page(2).text == ""


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (
            "a.pdf",
            b"<!doctype html><p>Please log in.</p>",
            "'a.pdf' is no pdf file: its content is a web page, and read as",
        ),
        ("a.PDF", b"plain words", "'a.PDF' is no pdf file: its content is text"),
        ("a.docx", b"plain words", "'a.docx' is no docx file: its content is text"),
        ("a.png", make_pdf(1), "'a.png' is no png file: its content is a PDF"),
        ("a.txt", make_pdf(1), ""),
        ("a.pdf", make_pdf(1), ""),
        ("a.html", b"plain words", ""),
        ("a", b"<!doctype html><p>words</p>", ""),
    ],
)
def test_a_name_that_promises_another_kind_is_told(tmp_path, recwarn, name, content, told):
    assert load(written(tmp_path, name, content)).pages
    warned = [str(one.message) for one in recwarn if one.category is DocumentWarning]
    assert len(warned) == bool(told) and all(one.startswith(told) for one in warned)


def test_words_of_a_scan_are_put_in_reading_order():
    pieces = [
        scans.ReadLine("world", 0.5, 0.11, 0.8, 0.19),
        scans.ReadLine("below", 0.1, 0.3, 0.4, 0.4),
        scans.ReadLine("hello", 0.1, 0.1, 0.4, 0.2),
    ]
    assert [line.text for line in scans._in_lines(pieces)] == ["hello world", "below"]


def test_real_ocr_reads_a_picture(tmp_path):
    pytest.importorskip("rapidocr")
    image = render_text("The quick brown fox\njumps over 1234 dogs", "large", "x").page(1).image()
    document = load(written(tmp_path, "scan.png", png_bytes(image)))
    assert "quick brown fox" in document.text and "1234" in document.text


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_white(tmp_path, mode):
    ink = Image.new("LA", (60, 40), (0, 0))
    ink.paste((0, 255), (10, 10, 30, 30))
    picture, options = ink.convert(mode) if mode != "P" else Image.new("P", (60, 40), 1), {}
    if mode == "P":  # both colours are black, and one of them is none
        picture.putpalette([0] * 6)
        picture.paste(0, (10, 10, 30, 30))
        options = {"transparency": 1}
    image = load(written(tmp_path, "a.png", encoded(picture, "PNG", **options)), ocr="never").page(1).image()
    assert (image[0, 0] == 255).all() and (image[20, 20] == 0).all()


@pytest.mark.parametrize(("orientation", "shape"), [(1, (40, 60)), (3, (40, 60)), (6, (60, 40)), (8, (60, 40))])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_a_photograph_stands_upright(tmp_path, kind, orientation, shape):
    exif = Image.Exif()
    exif[0x112] = orientation
    data = encoded(Image.new("L", (60, 40), 200), kind, exif=exif)
    assert load(written(tmp_path, "photo", data), ocr="never").page(1).image().shape[:2] == shape


def test_a_picture_whose_notes_are_damaged_is_shown_as_it_is(tmp_path):
    data = encoded(Image.new("L", (60, 40), 200), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\x7f")
    assert load(written(tmp_path, "photo", data), ocr="never").page(1).image().shape == (40, 60)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_of_grey_keep_their_shades(tmp_path, kind):
    shades = np.linspace(0, 65535, 256 * 40).reshape(40, 256).astype(np.uint16)
    image = load(written(tmp_path, "deep", encoded(Image.fromarray(shades), kind)), ocr="never").page(1).image()
    assert (image == shades >> 8).all()


def test_huge_pictures_are_bounded(tmp_path, monkeypatch):
    data = png_bytes(np.full((60, 5000), 255, np.uint8))
    document = load(written(tmp_path, "wide.png", data), ocr="never")
    assert document.page(1).width_px == scans.MAX_SIDE_PX
    monkeypatch.setattr(scans, "MAX_IMAGE_PIXELS", 1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match="megapixels"):
            load(tmp_path / "wide.png", ocr="never")


def test_a_poster_is_drawn_no_larger_than_models_take(tmp_path):
    canvas = pytest.importorskip("reportlab.pdfgen.canvas").Canvas(buffer := io.BytesIO(), pagesize=(14000, 9000))
    canvas.drawString(100, 100, "a poster")
    canvas.save()
    page = load(written(tmp_path, "poster.pdf", buffer.getvalue())).page(1)
    assert max(page.image().shape) == scans.MAX_SIDE_PX == page.width_px


# ── Real texts ───────────────────────────────────────────────────────────────────────────────────


def test_every_longbench_task_renders_with_nothing_lost(shared_data):
    tasks = sorted((shared_data / "longbench" / "samples").glob("*.jsonl"))
    assert len(tasks) == 21
    covered = {chr(code) for name in STYLES["seer"].fonts for code in load_font(name).face.unicodes}
    for path in tasks:
        with path.open(encoding="utf-8") as lines:
            text = json.loads(next(lines))["context"]
        document = render_text(text, name=path.stem)
        assert "".join(page.text for page in document) == text
        reported = {glyph.character for glyph in document.missing_glyphs}
        invisible = {
            character for character in set(text) if unicodedata.category(character) in ("Zs", "Cf", "Mn", "Cc")
        }
        assert set(text) - covered - invisible <= reported
        assert not reported & covered
        document.page(1).image()
