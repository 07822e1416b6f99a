"""Documents: page styles, pages and the boxes of their lines."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from seer.schema.base import Record

if TYPE_CHECKING:
    import numpy as np


NewlineMode = Literal["break", "mark"]
"""How a page shows the newlines of its source; see `PageStyle.newline`."""


class PageStyle(Record):
    """How text becomes a page. Two styles with the same `digest` draw the same pixels."""

    name: str = "custom"
    page_width_px: int = Field(595, ge=28, le=8192)
    page_height_px: int = Field(842, ge=28, le=8192)
    dpi: int = Field(72, ge=36, le=600)
    """Pixels per inch: a size in points becomes size · dpi / 72 pixels."""
    margin_x_px: int = Field(20, ge=0)
    margin_y_px: int = Field(20, ge=0)
    fonts: tuple[str, ...] = ("DejaVuSans", "DroidSansFallback")
    """The font chain: names of bundled or installed fonts, or paths of font files. The first font with a glyph for a
    character draws it."""
    font_size_pt: float = Field(9.0, ge=3, le=96)
    line_height_pt: float = Field(10.0, ge=3, le=192)
    tab_columns: int = Field(4, ge=1, le=16)
    """A tab advances to the next multiple of this many spaces."""
    newline: NewlineMode | Literal["auto"] = "break"
    """`break`: a newline ends the line. `mark`: lines run on and a small mark shows where the source breaks. `auto`: one
    of the two for each document, by the rule of `seer.rendering.newlines`; the pages record which."""
    breaking: Literal["unicode", "spaces"] = "unicode"
    """`unicode`: lines break wherever Unicode allows it. `spaces`: only after white space and next to CJK characters."""
    columns: int = Field(1, ge=1, le=8)
    column_gap_px: int = Field(12, ge=0)
    crop_width: bool = False
    """Cut the unused right side of each page."""
    crop_last_page: bool = True
    """Cut the unused bottom of the last page."""
    snap_px: int = Field(28, ge=1, le=112)
    """Cropped sides are multiples of this, so that no token is spent on a partial row of patches."""

    @model_validator(mode="after")
    def _text_area_is_positive(self) -> PageStyle:
        if self.text_width_px < 8 or self.text_height_px < self.line_height_px:
            raise ValueError(
                f"page {self.page_width_px}x{self.page_height_px} px with margins {self.margin_x_px}/{self.margin_y_px} px "
                f"and {self.columns} column(s) leaves {self.text_width_px:.0f}x{self.text_height_px:.0f} px for text, "
                f"less than one line of {self.line_height_px:.1f} px; make the page larger or the margins smaller"
            )
        return self

    @property
    def font_size_px(self) -> float:
        return self.font_size_pt * self.dpi / 72

    @property
    def line_height_px(self) -> float:
        return self.line_height_pt * self.dpi / 72

    @property
    def text_width_px(self) -> float:
        """Width of one column."""
        return (self.page_width_px - 2 * self.margin_x_px - (self.columns - 1) * self.column_gap_px) / self.columns

    @property
    def text_height_px(self) -> float:
        return self.page_height_px - 2 * self.margin_y_px

    @property
    def digest(self) -> str:
        """Twelve hex digits over every field but the name."""
        return hashlib.sha256(self.model_dump_json(exclude={"name"}).encode()).hexdigest()[:12]


class Box(Record):
    """A rectangle on a page, in pixels of its image from the upper left corner."""

    x_px: float
    y_px: float
    width_px: float
    height_px: float


class LineBox(Record):
    """One line of text: its span in the source and its box on the page."""

    start: int
    end: int
    x_px: float
    y_px: float
    width_px: float
    height_px: float


class Region(Record):
    """A span of source text on one page, with the boxes that it covers there."""

    page: int = Field(ge=1)
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    boxes: tuple[Box, ...] = ()
    """From top to bottom; empty if the page does not know where its text is."""
    kind: str = Field("text", min_length=1, max_length=100)
    """What the region is, e.g. "text", "page", "line", "quote", "table", "figure" or "crop"."""


class Page(Record):
    """One page: an image for the model and the exact source text for the record."""

    number: int = Field(ge=1)
    label: str | None = None
    """The page number as printed in the source, if there is one."""
    source: str = ""
    """The file that this page comes from, if the document joins several."""
    source_number: int | None = None
    """The page's number in that file."""
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    text: str
    width_px: int = Field(ge=1)
    height_px: int = Field(ge=1)
    content_hash: str
    """Identifies the image: equal hashes mean equal pixels. It is known before the image is drawn."""

    _draw: Callable[[Page], np.ndarray] | None = PrivateAttr(None)
    _lines: Callable[[Page], Sequence[LineBox]] | None = PrivateAttr(None)
    _encode: Callable[[Page], bytes] | None = PrivateAttr(None)
    _boxes: Callable[[Page, int, int], Sequence[Box]] | None = PrivateAttr(None)

    def attach(
        self,
        draw: Callable[[Page], np.ndarray],
        lines: Callable[[Page], Sequence[LineBox]] | None = None,
        encode: Callable[[Page], bytes] | None = None,
        boxes: Callable[[Page, int, int], Sequence[Box]] | None = None,
    ) -> Page:
        """Set the functions that draw this page, find its lines, encode it as PNG and find the boxes of a span.

        `boxes(page, start, end)` takes a span of source text inside the page. Returns the page itself.
        """
        self._draw, self._lines, self._encode, self._boxes = draw, lines, encode, boxes
        return self

    def image(self) -> np.ndarray:
        """Draw the page: uint8 of shape (height_px, width_px), 0 black to 255 white, or (height_px, width_px, 3).

        Raises ValueError if the page was loaded from a record, without the function that draws it.
        """
        if self._draw is None:
            raise ValueError(f"page {self.number} was loaded without the means to draw it; render its document again")
        return self._draw(self)

    def png(self) -> bytes:
        """Encode the page as PNG, with the pixels of `image()`.

        Raises ValueError if the page was loaded from a record, without the function that encodes it.
        """
        if self._encode is None:
            raise ValueError(f"page {self.number} was loaded without the means to encode it; render its document again")
        return self._encode(self)

    def moved(self, offset: int, **changes: Any) -> Page:
        """Return the same page for a text in which it starts `offset` characters later, with `changes` to other fields."""

        def lines(_: Page) -> list[LineBox]:
            return [
                box.model_copy(update={"start": box.start + offset, "end": box.end + offset})
                for box in self.line_boxes()
            ]

        def boxes(_: Page, start: int, end: int) -> Sequence[Box]:
            return self.span_boxes(start - offset, end - offset)

        place = {"start": self.start + offset, "end": self.end + offset}
        page = self.model_copy(update=place | changes)
        return page.attach(lambda _: self.image(), lines, lambda _: self.png(), boxes)

    def line_boxes(self) -> Sequence[LineBox]:
        """Source span and box of every line on the page, top to bottom; empty if they are not known."""
        return () if self._lines is None else self._lines(self)

    def span_boxes(self, start: int, end: int) -> Sequence[Box]:
        """Boxes of the source text [start, end) on this page, from top to bottom; the span is clipped to the page.

        Pages that know the position of every character (laid-out text, PDF text) return boxes that end at the span's
        first and last character. Scans know lines only and return the boxes of all lines that the span touches.
        """
        start, end = max(start, self.start), min(end, self.end)
        if start >= end:
            return ()
        if self._boxes is not None:
            return self._boxes(self, start, end)
        touched = [line for line in self.line_boxes() if line.start < end and line.end > start]
        return [
            Box(x_px=line.x_px, y_px=line.y_px, width_px=line.width_px, height_px=line.height_px) for line in touched
        ]


