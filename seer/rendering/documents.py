"""Documents: a text or a file becomes pages.

    document = load("report.txt")                    # or "-" for standard input
    document = render_text(text, style="glyph")
    for page in stream(pieces):                      # any length, in bounded memory

Pages are laid out at once and drawn on demand: `page.image()`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seer.errors import DocumentNotFound, GlyphError, InputError
from seer.rendering.fonts import ZERO_WIDTH_ENTRY, load_chain
from seer.rendering.layout import PIECE_CHARS, PageLayout, lay_out
from seer.rendering.measure import Measure, code_points
from seer.rendering.placing import line_boxes
from seer.rendering.plan import settle
from seer.rendering.raster import VERSION, draw_page
from seer.rendering.styles import resolve_style
from seer.rendering.textfiles import decode
from seer.schema import Document, LineBox, MissingGlyph, Page, PageStyle

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_OFFSETS = 20


def load(
    source: str | Path,
    style: str | PageStyle = "seer",
    *,
    encoding: str | None = None,
    strict_glyphs: bool = False,
) -> Document:
    """Read a file, or standard input where `source` is "-", and lay it out.

    Raises DocumentNotFound (no such file), InputError (a folder, empty, binary, undecodable; an unknown style),
    GlyphError (`strict_glyphs` and a character that no font covers).
    """
    name, data = ("stdin", sys.stdin.buffer.read()) if str(source) == "-" else _read(Path(source))
    text = decode(data, name=name, encoding=encoding)
    return render_text(text, style, name=name, strict_glyphs=strict_glyphs)


def render_text(
    text: str, style: str | PageStyle = "seer", name: str = "text", *, strict_glyphs: bool = False
) -> Document:
    """Lay out a text. The page texts joined equal it exactly, whatever it holds.

    Raises InputError (empty text, unknown style), GlyphError (as in `load`).
    """
    if not text:
        raise InputError(f"'{name}' is empty; give a text with at least one character")
    style = settle(text, style)
    measure = Measure(style, load_chain(style.fonts))
    missing = missing_glyphs(text, measure)
    if missing and strict_glyphs:
        raise GlyphError(_describe_missing(name, missing, style))
    pages = tuple(_pages(_pieces(text), measure))
    return Document(name=name, text=text, style=style, pages=pages, missing_glyphs=missing)


def stream(pieces: str | Iterable[str], style: str | PageStyle = "seer") -> Iterator[Page]:
    """Pages of a text of any length, one by one, in bounded memory: draw or save each before asking for the next.

    `pieces` join to the text, e.g. an open text file. The pages equal those of `render_text` on the whole.
    """
    style = resolve_style(style)
    measure = Measure(style, load_chain(style.fonts))
    yield from _pages(_pieces(pieces) if isinstance(pieces, str) else pieces, measure)


def missing_glyphs(text: str, measure: Measure) -> tuple[MissingGlyph, ...]:
    """Every character of `text` that no font of the chain covers, in order of first occurrence."""
    counts: dict[int, int] = {}
    offsets: dict[int, list[int]] = {}
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
    draw, lines = _drawer(measure), _liner(measure)
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
        yield page.attach(partial(draw, layout), partial(lines, layout))


def _drawer(measure: Measure) -> Callable[[PageLayout, Page], NDArray[np.uint8]]:
    return lambda layout, page: draw_page(layout, measure)


def _liner(measure: Measure) -> Callable[[PageLayout, Page], tuple[LineBox, ...]]:
    return lambda layout, page: line_boxes(layout, measure)


def _content_hash(salt: bytes, layout: PageLayout) -> str:
    """Over everything the pixels depend on: text, style, fonts, renderer, and how this page's lines fell."""
    digest = hashlib.sha256(salt)
    digest.update(f" {layout.width_px} {layout.height_px} ".encode())
    digest.update(layout.line_starts.tobytes())
    digest.update(layout.tab_widths_sub.tobytes())
    digest.update(layout.levels.tobytes())
    digest.update(layout.text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), PIECE_CHARS):
        yield text[start : start + PIECE_CHARS]


def _read(path: Path) -> tuple[str, bytes]:
    if path.is_dir():
        raise InputError(f"'{path}' is a folder; give the path of one document")
    try:
        return path.name, path.read_bytes()
    except FileNotFoundError:
        raise DocumentNotFound(f"no document at '{path}'; give the path of a file, or - for standard input") from None
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {error.strerror}; check its permissions") from None


def _describe_missing(name: str, missing: tuple[MissingGlyph, ...], style: PageStyle) -> str:
    shown = ", ".join(f"{glyph.code_point} x{glyph.count}" for glyph in missing[:8])
    more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
    return (
        f"'{name}' holds {len(missing)} characters that no font of the chain ({', '.join(style.fonts)}) covers: "
        f"{shown}{more}; add a font that has them, or leave strict_glyphs off to draw boxes"
    )
