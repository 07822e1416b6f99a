"""Characters of symbol fonts, whose codes say nothing without the font."""

from __future__ import annotations


def _from(start: int, characters: str) -> dict[int, str]:
    """Number the characters from `start`; a dot leaves a code out."""
    return {start + k: character for k, character in enumerate(characters) if character != "."}


# The mapping is that of Unicode's documents on Wingdings; where the fonts of most readers lack the exact character, a similar one
# that they have stands for it.
_WINGDINGS = {
    **_from(0x21, "✎✂✁👓🕭🕮🕯☎✆✉🖃📪📫📬📭📁📂📄🗏🗐🗄⌛⌨🖰🖲🖳🖴🖫🖬✇✍🖎✌👌👍👎☜☞☝☟🖐☺😐☹💣☠🏳🏱✈☼💧❄🕆✞🕈✠✡☪☯ॐ☸"),
    **_from(0x5E, "♈♉♊♋♌♍♎♏♐♑♒♓&&●❍■□◻❑❒⬧⧫◆❖⬥⌧⮹⌘🏵🏶❝❞"),
    **_from(0x80, "⓪①②③④⑤⑥⑦⑧⑨⑩⓿❶❷❸❹❺❻❼❽❾❿"),
    **_from(0x9E, "·•▪○○○◉◎❍▪◻✦✦★✶✴✹✷⯐⌖⟡⌑⯑✪✰🕐🕑🕒🕓🕔🕕🕖🕗🕘🕙🕚🕛"),
    **_from(0xD5, "⌫⌦➢➢➢➢➲➲➲➲←→↑↓↖↗↙↘⬅➔⬆⬇⬉⬈⬋⬊⇦⇨⇧⇩⬄⇳⬀⬁⬃⬂▭▫✗✓☒☑"),
}
_WINGDINGS_2 = {
    **_from(0x4F, "✗✓☒☑☒☒"),
    **_from(0x69, "⓪①②③④⑤⑥⑦⑧⑨⑩⓿❶❷❸❹❺❻❼❽❾❿"),
    **_from(0x95, "•••●⬤"),
    **_from(0xA0, "▪■■☐"),
}
_WINGDINGS_3 = {**_from(0x66, "←→↑↓↖↗↙↘↔↕▲▼△▽◀▶◁▷◣◢◤◥◀▶")}
_WEBDINGS = {
    0x33: "◀",
    0x34: "▶",
    0x35: "▲",
    0x36: "▼",
    0x59: "♥",
    0x61: "✔",
    0x63: "□",
    0x67: "■",
    0x69: "ℹ",
    0x6E: "●",
    0x72: "✖",
}
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
_FONTS = {
    "wingdings": _WINGDINGS,
    "wingdings 2": _WINGDINGS_2,
    "wingdings 3": _WINGDINGS_3,
    "webdings": _WEBDINGS,
    "symbol": {
        **{code: chr(code) for code in range(0x20, 0x41)},
        0x5B: "[",
        0x5D: "]",
        0x5F: "_",
        **_from(0x7B, "{|}"),
        **_SYMBOL,
    },
}
UNKNOWN = "□"
"""Written for a symbol whose character is not known."""


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
    """Return text that is set in a symbol font as the characters that it shows, UNKNOWN where that is not known.

    Other text is returned unchanged.
    """
    if font.strip().lower() not in _FONTS:
        return text
    return "".join(character if character.isspace() else symbol(font, ord(character)) or UNKNOWN for character in text)
