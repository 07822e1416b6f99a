"""Font chains: which font draws a character, and how wide the character is.

    chain = load_chain(("DejaVuSans", "DroidSansFallback"))
    entry = chain.entries(code_points)       # int32 (characters,)
    chain.slot[entry], chain.advance_em[entry]

A character's *entry* indexes dense tables, so that measuring a text is two array look-ups. A *slot* names one glyph
of one font across the chain (`font_base[k] + glyph id`); the first slots are not font glyphs:

| slot        | drawn as                                                            |
|-------------|---------------------------------------------------------------------|
| BLANK       | nothing: spaces, zero-width characters, newlines                    |
| NEWLINE     | the mark for a source newline in styles with `newline="mark"`       |
| MISSING + c | a box with the code point c, which no font of the chain covers      |

HarfBuzz reads the files and draws TrueType, CFF and variable outlines by glyph id, without hinting.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.errors import DocumentNotFound, InputError
from seer.rendering.layout.systemfonts import find_system_font

if TYPE_CHECKING:
    from numpy.typing import NDArray

DATA_DIR = Path(__file__).parents[1] / "data" / "fonts"
NUM_CODE_POINTS = 0x110000

BLANK = 0
NEWLINE = 1
FIRST_GLYPH = 2
MISSING = 1 << 24
"""Slots from this value on are boxes: MISSING + code point."""

# Entries that every chain reserves before the entries of its characters.
MISSING_ENTRIES = (4, 5, 6)
"""Entries 0, 1 and 2 are missing characters whose code points have this many hexadecimal digits."""
ZERO_WIDTH_ENTRY = 3
_FIRST_CHARACTER_ENTRY = 4

_ZERO_WIDTH_RANGES = (
    (0x0009, 0x000D),  # tab and newlines, whose width the layout decides
    (0x0085, 0x0085),
    (0x00AD, 0x00AD),  # soft hyphen
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x2028, 0x202E),
    (0x2060, 0x206F),
    (0xFE00, 0xFE0F),  # variation selectors
    (0xFEFF, 0xFEFF),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),  # tags and further variation selectors
)
"""Unicode's default-ignorable characters and the controls that only move the pen. They stay in the text but are not
drawn."""

_SPACE_WIDTH_EM = {
    0x0020: 0.318, 0x00A0: 0.318, 0x1680: 0.5, 0x2000: 0.5, 0x2001: 1.0, 0x2002: 0.5, 0x2003: 1.0, 0x2004: 0.333,
    0x2005: 0.25, 0x2006: 0.167, 0x2007: 0.636, 0x2008: 0.318, 0x2009: 0.2, 0x200A: 0.1, 0x202F: 0.2, 0x205F: 0.222,
    0x3000: 1.0,
}  # fmt: skip
"""Width of each white-space character that no font of the chain has. White space never counts as missing."""


@dataclass(frozen=True)
class Font:
    """An open font file. `face` and `font` are HarfBuzz objects; `font` is scaled to font units."""

    name: str
    path: Path
    digest: str
    upem: int
    ascent_em: float
    descent_em: float
    """Depth below the baseline, positive."""
    face: Any
    font: Any


class FontChain:
    """Fonts in order of preference. The first font that has a glyph for a character draws it.

    Attributes:
        font_base: the first slot of each font.
        font_index: int8 (entries,), the font that draws each entry; -1 if none does.
        slot: int64 (entries,), the slot drawn for each entry.
        advance_em: float64 (entries,), the advance width of each entry in em.
    """

    def __init__(self, fonts: tuple[Font, ...]) -> None:
        self.fonts = fonts
        self.digest = hashlib.sha256("".join(font.digest for font in fonts).encode()).hexdigest()[:12]
        self.font_base: list[int] = []
        self._entry_of_code = np.zeros(NUM_CODE_POINTS, np.int32)
        self._entry_of_code[0x10000:0x100000] = 1
        self._entry_of_code[0x100000:] = 2
        self._fill()

    def _fill(self) -> None:
        """Number the characters of all fonts and build the tables that entries index."""
        slots: list[NDArray[np.int64]] = [np.full(_FIRST_CHARACTER_ENTRY, BLANK, np.int64)]
        advances: list[NDArray[np.float64]] = [
            np.zeros(_FIRST_CHARACTER_ENTRY)  # the width of a box depends on the font size: see Measure
        ]
        owners = [np.full(_FIRST_CHARACTER_ENTRY, -1, np.int8)]
        for first, last in _ZERO_WIDTH_RANGES:
            self._entry_of_code[first : last + 1] = ZERO_WIDTH_ENTRY
        next_entry, base = _FIRST_CHARACTER_ENTRY, FIRST_GLYPH
        for index, font in enumerate(self.fonts):
            self.font_base.append(base)
            codes = np.fromiter(font.face.unicodes, np.int64)
            # An earlier font of the chain wins; control characters never have a glyph.
            codes = codes[(self._entry_of_code[codes] < ZERO_WIDTH_ENTRY) & (codes >= 32)]
            glyphs = np.fromiter((font.font.get_nominal_glyph(code) or 0 for code in codes.tolist()), np.int32)
            codes, glyphs = codes[glyphs > 0], glyphs[glyphs > 0]
            units = np.fromiter((font.font.get_glyph_h_advance(glyph) for glyph in glyphs.tolist()), np.float64)
            self._entry_of_code[codes] = next_entry + np.arange(len(codes))
            slots.append(np.where(np.isin(codes, list(_SPACE_WIDTH_EM)), BLANK, base + glyphs).astype(np.int64))
            advances.append(units / font.upem)
            owners.append(np.full(len(codes), index, np.int8))
            next_entry += len(codes)
            base += int(font.face.glyph_count)
        # White space that no font covers gets an entry with a default width.
        for code, width_em in _SPACE_WIDTH_EM.items():
            if self._entry_of_code[code] < ZERO_WIDTH_ENTRY:
                self._entry_of_code[code] = next_entry
                slots.append(np.array([BLANK], np.int64))
                advances.append(np.array([width_em]))
                owners.append(np.array([-1], np.int8))
                next_entry += 1
        self.num_slots = base
        self.font_index = np.concatenate(owners)
        self.slot = np.concatenate(slots)
        self.advance_em = np.concatenate(advances)

    def entries(self, codes: NDArray[np.uint32]) -> NDArray[np.int32]:
        """Return the entry of each code point as int32 (characters,).

        Entries below ZERO_WIDTH_ENTRY are characters that no font covers.
        """
        return self._entry_of_code.take(codes)

    def locate(self, slot: int) -> tuple[Font, int]:
        """Return the font and the glyph id of a slot."""
        index = self.locate_index(slot)
        return self.fonts[index], slot - self.font_base[index]

    def locate_index(self, slot: int) -> int:
        """Return the index in the chain of the font that a slot belongs to."""
        return max(k for k, base in enumerate(self.font_base) if base <= slot)

    def covers(self, character: str) -> bool:
        """Return whether the chain can set `character`: a font has it, or it is white space or of zero width."""
        return bool(self._entry_of_code[ord(character)] >= ZERO_WIDTH_ENTRY)

    @cached_property
    def newline_mark(self) -> str:
        """The character drawn for a source newline: the first of ↵, ¶ and | that the chain covers."""
        return next((mark for mark in "↵¶|" if self.covers(mark)), "|")

    @cached_property
    def newline_slot(self) -> int:
        """The slot of `newline_mark`."""
        return int(self.slot[self._entry_of_code[ord(self.newline_mark)]])


@lru_cache(maxsize=8)
def load_chain(names: tuple[str, ...]) -> FontChain:
    """Open a chain of fonts. Each name is that of a bundled or installed font, or the path of a .ttf, .otf or .ttc file.

    Raises DocumentNotFound if a path does not exist. Raises InputError if the chain is empty, a name is unknown, or a
    file cannot be read as a font.
    """
    if not names:
        raise InputError("the font chain is empty; name at least one font, e.g. fonts=('DejaVuSans',)")
    return FontChain(tuple(load_font(name) for name in names))


@cache
def load_font(name: str) -> Font:
    """Open one font by the name of a bundled or installed font, or a path. Raises the errors of `load_chain`."""
    import uharfbuzz as hb

    path = _font_path(name)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"font '{path}' cannot be read: {error.strerror}; check its permissions or use another font file"
        ) from None
    # HarfBuzz draws a variable font at its default instance.
    face = hb.Face(hb.Blob(data))
    if not face.glyph_count or not len(face.unicodes):
        raise InputError(f"'{path}' is not a readable font; use a .ttf, .otf or .ttc file")
    font = hb.Font(face)
    extents = font.get_font_extents("ltr")
    return Font(
        name=name,
        path=path,
        digest=hashlib.sha256(data).hexdigest()[:16],
        upem=face.upem,
        ascent_em=extents.ascender / face.upem,
        descent_em=-extents.descender / face.upem,
        face=face,
        font=font,
    )


def bundled_fonts() -> list[str]:
    """Return the names of the fonts that come with Seer, sorted."""
    return sorted(path.stem for path in DATA_DIR.glob("*.?t?"))


def _font_path(name: str) -> Path:
    """Find a font by its name, bundled before installed, or check the path of a font file."""
    if "/" in name or "\\" in name or Path(name).suffix.lower() in {".ttf", ".otf", ".ttc", ".woff", ".woff2"}:
        path = Path(name).expanduser()
        if not path.is_file():
            raise DocumentNotFound(f"no font file at '{name}': use the path of a .ttf, .otf or .ttc file")
        return path
    path = DATA_DIR / f"{name}.ttf"
    if path.is_file():
        return path
    installed = find_system_font(name)
    if installed is None:
        raise InputError(
            f"font '{name}' is neither bundled ({', '.join(bundled_fonts())}) nor installed on this system; install it "
            "or use the path of a font file"
        )
    return installed
