"""The Unicode bidirectional algorithm (UAX #9) for text that mixes left-to-right and right-to-left scripts.

    levels, base = paragraph_levels(codes)       # codes: uint32 (characters,) of one paragraph
    order = visual_order(levels[line])           # order[k] is the k-th character of the line from the left

The module is pure: code points in, embedding levels and orders out. It implements the paragraph direction (P2, P3),
the weak rules (W1 to W7), paired brackets (N0), the neutral rules (N1, N2), the implicit levels (I1, I2) and the
reordering (L2). Rule L1 is applied by `placing`, which knows where lines end. `seer.rendering.layout.embedding` has the rules of
explicit embeddings and isolates (X1 to X10), which hardly any paragraph needs.

Rule names in the comments below are those of https://www.unicode.org/reports/tr9/.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import numpy as np

from seer.rendering.layout import embedding

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAMES = ("L", "R", "AL", "EN", "ES", "ET", "AN", "CS", "NSM", "BN", "B", "S", "WS", "ON")
L, R, AL, EN, ES, ET, AN, CS, NSM, BN, B, S, WS, ON = range(len(_NAMES))
_UNKNOWN = 255
_FIRST_RTL_CODE = 0x0590

_ISOLATE_CODES = frozenset(range(0x2066, 0x206A))
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
    # Controls, invisible characters and marks on brackets have rules for single characters.
    if (char_types == BN).any() or ((char_types[1:] == NSM) & brackets[:-1]).any():
        return _explicit_levels(codes.tolist())
    edges = np.flatnonzero((char_types[1:] != char_types[:-1]) | brackets[1:] | brackets[:-1]) + 1
    starts = np.concatenate(([0], edges))
    lengths = np.diff(np.concatenate((starts, [len(codes)])))
    types = char_types[starts].tolist()
    # P2, P3: the first strong letter decides the paragraph's direction.
    base = next((0 if kind == L else 1 for kind in types if kind in (L, R, AL)), 0)
    # Without embeddings the paragraph is one level run; sos and eos have the paragraph's direction.
    edge = R if base else L
    _resolve_weak(types, lengths.tolist(), edge)
    _resolve_brackets(types, _bracket_pairs(codes[starts].tolist(), types), edge, edge)
    _resolve_neutral(types, edge, edge, edge)
    # I1, I2: letters against the paragraph's direction go one level up, numbers in left-to-right text go two.
    resolved = np.repeat(np.array(types, np.uint8), lengths)
    levels = np.full(len(codes), base, np.uint8)
    if base:
        levels[(resolved == L) | (resolved == EN) | (resolved == AN)] = 2
    else:
        levels[resolved == R] = 1
        levels[(resolved == EN) | (resolved == AN)] = 2
    return levels, base


def _explicit_levels(codes: list[int]) -> tuple[NDArray[np.uint8], int]:
    """Resolve a paragraph with explicit controls: the rules run over each isolating run sequence."""
    base = embedding.base_level(codes)
    levels, overridden = embedding.embedding_levels(codes, base)
    for places, before, after in embedding.isolating_runs(codes, levels, base):
        level = levels[places[0]]
        direction, first, last = (R if value % 2 else L for value in (level, before, after))
        original = [
            _NAMES.index(overridden[k]) if overridden[k] else ON if codes[k] in _ISOLATE_CODES else _classify(codes[k])
            for k in places
        ]
        types = list(original)
        for k in range(1, len(types)):  # W1 for marks after isolates; the others are resolved below
            if types[k] == NSM and codes[places[k - 1]] in _ISOLATE_CODES:
                types[k] = ON
        _resolve_weak(types, [1] * len(types), first)
        own = [codes[k] for k in places]
        changed = _resolve_brackets(types, _bracket_pairs(own, types), direction, first)
        for k in changed:  # N0: marks on a bracket go with it
            for mark in range(k + 1, len(types)):
                if original[mark] != NSM:
                    break
                types[mark] = types[k]
        _resolve_neutral(types, direction, first, last)
        for k, kind in zip(places, types, strict=True):  # I1, I2
            if level % 2:
                levels[k] += kind != R
            else:
                levels[k] += {R: 1, EN: 2, AN: 2}.get(kind, 0)
    # A removed character is not seen; it goes with the one before it.
    for k, code in enumerate(codes):
        if embedding.is_removed(code):
            levels[k] = levels[k - 1] if k else base
    return np.array(levels, np.uint8), base


def _resolve_weak(types: list[int], lengths: list[int], edge: int) -> None:
    """Apply rules W1 to W7 to `types` in place; `lengths` are the stretches' lengths, `edge` the class before them."""
    strong, previous = edge, edge
    for k, kind in enumerate(types):
        if kind == NSM:  # W1
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


def _resolve_brackets(types: list[int], pairs: list[tuple[int, int]], edge: int, start: int) -> list[int]:
    """Apply rule N0 to `types` in place, pair by pair; return the places of the brackets that have a direction now.

    `edge` is the direction of the text, `start` the class before it.

    A pair takes the paragraph's direction if it encloses a strong type of that direction. If it encloses only the
    opposite direction, it takes that direction when the strong type before the pair agrees, else the paragraph's.
    """
    changed = []
    for first, last in pairs:
        inside = {L if kind == L else R for kind in types[first + 1 : last] if kind in (L, R, EN, AN)}
        if not inside:
            continue
        direction = edge
        if edge not in inside:
            # N0 c: only the opposite direction occurs inside, so the context before the pair decides.
            before = next((L if kind == L else R for kind in reversed(types[:first]) if kind in (L, R, EN, AN)), start)
            direction = before
        types[first] = types[last] = direction
        changed += [first, last]
    return changed


def _resolve_neutral(types: list[int], edge: int, start: int, end_type: int) -> None:
    """Apply rules N1 and N2 to `types` in place; `start` and `end_type` are the classes before and after them.

    Neutral types between two strong types of the same direction take that direction (N1); all others take the
    paragraph's direction (N2). Numbers count as right-to-left, so only L is left-to-right here.
    """
    num, k, before = len(types), 0, start
    while k < num:
        if types[k] not in (B, S, WS, ON):
            before = L if types[k] == L else R
            k += 1
            continue
        end = k
        while end < num and types[end] in (B, S, WS, ON):
            end += 1
        after = end_type if end == num else L if types[end] == L else R
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
