"""Unicode line breaking (UAX #14) over arrays of code points.

    break_classes = classes(codes)                                       # codes: uint32 (characters,)
    allowed = break_opportunities(codes, break_classes, "unicode")       # bool (characters,): may a line begin here?

Each code point has a class. A pair table states whether a line may break between two classes that are adjacent or
separated by spaces only. The classes come from Python's Unicode data and the lists below, so the package needs no
data file. The module is pure.

It deviates from UAX #14 on purpose in four places:

- Soft hyphens offer no break, because no hyphen would be drawn there.
- South-East Asian scripts, which need a dictionary, break at spaces. A run wider than a line breaks by width.
- A slash after a space may begin a line, as paths do in code and logs.
- A run of emoji flags does not break.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAMES = [
    "BK",
    "SP",
    "ZW",
    "GL",
    "CM",
    "OP",
    "OW",
    "CL",
    "CP",
    "EX",
    "QU",
    "QI",
    "QF",
    "NS",
    "IS",
    "SY",
    "PR",
    "PO",
    "NU",
    "AL",
    "ID",
    "IN",
    "HY",
    "BA",
    "BB",
    "B2",
    "RI",
]
(BK, SP, ZW, GL, CM, OP, OW, CL, CP, EX, QU, QI, QF, NS, IS, SY, PR, PO, NU, AL, ID, IN, HY, BA, BB, B2, RI) = range(27)
"""The classes of UAX #14 that the rules below need.

OP is split into narrow (OP) and wide (OW) opening marks, QU into plain (QU), initial (QI) and final (QF) quotes."""

NEVER, AFTER_SPACES, ALWAYS, GAP = 0, 1, 2, 3
"""Values of the pair table: a line may break never, only after spaces, or always between two classes.

GAP marks a pair whose first class is a space. The class before the spaces then decides."""

_ROW = 32
"""Row length of the flattened pair table: a power of two above the number of classes."""
_UNKNOWN = 255
_TAB = 9
_ZWJ = 0x200D

_CLASS_OF: dict[str, int] = {
    **dict.fromkeys("\n\r\v\f\x85\u2028\u2029", BK),
    **dict.fromkeys(" \u3000", SP),
    "\u200b": ZW,
    **dict.fromkeys("\u00a0\u202f\u2007\u2011\u2060\ufeff\u035c\u0f0c", GL),
    **dict.fromkeys("\u00ad\u200c\u200d", CM),
    **dict.fromkeys(")]", CP),
    **dict.fromkeys("}、。，．｡､﹐﹑﹒", CL),
    **dict.fromkeys("!?！？﹖﹗", EX),
    **dict.fromkeys("\"'", QU),
    **dict.fromkeys(",.:;", IS),
    "/": SY,
    **dict.fromkeys("%¢°‰‱′″‴℃℉％￠", PO),
    **dict.fromkeys("+\\±№−∓", PR),
    **dict.fromkeys("․‥…︙", IN),
    "-": HY,
    **dict.fromkeys(
        "\t|\u2010\u2012\u2013\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009\u200a\u205f", BA
    ),
    "\u00b4": BB,
    "\u2014": B2,
    # Kinsoku: a line must not begin with these.
    **dict.fromkeys("：；・‼⁇⁈⁉ゝゞヽヾ々〻〜〽゛゜･ﾞﾟ", NS),
    **dict.fromkeys("ーぁぃぅぇぉっゃゅょゎゕゖァィゥェォッャュョヮヵヶㇰㇱㇲㇳㇴㇵㇶㇷㇸㇹㇺㇻㇼㇽㇾㇿｧｨｩｪｫｬｭｮｯｰ", NS),
    **dict.fromkeys("‘“«‹", QI),
    **dict.fromkeys("’”»›", QF),
}


def _classify(code: int) -> int:
    """Return the class of one code point, from the lists above or else from Python's Unicode data."""
    character = chr(code)
    if character in _CLASS_OF:
        return _CLASS_OF[character]
    category = unicodedata.category(character)
    wide = unicodedata.east_asian_width(character) in "WF"
    if 0x1F1E6 <= code <= 0x1F1FF:
        return RI
    # Combining marks, emoji skin tones, and the vowels and finals that complete a Hangul syllable.
    if category in ("Mn", "Me", "Mc") or 0x1F3FB <= code <= 0x1F3FF or 0x1160 <= code <= 0x11FF:
        return CM
    if category == "Cf":
        return CM
    by_category = {"Ps": OW if wide else OP, "Pe": CL, "Pi": QI, "Pf": QF, "Sc": PR, "Pd": BA}
    if category in by_category:
        return by_category[category]
    if category == "Nd" and not wide:
        return NU
    return ID if wide else AL


