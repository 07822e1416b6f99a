"""The PDF road: the same layout written by reportlab at the very same positions, then drawn by a PDF engine.

    data = pdf_bytes(document)
    for image in rasterise(data, dpi=72, engine="pdfium"):      # or "poppler", where it is installed
        image                                                   # uint8 (height_px, width_px)

Words are set as text, so the PDF can be searched. What reportlab cannot set, namely shaped scripts, fonts with CFF
outlines and the boxes of missing characters, is drawn as outlines at the same places.
"""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from seer.errors import InputError
from seer.rendering.layout.boxes import missing_box
from seer.rendering.layout.fonts import MISSING, NEWLINE, Font, FontChain, load_chain
from seer.rendering.layout.lines import PIECE_CHARS, PageLayout, lay_out
from seer.rendering.layout.measure import SPACE, SUB_PX, Measure, code_points
from seer.rendering.layout.placing import PlacedGlyphs, place_glyphs
from seer.schema import Document
from seer.storage import replace_surrogates

if TYPE_CHECKING:
    from numpy.typing import NDArray

Engine = Literal["pdfium", "poppler"]
PDFIUM_LOCK = threading.RLock()
"""pdfium is not safe for threads: whoever calls into it holds this."""
_MAX_STRING_GLYPHS = 32
"""A PDF holds advances rounded to a thousandth of an em; a longer string would drift from the layout."""


def pdf_bytes(document: Document, *, compress: bool = True) -> bytes:
    """The document's pages as a PDF: as many pages, each of its page's size, every line where the raster has it.

    Uncompressed is quicker, for a PDF that is only drawn and thrown away.
    """
    from reportlab.pdfgen.canvas import Canvas

    measure = Measure(document.style, load_chain(document.style.fonts))
    buffer = io.BytesIO()
    canvas = Canvas(buffer, invariant=1, pageCompression=int(compress))
    canvas.setTitle(replace_surrogates(document.name))
    pieces = [document.text[at : at + PIECE_CHARS] for at in range(0, len(document.text), PIECE_CHARS)]
    typeset = _embed(canvas, pieces, measure.chain)
    for layout in lay_out(pieces, measure):
        _write_page(canvas, layout, measure, typeset)
    canvas.save()
    return buffer.getvalue()


def rasterise(source: bytes | str | Path, dpi: float = 72, engine: Engine = "pdfium") -> Iterator[NDArray[np.uint8]]:
    """Draw each page of a PDF in grey: uint8 (height_px, width_px).

    Raises InputError where the PDF cannot be opened, or poppler is asked for and not installed.
    """
    if engine == "pdfium":
        return _rasterise_pdfium(source, dpi)
    if engine == "poppler":
        return _rasterise_poppler(source, dpi)
    raise InputError(f"no PDF engine is called '{engine}'; use pdfium or poppler")


def _rasterise_pdfium(source: bytes | str | Path, dpi: float) -> Iterator[NDArray[np.uint8]]:
    import pypdfium2

    with PDFIUM_LOCK:
        try:
            pdf = pypdfium2.PdfDocument(source)
        except pypdfium2.PdfiumError as error:
            raise InputError(f"the PDF cannot be opened: {error}; give a PDF that a viewer opens") from None
        num_pages = len(pdf)
    try:
        for index in range(num_pages):
            with (
                PDFIUM_LOCK,
                closing(pdf[index]) as page,
                closing(page.render(scale=dpi / 72, grayscale=True)) as bitmap,
            ):
                image = bitmap.to_numpy()
                image = image.reshape(image.shape[:2]).copy()
            yield image
    finally:
        with PDFIUM_LOCK:
            pdf.close()


def _rasterise_poppler(source: bytes | str | Path, dpi: float) -> Iterator[NDArray[np.uint8]]:
    import pdf2image
    from pdf2image.exceptions import PDFInfoNotInstalledError

    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    try:
        images = pdf2image.convert_from_bytes(data, dpi=round(dpi), grayscale=True)
    except PDFInfoNotInstalledError:
        raise InputError("poppler is not installed; install poppler-utils, or use the engine pdfium") from None
    for image in images:
        yield np.array(image)


# ── Embedding fonts ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Typeset:
    """How a document's characters are written. reportlab embeds a font in subsets of up to 256 characters."""

    names: list[str]
    """The name of each subset in the document; the first is none."""
    codes: NDArray[np.int32]
    """By code point of the document: 256 times the number of the subset that holds it, plus its byte there; 0 where none does."""


