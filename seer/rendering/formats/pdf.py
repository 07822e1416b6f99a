"""Load PDF files as documents: the pages as images, the text layer as the exact source text.

    document = load_pdf(data, "report.pdf", pages="10-40")

The text of all pages is read at once, which takes milliseconds per page. Page images are drawn on demand. A page
without a usable text layer (no text, a scan with only a page number, or a font without Unicode values) is read by OCR
if that is installed.

pdfium is not thread-safe, so one lock (PDFIUM_LOCK) guards every call into it. Page indices are 0-based as in pdfium;
page numbers are 1-based.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.errors import InputError
from seer.rendering.drawing.png import page_png_bytes
from seer.rendering.drawing.raster import VERSION
from seer.rendering.drawing.reportlab import PDFIUM_LOCK
from seer.rendering.formats.pageranges import check_count, parse_pages
from seer.rendering.formats.scans import (
    MAX_SIDE_PX,
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
_LINE_HYPHENS = str.maketrans({"\x02": "-", "\ufffe": "-", "\x00": " "})
"""pdfium reports a hyphen at a line's end as U+0002 or U+FFFE; null characters become spaces."""


@dataclass
class PdfFile:
    """An open PDF file.

    Every method holds PDFIUM_LOCK and closes the pdfium objects it opens before it releases the lock. The file itself is
    closed when this object is garbage-collected. The constructor raises InputError if the PDF is damaged, encrypted, or
    has no pages.
    """

    data: bytes
    name: str
    password: str | None = None
    _pdf: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        import pypdfium2

        with PDFIUM_LOCK:
            try:
                self._pdf = pypdfium2.PdfDocument(self.data, password=self.password)
                self.num_pages = len(self._pdf)
            except pypdfium2.PdfiumError as error:
                raise InputError(_describe(self.name, str(error), self.password)) from None
        # At interpreter exit pdfium may already be gone, so the file is not closed then.
        weakref.finalize(self, _close, self._pdf).atexit = False
        if not self.num_pages:
            raise InputError(f"'{self.name}' has no pages; use a PDF with at least one page")

    def label(self, index: int) -> str | None:
        """Return the page number as printed, or None if the PDF does not record it."""
        with PDFIUM_LOCK:
            return self._pdf.get_page_label(index) or None

    def text(self, index: int) -> str:
        """Return the raw text of a page, with lines separated by CR LF.

        Raises InputError if the page is damaged.
        """
        with self._page(index) as page:
            text: str = page.get_textpage().get_text_range(errors="replace")
        return text

    def size_pt(self, index: int) -> tuple[float, float]:
        """Return (width, height) of a page in points."""
        with PDFIUM_LOCK:
            width, height = self._pdf.get_page_size(index)
        return float(width), float(height)

    def scale(self, index: int, dpi: float) -> float:
        """Return the pixels per point at `dpi`, reduced so that no side exceeds MAX_SIDE_PX."""
        longest_pt = max(*self.size_pt(index), 1.0)
        return min(dpi / 72, MAX_SIDE_PX / longest_pt)

    def size_px(self, index: int, dpi: float) -> tuple[int, int]:
        """Return (width, height) of a page's image in pixels."""
        scale = self.scale(index, dpi)
        width, height = self.size_pt(index)
        return max(1, int(np.ceil(width * scale))), max(1, int(np.ceil(height * scale)))

    def draw(self, index: int, dpi: float) -> NDArray[np.uint8]:
        """Draw a page: uint8 (height_px, width_px, 3), or (height_px, width_px) if it has no colour.

        Raises InputError if the page is damaged.
        """
        with (
            self._page(index) as page,
            closing(page.render(scale=self.scale(index, dpi), rev_byteorder=True)) as bitmap,
        ):
            image = np.array(bitmap.to_numpy()[:, :, :3])
        width, height = self.size_px(index, dpi)
        # pdfium may round a page's size differently. Pages keep the size announced by `size_px`.
        if image.shape[:2] != (height, width):
            whole = np.full((height, width, 3), 255, np.uint8)
            rows, columns = min(height, image.shape[0]), min(width, image.shape[1])
            whole[:rows, :columns] = image[:rows, :columns]
            image = whole
        grey = (image[:, :, 0] == image[:, :, 1]).all() and (image[:, :, 0] == image[:, :, 2]).all()
        return np.ascontiguousarray(image[:, :, 0]) if grey else image

    def image_fraction(self, index: int) -> float:
        """Return the fraction of the page that its largest image covers. Raises InputError if the page is damaged."""
        import pypdfium2.raw as raw

        width, height = self.size_pt(index)
        with self._page(index) as page:
            images = page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=4)
            bounds = [image.get_bounds() for image in images]
        # Points of the page; an object outside the page can have a negative extent.
        areas = [max(0.0, right - left) * max(0.0, top - bottom) for left, bottom, right, top in bounds]
        return max(areas, default=0.0) / max(1.0, width * height)

    def line_rects(self, index: int, first: int, count: int) -> tuple[float, float, float, float] | None:
        """Return the box around a range of characters of a page.

        `first` and `count` are UTF-16 units of the page's raw text. Returns (left, top, right, bottom) in points from
        the upper left corner of the page; None for a rotated page or characters without a box. Raises InputError if
        the page is damaged.
        """
        with self._page(index) as page:
            # Text boxes are in the coordinates of the page before its rotation.
            if page.get_rotation():
                return None
            left, _, _, top = page.get_cropbox()
            textpage = page.get_textpage()
            rects = [textpage.get_rect(k) for k in range(textpage.count_rects(first, count))]
        if not rects:
            return None
        # PDF coordinates grow upwards, image coordinates downwards.
        return (
            min(rect[0] for rect in rects) - left,
            top - max(rect[3] for rect in rects),
            max(rect[2] for rect in rects) - left,
            top - min(rect[1] for rect in rects),
        )

    @contextmanager
    def _page(self, index: int) -> Iterator[Any]:
        """Open a page under the lock, and close it with everything opened from it."""
        import pypdfium2

        with PDFIUM_LOCK:
            try:
                page = self._pdf[index]
            except pypdfium2.PdfiumError as error:
                raise InputError(
                    f"page {index + 1} of '{self.name}' is damaged ({error}); repair the PDF or leave the page out"
                ) from None
            with closing(page):
                yield page


