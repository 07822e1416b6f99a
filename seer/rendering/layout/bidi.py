"""The Unicode bidirectional algorithm (UAX #9) for text that mixes left-to-right and right-to-left scripts.

    levels, base = paragraph_levels(codes)       # codes: uint32 (characters,) of one paragraph
    order = visual_order(levels[line])           # order[k] is the k-th character of the line from the left

The module is pure: code points in, embedding levels and orders out. It implements the paragraph direction (P2, P3),
the weak rules (W1 to W7), paired brackets (N0), the neutral rules (N1, N2), the implicit levels (I1, I2) and the
reordering (L2). Rule L1 is applied by `placing`, which knows where lines end. Explicit embedding and isolate controls
are treated as BN and have no effect, because plain text hardly uses them.

Rule names in the comments below are those of https://www.unicode.org/reports/tr9/.
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
"""Code point of each character with a mirrored counterpart, mapped to that counterpart (both directions)."""
_OPENING = {ord(character) for character in "([{⟨⟦（［《〈【「"}
"""Opening brackets that rule N0 pairs. The other mirrored characters, such as quotation marks, do not form pairs."""
_BRACKETS = np.array([code for opening in _OPENING for code in (opening, MIRRORS[opening])], np.uint32)

_JOINED_NUMBERS = {(EN, ES, EN), (EN, CS, EN), (AN, CS, AN)}
"""Rule W4: a single separator between two numbers of the same type becomes part of the number."""


def has_rtl(codes: NDArray[np.uint32]) -> bool:
    """Return whether any of the code points is written from right to left.

    Text without code points from U+0590 on, the common case, is answered by a single comparison of the array.
    """
    high = codes.take((codes >= _FIRST_RTL_CODE).nonzero()[0])
    if not len(high):
        return False
    types = bidi_classes(high)
    return bool(((types == R) | (types == AL) | (types == AN)).any())


def bidi_classes(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Return the bidirectional class of each code point as uint8 (characters,); explicit controls count as BN.

    Classes are looked up in a table over all code points, which is filled when a code point first occurs.
    """
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
    """Return the bidirectional class of one code point; unassigned ones count as L."""
    name = unicodedata.bidirectional(chr(code)) or "L"
    return _NAMES.index(name) if name in _NAMES else BN


def paragraph_levels(codes: NDArray[np.uint32]) -> tuple[NDArray[np.uint8], int]:
    """Resolve the embedding levels of one paragraph.

    Args:
        codes: uint32 (characters,) code points of the paragraph; at least one.

    Returns:
        The level of each character, uint8 (characters,), and the level of the paragraph, 0 or 1. Characters with an
        even level run from left to right, those with an odd level from right to left.
    """
    char_types = bidi_classes(codes)
    # All rules treat a stretch of equal classes as a unit, so they run over stretches, which are far fewer than
    # characters. A bracket is always a stretch by itself, because N0 pairs single brackets.
    brackets = (char_types == ON) & np.isin(codes, _BRACKETS)
    edges = np.flatnonzero((char_types[1:] != char_types[:-1]) | brackets[1:] | brackets[:-1]) + 1
    starts = np.concatenate(([0], edges))
    lengths = np.diff(np.concatenate((starts, [len(codes)])))
    types = char_types[starts].tolist()
    # P2, P3: the first strong letter decides the paragraph's direction.
    base = next((0 if kind == L else 1 for kind in types if kind in (L, R, AL)), 0)
    # Without embeddings the paragraph is one level run; sos and eos have the paragraph's direction.
    edge = R if base else L
    _resolve_weak(types, lengths.tolist(), edge)
    _resolve_brackets(types, _bracket_pairs(codes[starts].tolist(), types), edge)
    _resolve_neutral(types, edge)
    # I1, I2: letters against the paragraph's direction go one level up, numbers in left-to-right text go two.
    resolved = np.repeat(np.array(types, np.uint8), lengths)
    levels = np.full(len(codes), base, np.uint8)
    if base:
        levels[(resolved == L) | (resolved == EN) | (resolved == AN)] = 2
    else:
        levels[resolved == R] = 1
        levels[(resolved == EN) | (resolved == AN)] = 2
    return levels, base


def _resolve_weak(types: list[int], lengths: list[int], edge: int) -> None:
    """Apply rules W1 to W7 to `types` in place; `lengths` are the stretches' lengths, `edge` the class before them."""
    strong, previous = edge, edge
    for k, kind in enumerate(types):
        if kind in (NSM, BN):  # W1; a BN is ignored by UAX #9, so it takes the class before it
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
    """Return the indices of matching opening and closing brackets, ordered by the opening one (BD16).

    A closing bracket matches the nearest open bracket of its type; brackets opened in between stay unpaired.
    """
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
    """Apply rule N0 to `types` in place, pair by pair.

    A pair takes the paragraph's direction if it encloses a strong type of that direction. If it encloses only the
    opposite direction, it takes that direction when the strong type before the pair agrees, else the paragraph's.
    """
    for first, last in pairs:
        inside = {L if kind == L else R for kind in types[first + 1 : last] if kind in (L, R, EN, AN)}
        if not inside:
            continue
        direction = edge
        if edge not in inside:
            # N0 c: only the opposite direction occurs inside, so the context before the pair decides.
            before = next((L if kind == L else R for kind in reversed(types[:first]) if kind in (L, R, EN, AN)), edge)
            direction = before
        types[first] = types[last] = direction


def _resolve_neutral(types: list[int], edge: int) -> None:
    """Apply rules N1 and N2 to `types` in place.

    Neutral types between two strong types of the same direction take that direction (N1); all others take the
    paragraph's direction (N2). Numbers count as right-to-left, so only L is left-to-right here.
    """
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
    """Reorder one line for display (rule L2).

    Args:
        levels: uint8 (characters,) embedding levels of the line, after rule L1.

    Returns:
        int64 (characters,): the index of the k-th character from the left.
    """
    order = np.arange(len(levels))
    highest = int(levels.max(initial=0))
    for level in range(highest, 0, -1):
        # A reversal permutes positions only within its stretch. The stretches of lower levels contain it whole, so
        # their edges can be read from the levels in logical order.
        mask = np.concatenate(([False], levels >= level, [False]))
        edges = np.flatnonzero(mask[1:] != mask[:-1])
        for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            order[first:last] = order[first:last][::-1].copy()
    return order