def _embed(canvas: Any, pieces: Iterable[str], chain: FontChain) -> _Typeset:
    """Embed the characters of a text, the most frequent together, so that runs within one subset are long."""
    from reportlab.pdfbase import pdfmetrics

    counts = np.bincount([SPACE, ord(chain.newline_mark)])
    for piece in pieces:
        found = np.bincount(code_points(piece))
        counts, found = (counts, found) if len(counts) >= len(found) else (found, counts)
        counts[: len(found)] += found
    found = np.flatnonzero(counts)
    characters = found[np.argsort(-counts[found], kind="stable")].astype(np.uint32)
    owners = chain.font_index[chain.entries(characters)]
    names, codes = [""], np.zeros(len(counts), np.int32)
    for index, font in enumerate(chain.fonts):
        own, name = characters[owners == index], _register(font)
        if not len(own) or name is None:
            continue
        embedded = pdfmetrics.getFont(name)
        parts = embedded.splitString("".join(map(chr, own.tolist())), canvas._doc)
        base = len(names)
        names += [embedded.getSubsetInternalName(k, canvas._doc) for k in range(1 + max(part[0] for part in parts))]
        subsets = np.repeat([part[0] for part in parts], [len(part[1]) for part in parts])
        places = np.frombuffer(b"".join(part[1] for part in parts), np.uint8)
        # Byte 0 is a character that reportlab does not find in the font.
        codes[own] = np.where(places > 0, (base + subsets) * 256 + places, 0)
    return _Typeset(names, codes)


def _register(font: Font) -> str | None:
    """Make a font known to reportlab; None where it cannot embed it (only TrueType outlines can be)."""
    if "glyf" not in font.face.table_tags or "fvar" in font.face.table_tags:
        return None
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFError, TTFont

    name = f"Seer-{font.digest}"
    if name not in pdfmetrics.getRegisteredFontNames():
        try:
            pdfmetrics.registerFont(TTFont(name, str(font.path)))
        except TTFError:
            return None
    return name


# ── Writing a page ───────────────────────────────────────────────────────────────────────────────


def _write_page(canvas: Any, layout: PageLayout, measure: Measure, typeset: _Typeset) -> None:
    points = 72 / measure.style.dpi
    canvas.setPageSize((layout.width_px * points, layout.height_px * points))
    # From here on the page is measured in pixels from its lower left corner.
    canvas.scale(points, points)
    chain, glyphs = measure.chain, place_glyphs(layout, measure)
    marks = glyphs.slot == NEWLINE
    characters = code_points(layout.text).copy()
    characters[glyphs.offset[marks]] = ord(chain.newline_mark)
    own = characters.take(glyphs.offset)
    # Set as text what is its character's plain glyph, in a font that could be embedded.
    plain = chain.slot.take(chain.entries(own)) == np.where(marks, chain.newline_slot, glyphs.slot)
    as_text = plain & (typeset.codes.take(own) > 0)
    firsts, lasts = _strings(glyphs, own, as_text, marks, measure)
    codes = typeset.codes.take(characters)
    codes[codes == 0] = typeset.codes[SPACE]  # within a string these are spaces of some kind
    text = _operators(glyphs, firsts, lasts, codes, marks, layout.height_px, measure.style.font_size_px, typeset.names)
    canvas.addLiteral("\n".join(["BT", *text, "ET"]))
    canvas.setFillGray(0.0)
    for k in np.flatnonzero(~as_text).tolist():
        x, y = glyphs.x_sub[k] / SUB_PX, layout.height_px - int(glyphs.baseline_px[k])
        _draw_outline(canvas, int(glyphs.slot[k]), float(x), y, measure)
    canvas.showPage()


