"""PDF files as documents: their own pages as pictures, their text layer as the exact source.

Text is read for all pages at once, which takes milliseconds a page; pictures are drawn when asked for. pdfium is not
safe for threads, so one lock guards every call into it. A page without a usable text layer (none, or a scan with a
stray page number, or a font without Unicode values) is read by OCR where that is installed.
"""

from __future__ import annotations

import hashlib
import warnings
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.errors import DocumentWarning, InputError
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
from seer.schema import Box, Document, LineBox, Page

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEFAULT_DPI = 96
_OCR_DPI = 150
_MIN_LETTERS = 50
"""A page with this many letters of text is not taken for a scan."""
_MAX_GARBLED_SHARE = 0.3
_MIN_PICTURE_SHARE = 0.3
_MIN_LONE_PICTURE_SHARE = 0.02
"""Of a page without any text."""
_LINE_HYPHENS = str.maketrans({"\x02": "-", "\ufffe": "-", "\x00": " "})
"""pdfium marks a hyphen at a line's end by these."""


@dataclass
class PdfFile:
    """An open PDF. Every method holds the lock, and closes what it opens before it lets go; so does the end of the file."""

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
        weakref.finalize(self, _close, self._pdf).atexit = False
        if not self.num_pages:
            raise InputError(f"'{self.name}' has no pages; give a PDF with at least one")

    def label(self, index: int) -> str | None:
        """The page number as printed, where the PDF gives one."""
        with PDFIUM_LOCK:
            return self._pdf.get_page_label(index) or None

    def text(self, index: int) -> str:
        """Raw text of a page; its lines are parted by CR LF. Empty where the page is damaged."""
        with self._page(index) as page:
            text: str = page.get_textpage().get_text_range(errors="replace")
        return text

    def size_pt(self, index: int) -> tuple[float, float]:
        with PDFIUM_LOCK:
            width, height = self._pdf.get_page_size(index)
        return float(width), float(height)

    def scale(self, index: int, dpi: float) -> float:
        """Pixels a point: `dpi`, or less where a page would come out larger than any model takes."""
        longest_pt = max(*self.size_pt(index), 1.0)
        return min(dpi / 72, MAX_SIDE_PX / longest_pt)

    def size_px(self, index: int, dpi: float) -> tuple[int, int]:
        scale = self.scale(index, dpi)
        width, height = self.size_pt(index)
        return max(1, int(np.ceil(width * scale))), max(1, int(np.ceil(height * scale)))

    def draw(self, index: int, dpi: float) -> NDArray[np.uint8]:
        """The page as uint8 (height, width, 3), or (height, width) where it holds no colour."""
        with (
            self._page(index) as page,
            closing(page.render(scale=self.scale(index, dpi), rev_byteorder=True)) as bitmap,
        ):
            image = np.array(bitmap.to_numpy()[:, :, :3])
        width, height = self.size_px(index, dpi)
        if image.shape[:2] != (height, width):
            whole = np.full((height, width, 3), 255, np.uint8)
            rows, columns = min(height, image.shape[0]), min(width, image.shape[1])
            whole[:rows, :columns] = image[:rows, :columns]
            image = whole
        grey = (image[:, :, 0] == image[:, :, 1]).all() and (image[:, :, 0] == image[:, :, 2]).all()
        return np.ascontiguousarray(image[:, :, 0]) if grey else image

    def picture_share(self, index: int) -> float:
        """Which share of the page its largest picture covers."""
        import pypdfium2.raw as raw

        width, height = self.size_pt(index)
        with self._page(index) as page:
            pictures = page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=4)
            bounds = [picture.get_bounds() for picture in pictures]
        areas = [max(0.0, right - left) * max(0.0, top - bottom) for left, bottom, right, top in bounds]
        return max(areas, default=0.0) / max(1.0, width * height)

    def line_rects(self, index: int, first: int, count: int) -> tuple[float, float, float, float] | None:
        """(left, top, right, bottom) in points from the upper left corner of a stretch of characters."""
        with self._page(index) as page:
            if page.get_rotation():
                return None
            left, _, _, top = page.get_cropbox()
            textpage = page.get_textpage()
            rects = [textpage.get_rect(k) for k in range(textpage.count_rects(first, count))]
        if not rects:
            return None
        return (
            min(rect[0] for rect in rects) - left,
            top - max(rect[3] for rect in rects),
            max(rect[2] for rect in rects) - left,
            top - min(rect[1] for rect in rects),
        )

    @contextmanager
    def _page(self, index: int) -> Iterator[Any]:
        """A page under the lock. With it is closed what was opened of it."""
        import pypdfium2

        with PDFIUM_LOCK:
            try:
                page = self._pdf[index]
            except pypdfium2.PdfiumError as error:
                raise InputError(f"page {index + 1} of '{self.name}' is damaged ({error}); repair the PDF") from None
            with closing(page):
                yield page


