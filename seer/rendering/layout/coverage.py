"""What to say about characters that no font of the chain covers: which they are, and which font has them."""

from __future__ import annotations

import unicodedata

from seer.schema import DocumentWarning, MissingGlyph, PageStyle

MISSING_GLYPH = "missing-glyph"
_FONTS = {
    **{"CJK": "Noto Sans CJK", "HANGUL": "Noto Sans KR", "HIRAGANA": "Noto Sans JP", "KATAKANA": "Noto Sans JP"},
    **{"LATIN": "Noto Sans", "GREEK": "Noto Sans", "CYRILLIC": "Noto Sans", "MATHEMATICAL": "Noto Sans Math"},
}
"""The Noto font of a script, by the first word of its characters' names. Most scripts have a font of their own name."""
_SCRIPTS = frozenset(
    {
        *(
            "ARABIC",
            "ARMENIAN",
            "BENGALI",
            "CHEROKEE",
            "COPTIC",
            "DEVANAGARI",
            "ETHIOPIC",
            "GEORGIAN",
            "GUJARATI",
            "GURMUKHI",
        ),
        *(
            "HEBREW",
            "JAVANESE",
            "KANNADA",
            "KHMER",
            "LAO",
            "MALAYALAM",
            "MONGOLIAN",
            "MYANMAR",
            "ORIYA",
            "SINHALA",
            "SYRIAC",
        ),
        *("TAMIL", "TELUGU", "THAANA", "THAI", "TIBETAN", "TIFINAGH"),
    }
)
_EMOJI_FROM = 0x1F000


def describe_missing(name: str, missing: tuple[MissingGlyph, ...], style: PageStyle) -> str:
    """Return the error message that lists missing characters."""
    return (
        f"'{name}' holds {len(missing)} characters that no font of the chain ({', '.join(style.fonts)}) covers: "
        f"{_listed(missing)}; {_remedy(missing)}, or draw boxes by leaving strict_glyphs off"
    )


def glyph_warnings(missing: tuple[MissingGlyph, ...]) -> tuple[DocumentWarning, ...]:
    """Return one warning about all missing characters, if there are any."""
    if not missing:
        return ()
    message = f"no font covers {_listed(missing)}: drawn as boxes with the code point; {_remedy(missing)}"
    return (DocumentWarning(kind=MISSING_GLYPH, message=message),)


def _listed(missing: tuple[MissingGlyph, ...]) -> str:
    """Return missing characters as a list, at most eight."""
    shown = ", ".join(f"{glyph.code_point} x{glyph.count}" for glyph in missing[:8])
    return shown + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")


def _remedy(missing: tuple[MissingGlyph, ...]) -> str:
    """Return how to draw the characters: the fonts that have them, and the option that takes one."""
    fonts = dict.fromkeys(font for glyph in missing if (font := font_for(int(glyph.code_point[2:], 16))))
    if not fonts:
        return "add a font that has them (--font NAME or a file)"
    named = ", ".join(list(fonts)[:3])
    return (
        f"add a font that has them, such as {named}: install it and name it with --font, or give the path of its file"
    )


def font_for(code: int) -> str:
    """Return the Noto font that draws a character, an empty string if its script has none of that name.

    >>> font_for(0x0E2A), font_for(0x1F389), font_for(0xE000)
    ('Noto Sans Thai', 'Noto Emoji', '')
    """
    script = unicodedata.name(chr(code), "").partition(" ")[0].partition("-")[0]
    if script in _FONTS:
        return _FONTS[script]
    if script in _SCRIPTS:
        return f"Noto Sans {script.capitalize()}"
    return "Noto Emoji" if code >= _EMOJI_FROM and unicodedata.category(chr(code)) == "So" else ""