class MissingGlyph(Record):
    """A character that no font of the chain covers; it is drawn as a box with its code point."""

    character: str
    code_point: str
    count: int
    offsets: tuple[int, ...]
    """Its first offsets in the source text, at most 20."""


class DocumentWarning(Record):
    """Something that the pages and the text of a document do not both hold, or a guess that its reader should check."""

    kind: str = Field(pattern=r"^[a-z]+(-[a-z]+)*$", max_length=40)
    """A short name in lower case, such as "hidden-text", "formula" or "encoding"."""
    message: str
    """One sentence without the page number. It may quote the document, so it is untrusted text."""
    page: int | None = Field(None, ge=1)
    """The page that it concerns; None for the whole document."""


class Document(Record):
    """A source text and its pages. The page texts joined in order equal the source text."""

    name: str
    text: str
    style: PageStyle
    pages: tuple[Page, ...]
    missing_glyphs: tuple[MissingGlyph, ...] = ()
    warnings: tuple[DocumentWarning, ...] = ()
    """What the pages and the text do not both hold, in page order; warnings about the whole document come first."""

    @model_validator(mode="after")
    def _pages_join_to_the_text(self) -> Document:
        end = 0
        for number, page in enumerate(self.pages, 1):
            assert page.number == number and page.start == end and page.end - page.start == len(page.text), (
                f"page {page.number} covers [{page.start}, {page.end}) with {len(page.text)} characters after {end}"
            )
            end = page.end
        assert end == len(self.text), f"pages end at {end}, text has {len(self.text)} characters"
        return self

    def page(self, number: int) -> Page:
        """Return the page with this 1-based number.

        Raises ValueError if there is no such page.
        """
        if not 1 <= number <= len(self.pages):
            raise ValueError(f"page {number} is not in '{self.name}': give a page from 1 to {len(self.pages)}")
        return self.pages[number - 1]

    def page_at(self, offset: int) -> Page:
        """Return the page that contains the source character at `offset`.

        Raises ValueError if the offset is outside the text.
        """
        if not 0 <= offset < max(1, len(self.text)):
            raise ValueError(
                f"offset {offset} is outside '{self.name}': give an offset from 0 to {max(0, len(self.text) - 1)}"
            )
        low, high = 0, len(self.pages) - 1  # binary search for the first page that ends after `offset`
        while low < high:
            middle = (low + high) // 2
            if self.pages[middle].end > offset:
                high = middle
            else:
                low = middle + 1
        return self.pages[low]

    def __iter__(self) -> Iterator[Page]:  # type: ignore[override]
        return iter(self.pages)