def _close(pdf: Any) -> None:
    """Close a pdfium document under the lock."""
    with PDFIUM_LOCK:
        pdf.close()


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
    raw_texts, scans, unread = _texts(file, indices, ocr, progress)
    out, texts, start = [], [], 0
    for number, index in enumerate(indices, 1):
        read = scans.get(index)
        # OCR text, where present, replaces the text layer.
        text = "".join(line.text + "\n" for line in read) if read is not None else _clean(raw_texts[index])
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
        lines = _liner(file, index, dpi, raw_texts.get(index, ""), read)
        # OCR finds boxes of lines only, so a page that it read has no boxes of single characters.
        boxes = partial(_span_boxes, file, index, dpi, raw_texts.get(index, "")) if read is None else None
        out.append(page.attach(_drawer(file, index, dpi), lines, page_png_bytes, boxes))
        texts.append(text)
        start += len(text)
    return Document(
        name=name,
        text="".join(texts),
        style=picture_style("pdf", out[0], dpi),
        pages=tuple(out),
        warnings=_unread_warnings(indices, unread),
    )


def _texts(
    file: PdfFile, indices: list[int], ocr: Ocr, progress: Progress | None
) -> tuple[dict[int, str], dict[int, list[ReadLine]], set[int]]:
    """Return the raw text layer of each page, the lines that OCR read, and the pages that need OCR but were not read."""
    raw = {}
    for done, index in enumerate(indices):
        if progress and done % 50 == 0:
            progress(done, len(indices), "reading text")
        raw[index] = file.text(index)
    if ocr == "never":
        return raw, {}, set()
    # Some pages without text are acceptable with a warning, a document without any text is not.
    unusable = [index for index in indices if ocr == "always" or _is_scan(file, index, raw[index])]
    if unusable and not ocr_installed():
        listed = ", ".join(str(index + 1) for index in unusable[:10]) + (" …" if len(unusable) > 10 else "")
        message = f"page(s) {listed} of '{file.name}' have no usable text layer, and OCR is not installed"
        if len(unusable) == len(indices) or ocr == "always":
            raise InputError(
                f"{message}; install it with: pip install 'seer-vlm[ocr]', or read without text (--ocr never, "
                'ocr="never" in Python)'
            )
        return raw, {}, set(unusable)
    scans = {}
    for done, index in enumerate(unusable):
        if progress:
            progress(done, len(unusable), "reading scans")
        scans[index] = read_picture(file.draw(index, _OCR_DPI))
    return raw, scans, set()