@cache
def _pair_table() -> NDArray[np.uint8]:
    """Build the flattened pair table: index `class before * _ROW + class after`, values NEVER to GAP.

    The rules are written in reverse order of UAX #14, so that a later statement, a stronger rule, overrides an
    earlier one. Pairs that no rule mentions may break (LB31).
    """
    table = np.full((len(_NAMES), _ROW), ALWAYS, np.uint8)
    everything = range(len(_NAMES))

    def rule(before: list[int] | range, after: list[int] | range, value: int) -> None:
        for first in before:
            table[first, list(after)] = value

    rule([RI], [RI], AFTER_SPACES)  # LB30a
    rule([AL, NU], [OP], AFTER_SPACES)  # LB30
    rule([CP], [AL, NU], AFTER_SPACES)
    rule([IS], [AL], AFTER_SPACES)  # LB29
    rule([AL], [AL], AFTER_SPACES)  # LB28
    rule([CL, CP, NU], [PO, PR], AFTER_SPACES)  # LB25
    rule([PO, PR], [OP, NU], AFTER_SPACES)
    rule([HY, IS, NU, SY], [NU], AFTER_SPACES)
    rule([PO, PR], [AL], AFTER_SPACES)  # LB24
    rule([AL], [PO, PR], AFTER_SPACES)
    rule([AL], [NU], AFTER_SPACES)  # LB23
    rule([NU], [AL], AFTER_SPACES)
    rule([PR], [ID], AFTER_SPACES)  # LB23a
    rule([ID], [PO], AFTER_SPACES)
    rule(everything, [IN], AFTER_SPACES)  # LB22
    rule(everything, [BA, HY, NS], AFTER_SPACES)  # LB21
    rule([BB], everything, AFTER_SPACES)
    rule(everything, [QU, QI, QF], AFTER_SPACES)  # LB19
    rule([QU, QF], everything, AFTER_SPACES)
    rule([ID, CL, NS, EX], [QI], ALWAYS)  # LB19a: next to East Asian text the side of the quote decides
    rule([QF], [ID, OW], ALWAYS)
    rule([B2], [B2], NEVER)  # LB17
    rule([CL, CP], [NS], NEVER)  # LB16
    rule([QI], everything, NEVER)  # LB15a
    rule([OP, OW], everything, NEVER)  # LB14
    rule(everything, [SY, IS], AFTER_SPACES)  # LB13
    rule(everything, [CL, CP, EX], NEVER)
    rule([GL], everything, AFTER_SPACES)  # LB11, LB12
    rule([c for c in everything if c not in (BA, HY)], [GL], AFTER_SPACES)
    rule([ZW], everything, ALWAYS)  # LB8
    rule([BK], everything, ALWAYS)  # LB4
    rule(everything, [ZW, SP, BK], NEVER)  # LB6, LB7
    rule([BK], [ZW, SP, BK], ALWAYS)
    rule([SP], [c for c in everything if c not in (SP, BK)], GAP)
    return table.ravel()


_class_of_code = np.zeros(0, np.uint8)