def _strings(
    glyphs: PlacedGlyphs,
    own: NDArray[np.uint32],
    as_text: NDArray[np.bool_],
    marks: NDArray[np.bool_],
    measure: Measure,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """[first, last) of glyphs set as one string: one line, one font, nothing but plain spaces between.

    The PDF engine adds up advances by itself; a string ends where it would come to another place than the layout.
    `own` is the character of each glyph.
    """
    entries = measure.chain.entries(own)
    fonts, advances = measure.chain.font_index.take(entries), measure.advances_sub.take(entries)
    gaps = np.diff(glyphs.offset)
    drift = np.diff(glyphs.x_sub) - advances[:-1] - (gaps - 1) * measure.space_sub
    joined = as_text[1:] & as_text[:-1] & (fonts[1:] == fonts[:-1]) & (np.abs(drift) <= SUB_PX // 64)
    # spaces come from the chain's first font
    joined &= (gaps == 1) | (gaps > 1) & (fonts[1:] == 0)
    joined &= (glyphs.baseline_px[1:] == glyphs.baseline_px[:-1]) & ~marks[1:] & ~marks[:-1]
    joined &= np.arange(1, len(own)) % _MAX_STRING_GLYPHS != 0
    firsts = np.flatnonzero(np.concatenate(([True], ~joined))) if len(own) else np.zeros(0, np.int64)
    lasts = np.concatenate((firsts[1:], [len(own)]))
    return firsts[as_text[firsts]], lasts[as_text[firsts]]


def _operators(
    glyphs: PlacedGlyphs,
    firsts: NDArray[np.int64],
    lasts: NDArray[np.int64],
    codes: NDArray[np.int32],
    marks: NDArray[np.bool_],
    page_height_px: int,
    size_px: float,
    names: list[str],
) -> Iterator[str]:
    """The PDF operators that set each string at its place. `codes` are those of every character on the page."""
    starts, ends = glyphs.offset[firsts], glyphs.offset[lasts - 1] + 1
    subsets, digits = codes >> 8, (codes & 255).astype(np.uint8).tobytes().hex()
    turns = np.flatnonzero(subsets[1:] != subsets[:-1]) + 1
    between = zip(np.searchsorted(turns, starts, "right").tolist(), np.searchsorted(turns, ends).tolist(), strict=True)
    x_px, y_px = glyphs.x_sub[firsts] / SUB_PX, page_height_px - glyphs.baseline_px[firsts]
    subset, grey = 0, 0.0
    places = zip(
        starts.tolist(), ends.tolist(), between, x_px.tolist(), y_px.tolist(), marks[firsts].tolist(), strict=True
    )
    for start, end, (low, high), x, y, is_mark in places:
        if grey != (grey := 0.5 if is_mark else 0.0):
            yield f"{grey} g"
        yield f"1 0 0 1 {x:.7g} {y} Tm"
        for first, last in itertools.pairwise((start, *turns[low:high].tolist(), end)):
            if subset != (subset := int(subsets[first])):
                yield f"{names[subset]} {size_px} Tf"
            yield f"<{digits[2 * first : 2 * last]}> Tj"


# ── Outlines ─────────────────────────────────────────────────────────────────────────────────────


def _draw_outline(canvas: Any, slot: int, x_px: float, y_px: float, measure: Measure) -> None:
    """Fill a glyph, or the box of a missing character, with its pen at (x_px, y_px)."""
    path = canvas.beginPath()
    if slot >= MISSING:
        box = missing_box(slot - MISSING, measure.style.font_size_px)
        left = round(x_px * 4) // 4
        for row, column in zip(*(places.tolist() for places in np.nonzero(box)), strict=True):
            path.rect(left + column, y_px + len(box) - 1 - row, 1, 1)
    else:
        if slot == NEWLINE:
            slot = measure.chain.newline_slot
            canvas.setFillGray(0.5)
        font, glyph = measure.chain.locate(slot)
        scale = measure.style.font_size_px / font.upem
        for kind, *numbers in _outline(font.name, glyph):
            points = [
                value * scale + (y_px if k % 2 else x_px) for k, value in enumerate(numbers)
            ]  # x and y take turns
            getattr(path, kind)(*points)
    canvas.drawPath(path, stroke=0, fill=1, fillMode=1)
    canvas.setFillGray(0.0)


@lru_cache(maxsize=4096)
def _outline(font_name: str, glyph: int) -> tuple[tuple[Any, ...], ...]:
    """The glyph's outline in font units, as reportlab's path operations; quadratic curves are raised to cubic."""
    import uharfbuzz as hb

    from seer.rendering.layout.fonts import load_font

    steps: list[tuple[Any, ...]] = []
    at = [0.0, 0.0]

    def move(x: float, y: float, _: object) -> None:
        steps.append(("moveTo", x, y))
        at[:] = x, y

    def line(x: float, y: float, _: object) -> None:
        steps.append(("lineTo", x, y))
        at[:] = x, y

    def quadratic(cx: float, cy: float, x: float, y: float, _: object) -> None:
        x0, y0 = at
        steps.append(
            (
                "curveTo",
                *(x0 + (cx - x0) * 2 / 3, y0 + (cy - y0) * 2 / 3),
                *(x + (cx - x) * 2 / 3, y + (cy - y) * 2 / 3),
                *(x, y),
            )
        )
        at[:] = x, y

    def cubic(ax: float, ay: float, bx: float, by: float, x: float, y: float, _: object) -> None:
        steps.append(("curveTo", ax, ay, bx, by, x, y))
        at[:] = x, y

    functions = hb.DrawFuncs()
    functions.set_move_to_func(move)
    functions.set_line_to_func(line)
    functions.set_quadratic_to_func(quadratic)
    functions.set_cubic_to_func(cubic)
    functions.set_close_path_func(lambda _: steps.append(("close",)))
    load_font(font_name).font.draw_glyph(glyph, functions, None)
    return tuple(steps)
