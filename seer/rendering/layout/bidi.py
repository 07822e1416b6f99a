"""Right-to-left text: embedding levels of a paragraph, and the visual order of a line (UAX #9). Pure.

    levels, base = paragraph_levels(codes)       # of one paragraph
    order = visual_order(levels)                 # of one line: order[k] is the k-th character from the left

Implemented: paragraph direction from the first strong letter, the weak rules, paired brackets, the neutral rules,
implicit levels, reordering. Explicit embedding and isolate controls, which plain text hardly uses, are passed over.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAMES = ("L", "R", "AL", "EN", "ES", "ET", "AN", "CS", "NSM", "BN", "B", "S", "WS", "ON")
L, R, AL, EN, ES, ET, AN, CS, NSM, BN, B, S, WS, ON = range(len(_NAMES))
_UNKNOWN = 255
_FIRST_RTL_CODE = 0x0590

_class_of_code = np.zeros(0, np.uint8)

MIRRORS = {
    ord(first): ord(second)
    for a, b in ("()", "[]", "{}", "<>", "«»", "‹›", "≤≥", "⟨⟩", "⟦⟧", "（）", "［］", "《》", "〈〉", "【】", "「」")
    for first, second in ((a, b), (b, a))
}
"""Characters that face the other way in right-to-left runs."""
_OPENING = {ord(character) for character in "([{⟨⟦（［《〈【「"}
"""Brackets that pair; the other mirrored characters do not."""
_BRACKETS = np.array([code for opening in _OPENING for code in (opening, MIRRORS[opening])], np.uint32)


_JOINED_NUMBERS = {(EN, ES, EN), (EN, CS, EN), (AN, CS, AN)}
"""One separator between two numbers of a kind is part of the number."""


def has_rtl(codes: NDArray[np.uint32]) -> bool:
    """Whether any character runs from right to left; quick for text that has none."""
    high = codes.take((codes >= _FIRST_RTL_CODE).nonzero()[0])
    if not len(high):
        return False
    kinds = bidi_classes(high)
    return bool(((kinds == R) | (kinds == AL) | (kinds == AN)).any())


def bidi_classes(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """The bidirectional class of each code point; explicit controls count as BN. A table fills as it is used."""
    global _class_of_code
    if not len(_class_of_code):
        _class_of_code = np.full(0x110000, _UNKNOWN, np.uint8)
    found = _class_of_code.take(codes)
    unknown = codes[found == _UNKNOWN]
    if len(unknown):
        new = np.unique(unknown)
        _class_of_code[new] = [_classify(code) for code in new.tolist()]
        found = _class_of_code.take(codes)
    return found


def _classify(code: int) -> int:
    name = unicodedata.bidirectional(chr(code)) or "L"
    return _NAMES.index(name) if name in _NAMES else BN


def paragraph_levels(codes: NDArray[np.uint32]) -> tuple[NDArray[np.uint8], int]:
    """(level of each character, level of the paragraph): even levels run left to right, odd ones right to left."""
    kinds = bidi_classes(codes)
    # Stretches of one class are resolved as one; a bracket is a stretch of its own.
    brackets = (kinds == ON) & np.isin(codes, _BRACKETS)
    edges = np.flatnonzero((kinds[1:] != kinds[:-1]) | brackets[1:] | brackets[:-1]) + 1
    starts = np.concatenate(([0], edges))
    lengths = np.diff(np.concatenate((starts, [len(codes)])))
    types = kinds[starts].tolist()
    base = next((0 if kind == L else 1 for kind in types if kind in (L, R, AL)), 0)
    edge = R if base else L
    _resolve_weak(types, lengths.tolist(), edge)
    _resolve_brackets(types, _bracket_pairs(codes[starts].tolist(), types), edge)
    _resolve_neutral(types, edge)
    resolved = np.repeat(np.array(types, np.uint8), lengths)
    levels = np.full(len(codes), base, np.uint8)
    if base:
        levels[(resolved == L) | (resolved == EN) | (resolved == AN)] = 2
    else:
        levels[resolved == R] = 1
        levels[(resolved == EN) | (resolved == AN)] = 2
    return levels, base


def _resolve_weak(types: list[int], lengths: list[int], edge: int) -> None:
    """Rules W1 to W7, in place, over stretches of one class and their lengths."""
    strong, previous = edge, edge
    for k, kind in enumerate(types):
        if kind in (NSM, BN):  # W1; a BN takes no part, and goes with what stands before it
            types[k] = kind = previous
        if kind == EN and strong == AL:  # W2
            types[k] = kind = AN
        if kind in (L, R, AL):
            strong = kind
        previous = kind
    num = len(types)
    for k, kind in enumerate(types):
        if kind == AL:  # W3
            types[k] = R
        elif lengths[k] == 1 and 0 < k < num - 1 and (types[k - 1], kind, types[k + 1]) in _JOINED_NUMBERS:  # W4
            types[k] = types[k - 1]
    k = 0
    while k < num:  # W5
        end = k
        while end < num and types[end] == ET:
            end += 1
        if end > k and EN in types[max(0, k - 1) : k] + types[end : end + 1]:
            types[k:end] = [EN] * (end - k)
        k = max(end, k + 1)
    strong = edge
    for k, kind in enumerate(types):
        if kind in (ES, ET, CS):  # W6
            types[k] = ON
        elif kind == EN and strong == L:  # W7
            types[k] = L
        elif kind in (L, R):
            strong = kind


def _bracket_pairs(codes: list[int], types: list[int]) -> list[tuple[int, int]]:
    """Places of opening and closing brackets that belong together, in order of the opening ones (BD16)."""
    pairs, open_brackets = [], []
    for k, code in enumerate(codes):
        if types[k] != ON:
            continue
        if code in _OPENING:
            open_brackets.append(k)
            continue
        for depth in range(len(open_brackets) - 1, -1, -1):
            if MIRRORS[codes[open_brackets[depth]]] == code:
                pairs.append((open_brackets[depth], k))
                del open_brackets[depth:]
                break
    return sorted(pairs)


def _resolve_brackets(types: list[int], pairs: list[tuple[int, int]], edge: int) -> None:
    """Rule N0, in place: a pair takes the paragraph's direction if any letter within has it, else that of its inside
    where the text before agrees."""
    for first, last in pairs:
        inside = {L if kind == L else R for kind in types[first + 1 : last] if kind in (L, R, EN, AN)}
        if not inside:
            continue
        direction = edge
        if edge not in inside:
            before = next((L if kind == L else R for kind in reversed(types[:first]) if kind in (L, R, EN, AN)), edge)
            direction = before
        types[first] = types[last] = direction


def _resolve_neutral(types: list[int], edge: int) -> None:
    """Rules N1 and N2, in place: neutrals take the direction on both their sides, or the paragraph's."""
    num, k, before = len(types), 0, edge
    while k < num:
        if types[k] not in (B, S, WS, ON):
            before = L if types[k] == L else R
            k += 1
            continue
        end = k
        while end < num and types[end] in (B, S, WS, ON):
            end += 1
        after = edge if end == num else L if types[end] == L else R
        types[k:end] = [before if before == after else edge] * (end - k)
        k = end


def visual_order(levels: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Rule L2 for one line: positions of its characters from left to right.

    A reversal keeps its stretch of positions, so the stretches of lower levels may be read off the logical order.
    """
    order = np.arange(len(levels))
    highest = int(levels.max(initial=0))
    for level in range(highest, 0, -1):
        mask = np.concatenate(([False], levels >= level, [False]))
        edges = np.flatnonzero(mask[1:] != mask[:-1])
        for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            order[first:last] = order[first:last][::-1].copy()
    return order
