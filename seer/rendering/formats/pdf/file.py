"""An open PDF file: its pages, their text, their images, and the boxes of their characters."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.errors import InputError
from seer.rendering.drawing.reportlab import PDFIUM_LOCK
from seer.rendering.formats.pdf.annotations import Annotations, flatten, read_annotations
from seer.rendering.formats.pdf.characters import read_characters
from seer.rendering.formats.pdf.charmap import Judge
from seer.rendering.formats.pdf.library import handle
from seer.rendering.formats.pdf.reading import PageText, frame_of, places_of, read_page
from seer.rendering.formats.scans import MAX_SIDE_PX

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLANK_PAGE_PT = (595.0, 842.0)
"""The size of a page that cannot be read: A4."""


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
    _annotations: dict[int, Annotations] = field(init=False, default_factory=dict)
    """The annotations of the pages that they have become a part of."""

    _judge: Judge = field(init=False, default_factory=Judge)

    def __post_init__(self) -> None:
        import pypdfium2
        import pypdfium2.raw as raw

        with PDFIUM_LOCK:
            try:
                self._pdf = pypdfium2.PdfDocument(self.data, password=self.password)
                self.num_pages = len(self._pdf)
            except pypdfium2.PdfiumError as error:
                raise InputError(_describe(self.name, self.data, error, self.password)) from None
            # A form environment draws form fields, and must exist before the first page is opened.
            if self.num_pages and raw.FPDF_GetFormType(self._pdf) != raw.FORMTYPE_NONE:
                self._pdf.init_forms()
            self.has_dynamic_form = raw.FPDF_GetFormType(self._pdf) == raw.FORMTYPE_XFA_FULL
        # At interpreter exit pdfium may already be gone, so the file is not closed then.
        weakref.finalize(self, _close, self._pdf).atexit = False
        if not self.num_pages:
            raise InputError(_no_pages(self.name))

    def label(self, index: int) -> str | None:
        """Return the page number as printed, or None if the PDF does not record it."""
        with PDFIUM_LOCK:
            return self._pdf.get_page_label(index) or None

    def read(self, index: int) -> PageText:
        """Read a page. Raises InputError if the page is damaged.

        Form fields, free text and stamps become a part of the page, also in its image.
        """
        form = self._pdf.formenv
        annotations = self._annotations.get(index)
        with self._page(index) as page:
            if annotations is None:
                annotations = read_annotations(page, form)
                if annotations.has_text:
                    flatten(page)
            if not annotations.has_text or index in self._annotations:
                return read_page(page, annotations, self._judge, has_forms=form is not None)
        # What was merged into a page is there when it is opened again.
        self._annotations[index] = annotations
        return self.read(index)

    def character_boxes(self, index: int, read: PageText) -> NDArray[np.float64]:
        """Return the box of each character of a page's text.

        Args:
            index: the page.
            read: the page's text, as `read` returned it.

        Returns:
            float64 (characters, 4): left, top, right, bottom in points from the upper left corner of the page as shown,
            NaN for characters without a box.

        Raises InputError if the page is damaged.
        """
        with self._page(index) as page:
            frame = frame_of(page)
            textpage = page.get_textpage()
            with closing(textpage):
                characters = read_characters(handle(textpage.raw), read.raw, frame)
        places = places_of(read.raw, characters) if read.places is None else read.places
        boxes = np.concatenate((characters.boxes, read.marks, np.full((1, 4), np.nan)))
        width, height = frame.size_pt
        # A box without a side is a space that pdfium added; a box outside of the page is cut at its edge.
        boxes[(boxes[:, 2] <= boxes[:, 0]) | (boxes[:, 3] <= boxes[:, 1])] = np.nan
        boxes = np.clip(boxes, 0, (width, height, width, height))
        boxes[(boxes[:, 2] <= boxes[:, 0]) | (boxes[:, 3] <= boxes[:, 1])] = np.nan
        found: NDArray[np.float64] = boxes[places]
        return found

    def size_pt(self, index: int) -> tuple[float, float]:
        """Return (width, height) of a page as shown, in points; that of A4 if the page is damaged or has no size."""
        import pypdfium2

        with PDFIUM_LOCK:
            try:
                width, height = self._pdf.get_page_size(index)
            except pypdfium2.PdfiumError:
                return _BLANK_PAGE_PT
        if not (np.isfinite((width, height)).all() and width > 0 and height > 0):
            return _BLANK_PAGE_PT
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


def _no_pages(name: str) -> str:
    return f"'{name}' has no pages; use a PDF with at least one page"


def _describe(name: str, data: bytes, error: Any, password: str | None) -> str:
    """Return the error message for a PDF that pdfium cannot open."""
    import pypdfium2.raw as raw

    # pdfium fails to open a document without pages, and leaves the error code of an earlier call.
    is_encrypted = b"/Encrypt" in data
    if error.err_code == raw.FPDF_ERR_PASSWORD and is_encrypted:
        given = "the given password does not open it" if password else "no password was given"
        return (
            f"'{name}' is encrypted and {given}; pass the right one (--password, or password= in Python), or save the "
            "PDF without a password"
        )
    if error.err_code in (raw.FPDF_ERR_SUCCESS, raw.FPDF_ERR_PASSWORD) and not is_encrypted:
        return _no_pages(name)
    return f"'{name}' cannot be opened as a PDF ({error}): it is damaged or cut short; download or save it again"
