"""Load documents and lay out text: a text or a file becomes a `Document` of pages.

    document = load("report.txt")                    # or "-" for standard input
    document = load_bytes(data, "report.pdf")        # the same from memory
    document = render_text(text, style="glyph")
    for page in stream(pieces):                      # a text of any length, in bounded memory

Text is laid out at once. A page is drawn when its image is first requested: `page.image()` returns uint8
(height_px, width_px) or, for pages in colour, (height_px, width_px, 3).
"""

from __future__ import annotations

import hashlib
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.errors import DocumentNotFound, GlyphError, InputError
from seer.rendering.drawing.raster import VERSION, draw_page, page_png
from seer.rendering.formats.extract import Notice
from seer.rendering.formats.images.load import load_image
from seer.rendering.formats.pageranges import check_count, parse_pages
from seer.rendering.formats.pdf import load_pdf
from seer.rendering.formats.registry import FORMATS
from seer.rendering.formats.scans import Ocr, Progress
from seer.rendering.formats.sniff import check_name, sniff
from seer.rendering.layout.coverage import MISSING_GLYPH, describe_missing, glyph_warnings
from seer.rendering.layout.fonts import ZERO_WIDTH_ENTRY, load_chain
from seer.rendering.layout.lines import PIECE_CHARS, PageLayout, lay_out
from seer.rendering.layout.measure import Measure, code_points
from seer.rendering.layout.placing import line_boxes, span_boxes
from seer.rendering.newlines import settle_newline
from seer.rendering.plan import AUTO, settle
from seer.rendering.styles import resolve_style
from seer.schema import Box, Document, DocumentWarning, LineBox, MissingGlyph, Page, PageStyle

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_FILE_BYTES = 2 << 30
"""Limit on the size of a document's file: 2 GB."""
_MAX_OFFSETS = 20
"""Offsets recorded for each missing character."""


def load(
    source: str | Path,
    style: str | PageStyle = "seer",
    *,
    changes: Mapping[str, Any] | None = None,
    encoding: str | None = None,
    strict_glyphs: bool = False,
    pages: str | None = None,
    max_pages: int | None = None,
    dpi: float = 96,
    reflow: bool = False,
    ocr: Ocr = "auto",
    password: str | None = None,
    progress: Progress | None = None,
) -> Document:
    """Read a document from a file, or from standard input if `source` is "-".

    The content decides the format; a name with the extension of another format only causes a warning. Text, Markdown,
    code, HTML and Word files are laid out in `style`. A PDF or an image keeps its own pages.

    Args:
        source: the path of the file, or "-".
        style: the name of a style, "auto" for the layout with the fewest tokens, or a style.
        changes: fields of the style to change.
        encoding: read the content as text in this encoding instead of detecting its format.
        strict_glyphs: raise an error if no font covers a character, instead of drawing a box.
        pages: keep only these pages, such as "10-40,52". Their labels record their numbers.
        max_pages: reject a document of more pages before the rest is laid out or read. Of a PDF or an image only `pages` count.
        dpi: resolution of the images of PDF pages.
        reflow: lay out the text of a PDF or an image in `style`.
        ocr: read scanned pages by OCR: "auto" if a page has no usable text, "always" or "never".
        password: opens an encrypted PDF.
        progress: called with (pages done, pages in total, activity).

    Raises DocumentNotFound if the file does not exist. Raises InputError if `source` is a folder or a URL, if the
    content is empty, binary, undecodable, damaged, encrypted or too large, if the style is unknown, or if `pages` are
    out of range or too many. Raises GlyphError if `strict_glyphs` finds a character that no font covers.
    """
    name, data = ("stdin", sys.stdin.buffer.read()) if str(source) == "-" else _read(str(source))
    return load_bytes(
        data,
        name,
        style,
        changes=changes,
        encoding=encoding,
        strict_glyphs=strict_glyphs,
        pages=pages,
        max_pages=max_pages,
        dpi=dpi,
        reflow=reflow,
        ocr=ocr,
        password=password,
        progress=progress,
    )