def classes(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Return the line-breaking class of each code point as uint8 (characters,).

    Classes are looked up in a table over all code points, which is filled when a code point first occurs.
    """
    global _class_of_code
    if not len(_class_of_code):
        _class_of_code = np.full(0x110000, _UNKNOWN, np.uint8)
    found = _class_of_code.take(codes)
    unknown = found == _UNKNOWN
    if unknown.any():
        new = np.unique(codes[unknown])
        _class_of_code[new] = [_classify(code) for code in new.tolist()]
        found = _class_of_code.take(codes)
    return found


def break_opportunities(
    codes: NDArray[np.uint32], break_classes: NDArray[np.uint8], breaking: Literal["unicode", "spaces"]
) -> NDArray[np.bool_]:
    """Find the characters that a line may begin with.

    Args:
        codes: uint32 (characters,) code points.
        break_classes: uint8 (characters,), `classes(codes)`.
        breaking: "unicode" follows UAX #14. "spaces" breaks only after white space and next to ideographs, as
            reportlab's Paragraph does for English.

    Returns:
        bool (characters,); index 0 is always False.
    """
    num = len(codes)
    allowed = np.zeros(num, np.bool_)
    if num < 2:
        return allowed
    break_classes, combining = _resolve_combining(codes, break_classes)
    before, after = break_classes[:-1], break_classes[1:]
    rules = _rules(before, after)
    found = rules == ALWAYS
    if breaking == "spaces":
        found &= (before == BK) | (before == ID) | (after == ID) | (codes[:-1] == _TAB)
    # After spaces, the class before the whole run of spaces decides (the "SP*" of UAX #14).
    gaps = np.flatnonzero(rules == GAP)
    found[gaps] = _allowed_after(gaps, break_classes, breaking)
    # LB5: CR LF is one newline.
    returns = codes[:-1] == 13
    if returns.any():
        found &= ~(returns & (codes[1:] == 10))
    if combining is not None:
        found &= ~combining[1:]  # LB9
    allowed[1:] = found
    return allowed


def _rules(before: NDArray[np.uint8], after: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Look up the pair table for two equally long arrays of classes."""
    pairs = before * np.uint16(_ROW)
    pairs += after
    return _pair_table().take(pairs)


def _allowed_after(gaps: NDArray[np.int64], break_classes: NDArray[np.uint8], breaking: str) -> NDArray[np.bool_]:
    """Return whether a line may begin after each run of spaces.

    `gaps` holds the index of the last space of each run. The classes around the run decide.
    """
    last = last_inked(break_classes, gaps)
    before = break_classes.take(last)
    # Spaces at the start of the text count as spaces after a newline: indentation stays with the text it indents.
    before[last < 0] = BK
    allowed = before != BK
    if breaking == "unicode":
        allowed &= _rules(before, break_classes.take(gaps + 1)) != NEVER
    return allowed


def last_inked(break_classes: NDArray[np.uint8], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Find the last character at or before each place that is not a space.

    Args:
        break_classes: uint8 (characters,) classes of the text.
        places: int64 (places,) indices into the text; -1 means before the text.

    Returns:
        int64 (places,) indices; -1 if only spaces precede a place.
    """
    last = places
    # Most runs hold one or two spaces. Stepping back a few times avoids the pass over the whole text below.
    for _ in range(3):
        spaces = (break_classes.take(last) == SP) & (last >= 0)
        if not spaces.any():
            return last
        last = last - spaces
    index = np.where(break_classes == SP, -1, np.arange(len(break_classes)))
    return np.where(places < 0, -1, np.maximum.accumulate(index, out=index).take(places))


def _resolve_combining(
    codes: NDArray[np.uint32], break_classes: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], NDArray[np.bool_] | None]:
    """Apply LB9 and LB10: a mark takes its base's class; a mark without a base becomes a letter (AL).

    Returns the resolved classes, and a mask of the characters that must stay with the one before them. The mask is
    None if the text has no combining marks.
    """
    marks = break_classes == CM
    if not marks.any():
        return break_classes, None
    # The running maximum of the indices of non-marks is the index of each mark's base.
    index = np.where(marks, 0, np.arange(len(break_classes), dtype=np.int32))
    base = break_classes[np.maximum.accumulate(index, out=index)]
    orphan = marks & ((base == SP) | (base == BK) | (base == ZW) | (base == CM))
    attached = marks & ~orphan
    resolved = np.where(attached, base, np.where(orphan, AL, break_classes)).astype(np.uint8)
    # LB8a: no break after a zero-width joiner.
    attached[1:] |= codes[:-1] == _ZWJ
    return resolved, attached
