"""Write a laid-out document as a PDF through reportlab, and draw PDFs as images.

    data = pdf_bytes(document)
    for image in rasterise(data, dpi=72, engine="pdfium"):      # or "poppler", if it is installed
        image                                                   # uint8 (height_px, width_px)

The PDF has the same layout as the direct raster, with every glyph at the same position. Words are set as text, so the
PDF is searchable. Glyphs that reportlab cannot set as text (shaped scripts, fonts with CFF outlines, and the boxes of
missing characters) are drawn as outlines.
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
"""The library that draws a PDF."""
PDFIUM_LOCK = threading.RLock()
"""Guards every call into pdfium, which is not thread-safe."""
_MAX_STRING_GLYPHS = 32
"""Limit on the glyphs of one PDF string. A PDF stores advances rounded to 1/1000 em, so the glyphs of a longer string
would drift from their positions in the layout."""


def pdf_bytes(document: Document, *, compress: bool = True) -> bytes:
    """Write the document as a PDF with the same pages, page sizes and positions as the direct raster.

    `compress=False` is faster and suits a PDF that is only drawn once. Equal documents give equal bytes.
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
    """Draw each page of a PDF in grey.

    Args:
        source: the bytes of the PDF, or its path.
        dpi: the resolution of the images.
        engine: "pdfium" or "poppler".

    Yields uint8 (height_px, width_px), 255 for white.

    Raises InputError if the PDF cannot be opened, the engine is unknown, or poppler is not installed.
    """
    if engine == "pdfium":
        return _rasterise_pdfium(source, dpi)
    if engine == "poppler":
        return _rasterise_poppler(source, dpi)
    raise InputError(f"engine='{engine}': must be pdfium or poppler")


def _rasterise_pdfium(source: bytes | str | Path, dpi: float) -> Iterator[NDArray[np.uint8]]:
    """Draw the pages through pdfium, one at a time. The lock is released between pages."""
    import pypdfium2

    with PDFIUM_LOCK:
        try:
            pdf = pypdfium2.PdfDocument(source)
        except pypdfium2.PdfiumError as error:
            raise InputError(f"the PDF cannot be opened: {error}; use one that a PDF viewer opens") from None
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
    """Draw the pages through poppler's command-line tools, which pdf2image calls."""
    import pdf2image
    from pdf2image.exceptions import PDFInfoNotInstalledError

    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    try:
        images = pdf2image.convert_from_bytes(data, dpi=round(dpi), grayscale=True)
    except PDFInfoNotInstalledError:
        raise InputError("engine='poppler': poppler is not installed; install poppler-utils, or use pdfium") from None
    for image in images:
        yield np.array(image)


# ── Embedding fonts ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Typeset:
    """How the characters of a document are encoded. reportlab embeds a font in subsets of up to 256 characters."""

    names: list[str]
    """The name of each subset in the PDF, from index 1; index 0 is unused."""
    codes: NDArray[np.int32]
    """(code points,): 256 times the subset's index plus the byte of the character in it; 0 if no subset has it."""


def _embed(canvas: Any, pieces: Iterable[str], chain: FontChain) -> _Typeset:
    """Embed the characters of a text.

    The most frequent characters share a subset, so that runs of characters within one subset are long.
    """
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
        # Byte 0 marks a character that reportlab does not find in the font.
        codes[own] = np.where(places > 0, (base + subsets) * 256 + places, 0)
    return _Typeset(names, codes)


def _register(font: Font) -> str | None:
    """Register a font with reportlab and return its name; None if reportlab cannot embed it.

    reportlab embeds TrueType outlines only, and variable fonts not at all.
    """
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
    """Write one page of the PDF."""
    points = 72 / measure.style.dpi
    canvas.setPageSize((layout.width_px * points, layout.height_px * points))
    # From here on, coordinates are pixels from the lower left corner of the page.
    canvas.scale(points, points)
    chain, glyphs = measure.chain, place_glyphs(layout, measure)
    marks = glyphs.slot == NEWLINE
    characters = code_points(layout.text).copy()
    characters[glyphs.offset[marks]] = ord(chain.newline_mark)
    own = characters.take(glyphs.offset)
    # A glyph is set as text if it is its character's nominal glyph and its font could be embedded.
    plain = chain.slot.take(chain.entries(own)) == np.where(marks, chain.newline_slot, glyphs.slot)
    as_text = plain & (typeset.codes.take(own) > 0)
    firsts, lasts = _strings(glyphs, own, as_text, marks, measure)
    codes = typeset.codes.take(characters)
    codes[codes == 0] = typeset.codes[SPACE]  # within a string, only white space has no code
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
    """Group the glyphs that can be set as one PDF string.

    The glyphs of a string are on one line and in one font, with only plain spaces between them. A PDF engine computes
    positions within a string from the font's advances, so a string ends where the layout has another position.

    Args:
        glyphs: the glyphs of the page.
        own: uint32 (glyphs,), the character of each glyph.
        as_text: bool (glyphs,), whether the glyph can be set as text.
        marks: bool (glyphs,), whether the glyph is a newline mark.

    Returns:
        (firsts, lasts): int64 (strings,) each; string k holds the glyphs [firsts[k], lasts[k]).
    """
    entries = measure.chain.entries(own)
    fonts, advances = measure.chain.font_index.take(entries), measure.advances_sub.take(entries)
    gaps = np.diff(glyphs.offset)
    drift = np.diff(glyphs.x_sub) - advances[:-1] - (gaps - 1) * measure.space_sub
    joined = as_text[1:] & as_text[:-1] & (fonts[1:] == fonts[:-1]) & (np.abs(drift) <= SUB_PX // 64)
    # Spaces come from the first font of the chain.
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
    """Yield the PDF operators that set each string.

    Args:
        glyphs: the glyphs of the page.
        firsts, lasts: (strings,), the result of `_strings`.
        codes: int32 (characters,), the code of each character of the page as in `_Typeset.codes`.
        marks: bool (glyphs,), whether the glyph is a newline mark.
        page_height_px: the height of the page.
        size_px: the font size.
        names: the names of the font subsets.
    """
    starts, ends = glyphs.offset[firsts], glyphs.offset[lasts - 1] + 1
    subsets, digits = codes >> 8, (codes & 255).astype(np.uint8).tobytes().hex()
    # Within a string the subset can change. `turns` are the offsets where it does; `between` is the range of turns
    # inside each string.
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
    """Draw a glyph or the box of a missing character as a filled outline, with its pen at (x_px, y_px)."""
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
            # The numbers are alternating x and y coordinates.
            points = [value * scale + (y_px if k % 2 else x_px) for k, value in enumerate(numbers)]
            getattr(path, kind)(*points)
    canvas.drawPath(path, stroke=0, fill=1, fillMode=1)
    canvas.setFillGray(0.0)


@lru_cache(maxsize=4096)
def _outline(font_name: str, glyph: int) -> tuple[tuple[Any, ...], ...]:
    """Return a glyph's outline as reportlab path operations in font units.

    PDF has no quadratic curves, so they are converted to cubic ones with the same shape (degree elevation).
    """
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