def load_bytes(
    data: bytes,
    name: str,
    style: str | PageStyle = "seer",
    *,
    changes: Mapping[str, Any] | None = None,
    encoding: str | None = None,
    strict_glyphs: bool = False,
    pages: str | None = None,
    max_pages: int | None = None,
    dpi: float = 96,
    reflow: bool = False,
    ocr: Ocr = "auto",
    password: str | None = None,
    progress: Progress | None = None,
) -> Document:
    """Read a document from memory, with the same result as `load` of a file with this content and name.

    `name` appears in the document and in messages; no file of this name is opened. The options are those of `load`.

    Raises InputError and GlyphError as `load` does.
    """
    if len(data) > MAX_FILE_BYTES:
        raise InputError(f"'{name}' is larger than {MAX_FILE_BYTES >> 30} GB, the limit; split it")
    if not data:
        raise InputError(f"'{name}' is empty; use a document with at least one character")
    kind = sniff(data, name, encoding)
    laid_out = partial(
        render_text, style=style, name=name, changes=changes, strict_glyphs=strict_glyphs, max_pages=max_pages
    )
    if kind == "pdf":
        document = load_pdf(
            data, name, dpi=dpi, pages=pages, max_pages=max_pages, password=password, ocr=ocr, progress=progress
        )
    elif kind == "image":
        document = load_image(data, name, pages=pages, max_pages=max_pages, ocr=ocr, progress=progress)
    else:
        extract = FORMATS[kind].read(data, name, encoding)
        if not extract.text:
            raise InputError(f"'{name}' holds no text; use a document with at least one character")
        document = laid_out(extract.text)
        document = _with_warnings(document, [_place(notice, document) for notice in extract.notices])
        if pages is not None:
            document = keep_pages(document, pages)
    misleading = check_name(name, kind)
    if reflow and kind in ("pdf", "image"):
        # The pages change, so warnings about a page of the file become warnings about the document that name the page.
        former = [_about_document(warning) for warning in document.warnings]
        document = _with_warnings(laid_out(document.text), former)
    return _with_warnings(document, [misleading] if misleading else [])


def _place(notice: Notice, document: Document) -> DocumentWarning:
    """Turn a reader's notice into a warning about the page that holds its place."""
    page = None if notice.offset is None else document.page_at(min(notice.offset, len(document.text) - 1)).number
    return DocumentWarning(kind=notice.kind, message=notice.message, page=page)


def _about_document(warning: DocumentWarning) -> DocumentWarning:
    """Return a warning about the whole document that names the page of the file in its message."""
    if warning.page is None:
        return warning
    return warning.model_copy(update={"page": None, "message": f"page {warning.page} of the file: {warning.message}"})


def _with_warnings(document: Document, more: Sequence[DocumentWarning]) -> Document:
    """Return the document with further warnings, sorted by page."""
    if not more:
        return document
    warnings = sorted((*more, *document.warnings), key=lambda warning: warning.page or 0)
    return document.model_copy(update={"warnings": tuple(warnings)})


def keep_pages(document: Document, pages: str) -> Document:
    """Return a document of the given pages, such as "10-40,52".

    Pages are renumbered, and their former numbers become their labels unless they have labels. Spans and offsets refer
    to the text of the kept pages. Raises InputError if `pages` is malformed or out of range.
    """
    numbers = parse_pages(pages, len(document.pages))
    new_number = {former: number for number, former in enumerate(numbers, 1)}
    kept, start = [], 0
    for number, former in enumerate(numbers, 1):
        page = document.page(former)
        # `moved` shifts the page's span to its place in the text of the kept pages.
        kept.append(page.moved(start - page.start, number=number, label=page.label or str(former)))
        start += len(page.text)
    text = "".join(page.text for page in kept)
    missing = missing_glyphs(text, Measure(document.style, load_chain(document.style.fonts)))
    warnings = tuple(
        warning if warning.page is None else warning.model_copy(update={"page": new_number[warning.page]})
        for warning in document.warnings
        if (warning.page is None or warning.page in new_number) and warning.kind != MISSING_GLYPH
    )
    changes = {"text": text, "pages": tuple(kept), "missing_glyphs": missing}
    return document.model_copy(update=changes | {"warnings": glyph_warnings(missing) + warnings})


def render_text(
    text: str,
    style: str | PageStyle = "seer",
    name: str = "text",
    *,
    changes: Mapping[str, Any] | None = None,
    strict_glyphs: bool = False,
    max_pages: int | None = None,
) -> Document:
    """Lay out a text. The page texts joined equal it exactly.

    Args:
        text: any text of at least one character.
        style: the name of a style, "auto" for the layout with the fewest tokens, or a style. The document records the
            style that is used.
        name: the document's name, also used in error messages.
        changes: fields of the style to change.
        strict_glyphs: raise an error if no font covers a character, instead of drawing a box.
        max_pages: limit on the number of pages; None means no limit.

    Raises InputError if the text is empty, the style is unknown, or there are more than `max_pages` pages. Raises
    ConfigError if `changes` are invalid, and GlyphError if `strict_glyphs` finds a missing character.
    """
    if not text:
        raise InputError(f"'{name}' is empty; use a text with at least one character")
    style = settle(text, style, **(changes or {}))
    measure = Measure(style, load_chain(style.fonts))
    missing = missing_glyphs(text, measure)
    if missing and strict_glyphs:
        raise GlyphError(describe_missing(name, missing, style))
    # Laying out one page more than allowed is enough to detect a document that is too long.
    pages = tuple(itertools.islice(_pages(_pieces(text), measure), None if max_pages is None else max_pages + 1))
    check_count(len(pages), max_pages, name)
    return Document(
        name=name, text=text, style=style, pages=pages, missing_glyphs=missing, warnings=glyph_warnings(missing)
    )