def _unread_warnings(indices: list[int], unread: set[int]) -> tuple[DocumentWarning, ...]:
    """Return a warning for each page that needs OCR but was not read by it."""
    message = "has no usable text layer, and OCR is not installed: it is shown, but no text can be retrieved from it"
    return tuple(
        DocumentWarning(kind="no-text", message=message, page=number)
        for number, index in enumerate(indices, 1)
        if index in unread
    )


def _is_scan(file: PdfFile, index: int, text: str) -> bool:
    """Return whether a page's text layer is unusable: garbled, or with few characters and a large image.

    Characters without a Unicode value arrive as U+FFFD or in the private use area.
    """
    visible = [character for character in text if not character.isspace()]
    garbled = sum(character == "\ufffd" or "\ue000" <= character <= "\uf8ff" for character in visible)
    # A page with much text is a scan only if the text is garbled; otherwise its largest image decides.
    if len(visible) >= _MIN_LETTERS:
        return garbled > len(visible) * _MAX_GARBLED_FRACTION
    return file.image_fraction(index) >= (_MIN_IMAGE_FRACTION if visible else _MIN_LONE_IMAGE_FRACTION)


def _clean(raw: str) -> str:
    """Normalise the raw text of a page for the source text: every line ends with LF, including the last one."""
    text = raw.replace("\r\n", "\n").translate(_LINE_HYPHENS)
    return text if not text or text.endswith("\n") else text + "\n"


def _drawer(file: PdfFile, index: int, dpi: float) -> Any:
    """Return the function that draws the page on demand."""
    return lambda page: file.draw(index, dpi)


def _liner(file: PdfFile, index: int, dpi: float, raw: str, read: list[ReadLine] | None) -> Any:
    """Return the function that finds the page's line boxes on demand."""

    def lines(page: Page) -> tuple[LineBox, ...]:
        if read is not None:
            return boxes_of(read, page.start, page.width_px, page.height_px)
        return _text_boxes(file, index, dpi, raw, page)

    return lines


def _text_boxes(file: PdfFile, index: int, dpi: float, raw: str, page: Page) -> tuple[LineBox, ...]:
    """Return the boxes of the lines of a page's text layer. Lines without a box on the page are left out."""
    scale = file.scale(index, dpi)
    boxes, start, unit = [], page.start, 0
    for line in raw.split("\r\n"):
        units = _utf16_units(line)
        end = min(start + len(line) + 1, page.end)
        rect = file.line_rects(index, unit, units) if units else None
        if rect is not None:
            left, top, right, bottom = (value * scale for value in rect)
            boxes.append(
                LineBox(start=start, end=end, x_px=left, y_px=top, width_px=right - left, height_px=bottom - top)
            )
        start, unit = end, unit + units + 2  # pdfium counts the CR LF between lines as two units
    return tuple(boxes)


def _span_boxes(file: PdfFile, index: int, dpi: float, raw: str, page: Page, start: int, end: int) -> tuple[Box, ...]:
    """Return the boxes of the source text [start, end), one per line, cut at the span's first and last character."""
    scale = file.scale(index, dpi)
    boxes, at, unit = [], page.start, 0
    for line in raw.split("\r\n"):
        first, last = max(start - at, 0), min(end - at, len(line))
        if first < last:
            before, units = _utf16_units(line[:first]), _utf16_units(line[first:last])
            rect = file.line_rects(index, unit + before, units)
            if rect is not None:
                left, top, right, bottom = (value * scale for value in rect)
                boxes.append(Box(x_px=left, y_px=top, width_px=right - left, height_px=bottom - top))
        at, unit = at + len(line) + 1, unit + _utf16_units(line) + 2
    return tuple(boxes)


def _utf16_units(text: str) -> int:
    """Return the length of `text` in UTF-16 units, which pdfium counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _describe(name: str, message: str, password: str | None) -> str:
    """Return the error message for a PDF that pdfium cannot open."""
    if "password" in message.lower():
        given = "the given password does not open it" if password else "no password was given"
        return (
            f"'{name}' is encrypted and {given}; pass the right one (--password, or password= in Python), or save the "
            "PDF without a password"
        )
    return f"'{name}' cannot be opened as a PDF ({message}): it is damaged or cut short; download or save it again"
