"""Characters of symbol fonts, whose codes say nothing without the font."""

from __future__ import annotations

_WINGDINGS = dict(
    zip(
        bytes.fromhex("22282a2f3236464a4c6c6e6f70717576777aa1a4a6a7a8abd8dfe0e1e2e8effbfcfdfe"),
        "✂☎✉⌨⧗⌚☞☺☹●■□❐❑⬥❖⬩⌘○◉○▪◻★➢←→↑↓➔⇦✗✓☒☑",
        strict=True,
    )
)
_WINGDINGS_2 = {0x4F: "✗", 0x50: "✓", 0x51: "☒", 0x52: "☑", 0x53: "☒", 0x54: "☒", 0xA3: "☐", 0x97: "●", 0x98: "●"}
_GREEK = "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ"
_SYMBOL = {
    **{0x41 + n: letter for n, letter in enumerate(_GREEK)},
    **{0x61 + n: letter for n, letter in enumerate("αβχδεφγηιϕκλμνοπθρστυϖωξψζ")},
    **{0x22: "∀", 0x24: "∃", 0x27: "∋", 0x2A: "∗", 0x2D: "−", 0x40: "≅", 0x5E: "⊥", 0x7E: "∼"},
    **{0xA3: "≤", 0xA5: "∞", 0xAB: "↔", 0xAC: "←", 0xAD: "↑", 0xAE: "→", 0xAF: "↓", 0xB0: "°", 0xB1: "±", 0xB2: "″"},
    **{0xB3: "≥", 0xB4: "×", 0xB5: "∝", 0xB6: "∂", 0xB7: "•", 0xB8: "÷", 0xB9: "≠", 0xBA: "≡", 0xBB: "≈", 0xBC: "…"},
    **{0xC5: "⊕", 0xC7: "∩", 0xC8: "∪", 0xCC: "⊂", 0xCD: "⊆", 0xCE: "∈", 0xCF: "∉", 0xD0: "∠", 0xD1: "∇", 0xD2: "®"},
    **{0xD3: "©", 0xD4: "™", 0xD5: "∏", 0xD6: "√", 0xD7: "⋅", 0xD8: "¬", 0xD9: "∧", 0xDA: "∨", 0xDB: "⇔", 0xDE: "⇒"},
    **{0xE5: "∑", 0xF2: "∫"},
}
_FONTS = {"wingdings": _WINGDINGS, "wingdings 2": _WINGDINGS_2, "symbol": _SYMBOL}


def symbol(font: str, code: int) -> str | None:
    """Return the character that a code shows in a font; None if that is not known.

    Codes of symbol fonts lie in the private use area, F000 to F0FF, or are given without the F0.
    """
    low = code & 0xFF if 0xF000 <= code <= 0xF0FF else code
    table = _FONTS.get(font.strip().lower())
    if table is not None:
        return table.get(low)
    is_private = 0xE000 <= code <= 0xF8FF or not 0x20 <= code < 0x110000 or 0xD800 <= code <= 0xDFFF
    return None if is_private else chr(code)


def in_font(text: str, font: str) -> str:
    """Return text that is set in a symbol font as the characters that it shows; other text unchanged."""
    if font.strip().lower() not in _FONTS:
        return text
    return "".join(symbol(font, ord(character)) or character for character in text)
