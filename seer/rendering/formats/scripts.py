"""Superscripts and subscripts as text: the same rule for every format that has them.

>>> "10" + raised("6"), "H" + lowered("2") + "O", "1" + raised("st"), "x" + raised("a+b")
('10⁶', 'H₂O', '1st', 'x^(a+b)')
"""

from __future__ import annotations

import re

_RAISED = str.maketrans("0123456789+-−=()n i".replace(" ", ""), "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾ⁿⁱ")
_LOWERED = str.maketrans("0123456789+-−=()", "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎")
_PLAIN = frozenset({"st", "nd", "rd", "th", "er", "re", "e", "è", "o", "a", "ª", "º", "me", "TM", "SM", "(TM)", "(R)"})
"""Raised letters that are ordinary spelling: ordinals and trademarks."""


def raised(text: str) -> str:
    """Return a superscript: in superscript characters if they exist, else after `^`. Ordinals and notes in brackets stay."""
    return _script(text, _RAISED, "^")


def lowered(text: str) -> str:
    """Return a subscript: in subscript characters if they exist, else after `_`."""
    return _script(text, _LOWERED, "_")


def grouped(text: str) -> str:
    """Return a part of a formula in brackets, unless it is one number or word, or has brackets."""
    return text if re.fullmatch(r"[\w.,]*|\([^()]*\)", text) else f"({text})"


def script_base(text: str) -> str:
    """Return what a script belongs to, in brackets if it holds an operator."""
    return f"({text})" if re.search(r"[-+−=/ ]", text) and not re.fullmatch(r"\([^()]*\)", text) else text


def _script(text: str, table: dict[int, int], mark: str) -> str:
    core = text.strip()
    if not core:
        return text
    if all(ord(character) in table for character in core):
        return text.replace(core, core.translate(table), 1)
    # A note such as [3] and a sign such as ® are told apart from the word before them without a mark.
    if (mark == "^" and core in _PLAIN) or not (core[0].isalnum() or core[0] in "+-−("):
        return text
    return text.replace(core, f"{mark}{core}" if len(core) == 1 else f"{mark}({core})", 1)