def _close(pdf: Any) -> None:
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
    """A PDF as a document. `pages` as "10-40,52"; labels keep the numbers as printed, or as in the file.

    Raises InputError: encrypted, damaged, without pages, pages out of range or more than `max_pages`, a scan while OCR
    is not installed.
    """
    if not 36 <= dpi <= 600:
        raise InputError(f"{dpi} dpi was asked for; give 36 to 600")
    file = PdfFile(data, name, password)
    indices = [number - 1 for number in parse_pages(pages or "1-", file.num_pages)]
    check_count(len(indices), max_pages, name)
    digest = hashlib.sha256(data).hexdigest()
    raw_texts, scans = _texts(file, indices, ocr, progress)
    out, texts, start = [], [], 0
    for number, index in enumerate(indices, 1):
        read = scans.get(index)
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
        # OCR knows the boxes of lines only: a page it read has no boxes of single characters.
        boxes = partial(_span_boxes, file, index, dpi, raw_texts.get(index, "")) if read is None else None
        out.append(page.attach(_drawer(file, index, dpi), lines, page_png_bytes, boxes))
        texts.append(text)
        start += len(text)
    return Document(name=name, text="".join(texts), style=picture_style("pdf", out[0], dpi), pages=tuple(out))


def _texts(
    file: PdfFile, indices: list[int], ocr: Ocr, progress: Progress | None
) -> tuple[dict[int, str], dict[int, list[ReadLine]]]:
    """The text layer of each page, and what OCR read where it is not usable."""
    raw = {}
    for done, index in enumerate(indices):
        if progress and done % 50 == 0:
            progress(done, len(indices), "reading text")
        raw[index] = file.text(index)
    if ocr == "never":
        return raw, {}
    unusable = [index for index in indices if ocr == "always" or _is_scan(file, index, raw[index])]
    if unusable and not ocr_installed():
        listed = ", ".join(str(index + 1) for index in unusable[:10]) + (" …" if len(unusable) > 10 else "")
        message = f"page(s) {listed} of '{file.name}' have no usable text layer, and OCR is not installed"
        if len(unusable) == len(indices) or ocr == "always":
            raise InputError(
                f"{message}; install it with: pip install 'seer-vlm[ocr]', or read without text (--ocr never, "
                'ocr="never" in Python)'
            )
        warnings.warn(
            f"{message}: they are shown, but no text can be retrieved from them", DocumentWarning, stacklevel=3
        )
        return raw, {}
    scans = {}
    for done, index in enumerate(unusable):
        if progress:
            progress(done, len(unusable), "reading scans")
        scans[index] = read_picture(file.draw(index, _OCR_DPI))
    return raw, scans


def _is_scan(file: PdfFile, index: int, text: str) -> bool:
    """Whether a page's text layer is no use: hardly any letters beside a large picture, or mostly garbled."""
    visible = [character for character in text if not character.isspace()]
    garbled = sum(character == "\ufffd" or "\ue000" <= character <= "\uf8ff" for character in visible)
    if len(visible) >= _MIN_LETTERS:
        return garbled > len(visible) * _MAX_GARBLED_SHARE
    return file.picture_share(index) >= (_MIN_PICTURE_SHARE if visible else _MIN_LONE_PICTURE_SHARE)


def _clean(raw: str) -> str:
    """The page's text as it goes into the source: lines end with LF, the last one too."""
    text = raw.replace("\r\n", "\n").translate(_LINE_HYPHENS)
    return text if not text or text.endswith("\n") else text + "\n"


def _drawer(file: PdfFile, index: int, dpi: float) -> Any:
    return lambda page: file.draw(index, dpi)


def _liner(file: PdfFile, index: int, dpi: float, raw: str, read: list[ReadLine] | None) -> Any:
    def lines(page: Page) -> tuple[LineBox, ...]:
        if read is not None:
            return boxes_of(read, page.start, page.width_px, page.height_px)
        return _text_boxes(file, index, dpi, raw, page)

    return lines


def _text_boxes(file: PdfFile, index: int, dpi: float, raw: str, page: Page) -> tuple[LineBox, ...]:
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
        start, unit = end, unit + units + 2  # pdfium counts its own CR LF as two units
    return tuple(boxes)


def _span_boxes(file: PdfFile, index: int, dpi: float, raw: str, page: Page, start: int, end: int) -> tuple[Box, ...]:
    """Boxes of the source text [start, end), one for each line, cut at the span's first and last character."""
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
    """Length in UTF-16 units, in which pdfium counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _describe(name: str, message: str, password: str | None) -> str:
    if "password" in message.lower():
        given = "the password given does not open it" if password else "no password was given"
        return f"'{name}' is encrypted and {given}; give the right one (--password, password= in Python), or save it without"
    return f"'{name}' cannot be opened as a PDF ({message}): it is damaged or cut short; download or save it again"
