"""Load PDF files as documents: the pages as images, the text layer as the exact source text.

    document = load_pdf(data, "report.pdf", pages="10-40")

The text of all pages is read at once, which takes milliseconds per page. Page images are drawn on demand. A page
without a usable text layer (no text, a scan with only a page number, or a font whose text is not what it draws) is read
by OCR if that is installed.

pdfium is not thread-safe, so one lock (PDFIUM_LOCK) guards every call into it. Page indices are 0-based as in pdfium;
page numbers are 1-based.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from seer.errors import InputError
from seer.rendering.drawing.png import page_png_bytes
from seer.rendering.drawing.raster import VERSION
from seer.rendering.formats.pageranges import check_count, parse_pages
from seer.rendering.formats.pdf.file import PdfFile
from seer.rendering.formats.pdf.reading import PageText
from seer.rendering.formats.scans import (
    Ocr,
    Progress,
    ReadLine,
    boxes_of,
    ocr_installed,
    picture_style,
    read_picture,
)
from seer.schema import Box, Document, DocumentWarning, LineBox, Page

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEFAULT_DPI = 96
_OCR_DPI = 150
_MIN_LETTERS = 50
"""A page with at least this many visible characters of text does not count as a scan."""
_MAX_GARBLED_FRACTION = 0.3
"""A text layer with a larger fraction of characters without a Unicode value is unusable."""
_MIN_IMAGE_FRACTION = 0.3
"""A page with little text is a scan if its largest image covers at least this fraction of it."""
_MIN_LONE_IMAGE_FRACTION = 0.02
"""The same limit for a page without any text."""
_NO_TEXT = "has no usable text layer, and OCR is not installed: it is shown, but no text can be retrieved from it"
_CHARACTER_MAP = (
    "its text may not be what it shows: a font's character map is missing or wrong; read the page by OCR (--ocr always, or "
    'ocr="always" in Python)'
)
_CHARACTER_MAP_OCR = "a font's character map is missing or wrong: the text of the page was read by OCR"
_DYNAMIC_FORM = "the file is a dynamic XFA form, whose fields are neither drawn nor read; print it to a PDF first"


def load_pdf(
    data: bytes,
    name: str,
    *,
    dpi: float = DEFAULT_DPI,
    pages: str | None = None,
    max_pages: int | None = None,
    password: str | None = None,
    ocr: Ocr = "auto",
    progress: Progress | None = None,
) -> Document:
    """Load a PDF as a document.

    Args:
        data: the bytes of the file.
        name: the document's name, also used in error messages.
        dpi: resolution of the page images, 36 to 600. Very large pages get a lower one.
        pages: the pages to keep, such as "10-40,52"; None keeps all. Labels record the printed page numbers, or the
            numbers in the file.
        max_pages: limit on the number of kept pages; None means no limit.
        password: opens an encrypted file.
        ocr: "auto" reads pages without a usable text layer by OCR, "always" reads all, "never" none.
        progress: called with (pages done, pages in total, activity).

    Raises InputError if the PDF is encrypted, damaged or without pages, if `dpi` or `pages` are out of range, if there
    are more than `max_pages` pages, or if OCR is needed but not installed. If only some pages need OCR, the document
    has a warning for each instead.
    """
    if not 36 <= dpi <= 600:
        raise InputError(f"dpi={dpi:g}: must be between 36 and 600")
    file = PdfFile(data, name, password)
    indices = [number - 1 for number in parse_pages(pages or "1-", file.num_pages)]
    check_count(len(indices), max_pages, name)
    # Page images depend on the file, the page, the resolution and the renderer, so the hash covers just these.
    digest = hashlib.sha256(data).hexdigest()
    reads, damaged = _read_pages(file, indices, progress)
    scans, unread = _read_scans(file, reads, ocr, progress)
    out, texts, warnings, start = [], [], [], 0
    if file.has_dynamic_form:
        warnings.append(DocumentWarning(kind="form", message=_DYNAMIC_FORM))
    for number, index in enumerate(indices, 1):
        read, scan = reads.get(index), scans.get(index)
        # OCR text, where present, replaces the text layer.
        text = "".join(line.text + "\n" for line in scan) if scan is not None else read.text if read else ""
        width_px, height_px = file.size_px(index, dpi)
        page = Page(
            number=number,
            label=file.label(index) or (str(index + 1) if index + 1 != number else None),
            start=start,
            end=start + len(text),
            text=text,
            width_px=width_px,
            height_px=height_px,
            content_hash=hashlib.sha256(f"{VERSION} pdf {digest} {index} {dpi:g}".encode()).hexdigest()[:32],
        )
        draw = partial(_draw, file, index, dpi) if read else _blank
        if scan is not None:
            # OCR finds boxes of lines only, so a page that it read has no boxes of single characters.
            page = page.attach(draw, partial(_scan_boxes, scan), page_png_bytes)
        elif read:
            page = page.attach(
                draw,
                partial(_line_boxes, file, index, dpi, read),
                page_png_bytes,
                partial(_span_boxes, file, index, dpi, read),
            )
        else:
            page = page.attach(draw, _no_boxes, page_png_bytes)
        out.append(page)
        texts.append(text)
        start += len(text)
        warnings += [
            DocumentWarning(kind=kind, message=message, page=number)
            for kind, message in _page_warnings(index, read, scan, damaged, unread)
        ]
    return Document(
        name=name,
        text="".join(texts),
        style=picture_style("pdf", out[0], dpi),
        pages=tuple(out),
        warnings=tuple(warnings),
    )


def _read_pages(
    file: PdfFile, indices: list[int], progress: Progress | None
) -> tuple[dict[int, PageText], dict[int, str]]:
    """Return the text layer of each page, and why a page could not be read.

    Raises InputError if no page can be read.
    """
    reads: dict[int, PageText] = {}
    damaged: dict[int, str] = {}
    for done, index in enumerate(indices):
        if progress and done % 50 == 0:
            progress(done, len(indices), "reading text")
        try:
            reads[index] = file.read(index)
        except InputError as error:
            damaged[index] = str(error)
    if not reads:
        raise InputError(damaged[indices[0]])
    return reads, damaged


def _read_scans(
    file: PdfFile, reads: dict[int, PageText], ocr: Ocr, progress: Progress | None
) -> tuple[dict[int, list[ReadLine]], set[int]]:
    """Return the lines that OCR read, by page, and the pages that need OCR but were not read."""
    if ocr == "never":
        return {}, set()
    unusable = [index for index, read in reads.items() if ocr == "always" or not _is_usable(read)]
    if unusable and not ocr_installed():
        listed = ", ".join(str(index + 1) for index in unusable[:10]) + (" …" if len(unusable) > 10 else "")
        message = f"page(s) {listed} of '{file.name}' have no usable text layer, and OCR is not installed"
        # Some pages without usable text are acceptable with a warning, a document without any text is not.
        if ocr == "always" or all(not _has_text(reads[index]) for index in reads):
            raise InputError(
                f"{message}; install it with: pip install 'seer-vlm[ocr]', or read without text (--ocr never, "
                'ocr="never" in Python)'
            )
        return {}, set(unusable)
    scans = {}
    for done, index in enumerate(unusable):
        if progress:
            progress(done, len(unusable), "reading scans")
        scans[index] = read_picture(file.draw(index, _OCR_DPI))
    return scans, set()


def _page_warnings(
    index: int, read: PageText | None, scan: list[ReadLine] | None, damaged: dict[int, str], unread: set[int]
) -> list[tuple[str, str]]:
    """Return (kind, message) of the warnings about a page."""
    if read is None:
        return [("damaged-page", f"{damaged[index]}; it is shown blank")]
    found = [(notice.kind, notice.message) for notice in read.notices]
    if read.is_lying or read.num_unmapped:
        found.append(("character-map", _CHARACTER_MAP if scan is None else _CHARACTER_MAP_OCR))
    elif index in unread:
        found.append(("no-text", _NO_TEXT))
    return found


def _is_usable(read: PageText) -> bool:
    """Return whether a page's text layer can be used: its text is what it shows, and it is no scan with a few characters."""
    if read.is_lying:
        return False
    visible = sum(map(len, read.raw.split()))
    # A page with much text is a scan only if the text is garbled; otherwise its largest image decides.
    if visible >= _MIN_LETTERS or read.num_unmapped:
        return read.num_unmapped <= visible * _MAX_GARBLED_FRACTION
    return read.image_fraction < (_MIN_IMAGE_FRACTION if visible else _MIN_LONE_IMAGE_FRACTION)