def stream(pieces: str | Iterable[str], style: str | PageStyle = "seer") -> Iterator[Page]:
    """Yield the pages of a text of any length in bounded memory. Draw or save each page before the next one.

    `pieces` join to the text, such as the lines of an open text file. The pages equal those of `render_text` for the
    whole text. Raises InputError if the style is unknown or "auto", which needs the whole text first, or if `pieces`
    is not one text and the style decides the newline mode by the text, as `paper` does.
    """
    if style == AUTO:
        raise InputError("style='auto': needs the whole text, which a stream does not have; use a named style")
    style = resolve_style(style)
    if isinstance(pieces, str):
        style = settle_newline(pieces, style)
    elif style.newline == AUTO:
        raise InputError(
            f"style '{style.name}' has newline='auto': needs the whole text, which a stream does not have; set newline "
            "to 'break' or 'mark'"
        )
    measure = Measure(style, load_chain(style.fonts))
    # A string would be iterated character by character, so cut it into pieces first.
    yield from _pages(_pieces(pieces) if isinstance(pieces, str) else pieces, measure)


def missing_glyphs(text: str, measure: Measure) -> tuple[MissingGlyph, ...]:
    """Return the characters of `text` that no font of the chain covers, in order of first occurrence.

    Each comes with its count and its first offsets, at most _MAX_OFFSETS.
    """
    counts: dict[int, int] = {}
    offsets: dict[int, list[int]] = {}
    # Fonts are looked up for a piece at a time, in memory bounded by the piece.
    start = 0
    for piece in _pieces(text):
        codes = code_points(piece)
        places = np.flatnonzero(measure.chain.entries(codes) < ZERO_WIDTH_ENTRY)
        for place, code in zip(places.tolist(), codes[places].tolist(), strict=True):
            counts[code] = counts.get(code, 0) + 1
            kept = offsets.setdefault(code, [])
            if len(kept) < _MAX_OFFSETS:
                kept.append(start + place)
        start += len(piece)
    return tuple(
        MissingGlyph(character=chr(code), code_point=f"U+{code:04X}", count=counts[code], offsets=tuple(offsets[code]))
        for code in counts
    )


def _pages(pieces: Iterable[str], measure: Measure) -> Iterator[Page]:
    """Lay out the text and yield its pages, which are drawn on demand."""
    salt = f"{VERSION} {measure.style.digest} {measure.chain.digest}".encode()
    for number, layout in enumerate(lay_out(pieces, measure), 1):
        page = Page(
            number=number,
            start=layout.start,
            end=layout.end,
            text=layout.text,
            width_px=layout.width_px,
            height_px=layout.height_px,
            content_hash=_content_hash(salt, layout),
        )
        # The page calls these functions with itself when its image, lines, PNG or boxes are requested.
        yield page.attach(
            partial(_draw, layout, measure),
            partial(_find_lines, layout, measure),
            partial(_encode, layout, measure),
            partial(_find_boxes, layout, measure),
        )


def _draw(layout: PageLayout, measure: Measure, page: Page) -> NDArray[np.uint8]:
    """Draw the page's image."""
    return draw_page(layout, measure)


def _encode(layout: PageLayout, measure: Measure, page: Page) -> bytes:
    """Return the page's PNG."""
    return page_png(layout, measure)


def _find_lines(layout: PageLayout, measure: Measure, page: Page) -> tuple[LineBox, ...]:
    """Return the page's line boxes."""
    return line_boxes(layout, measure, page.start)


def _find_boxes(layout: PageLayout, measure: Measure, page: Page, start: int, end: int) -> tuple[Box, ...]:
    """Return the boxes of the source text [start, end) on the page."""
    return span_boxes(layout, measure, start - page.start, end - page.start)


def _content_hash(salt: bytes, layout: PageLayout) -> str:
    """Return the hash of everything that the page's pixels depend on.

    `salt` covers the renderer version, the style and the fonts; `layout` adds the page's size, lines and text.
    """
    digest = hashlib.sha256(salt)
    digest.update(f" {layout.width_px} {layout.height_px} ".encode())
    digest.update(layout.line_starts.tobytes())
    digest.update(layout.tab_widths_sub.tobytes())
    digest.update(layout.levels.tobytes())
    digest.update(layout.text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


def _pieces(text: str) -> Iterator[str]:
    """Cut a text into pieces for `lay_out`."""
    for start in range(0, len(text), PIECE_CHARS):
        yield text[start : start + PIECE_CHARS]


def _read(source: str) -> tuple[str, bytes]:
    """Read a file; return its name and its bytes."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", source):
        raise InputError(
            f"'{source}' is a web address; nothing is fetched from the network: download it and use the path of the file"
        )
    if "\0" in source:
        raise InputError(f"{source[:200]!r} holds a null byte, which no path may; use the path of one document")
    path = Path(source)
    try:
        if path.is_dir():
            raise InputError(f"'{path}' is a folder; use the path of one document")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"'{path}' is larger than {MAX_FILE_BYTES >> 30} GB, the limit; split it")
        return path.name, path.read_bytes()
    except FileNotFoundError:
        raise DocumentNotFound(f"no document at '{path}'; use the path of a file, or - for standard input") from None
    except OSError as error:
        raise InputError(f"'{source[:200]}' cannot be read: {error.strerror}; check its permissions") from None