def _has_text(read: PageText) -> bool:
    """Return whether a page has a text layer, be it right or wrong."""
    return sum(map(len, read.raw.split())) >= _MIN_LETTERS


def _draw(file: PdfFile, index: int, dpi: float, page: Page) -> NDArray[np.uint8]:
    return file.draw(index, dpi)


def _blank(page: Page) -> NDArray[np.uint8]:
    return np.full((page.height_px, page.width_px), 255, np.uint8)


def _no_boxes(page: Page) -> tuple[LineBox, ...]:
    return ()


def _scan_boxes(scan: list[ReadLine], page: Page) -> tuple[LineBox, ...]:
    return boxes_of(scan, page.start, page.width_px, page.height_px)


def _line_boxes(file: PdfFile, index: int, dpi: float, read: PageText, page: Page) -> tuple[LineBox, ...]:
    """Return the boxes of the lines of a page's text layer. Lines without a box on the page are left out."""
    characters = file.character_boxes(index, read) * file.scale(index, dpi)
    boxes, start = [], 0
    for line in read.text.splitlines(keepends=True) if "\r" not in read.text else read.text.split("\n"):
        end = start + len(line)
        box = _around(characters[start:end])
        if box is not None:
            boxes.append(LineBox(start=page.start + start, end=page.start + end, **box))
        start = end
    return tuple(boxes)


def _span_boxes(
    file: PdfFile, index: int, dpi: float, read: PageText, page: Page, start: int, end: int
) -> tuple[Box, ...]:
    """Return the boxes of the source text [start, end), one per line, cut at the span's first and last character."""
    characters = file.character_boxes(index, read) * file.scale(index, dpi)
    boxes, at = [], max(start - page.start, 0)
    last = min(end - page.start, len(read.text))
    while at < last:
        line_end = read.text.find("\n", at)
        stop = min(last, len(read.text) if line_end < 0 else line_end + 1)
        box = _around(characters[at:stop])
        if box is not None:
            boxes.append(Box(**box))
        at = stop
    return tuple(boxes)


def _around(boxes: NDArray[np.float64]) -> dict[str, float] | None:
    """Return the box around the boxes of characters; None if none of them has one."""
    known = boxes[~np.isnan(boxes[:, 0])]
    if not len(known):
        return None
    left, top = (float(value) for value in known[:, :2].min(0))
    right, bottom = (float(value) for value in known[:, 2:].max(0))
    return {"x_px": left, "y_px": top, "width_px": right - left, "height_px": bottom - top}
