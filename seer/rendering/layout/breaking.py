"""Where a line may break: Unicode line breaking (UAX #14) over arrays of code points. Pure.

    allowed = break_opportunities(codes, "unicode")      # bool, one a character: may a line begin here?

Each code point has a class; a pair table says whether a line may break between two classes when nothing, or only
spaces, stand between them. Classes come from Python's own Unicode data and the lists below, so no data file is
carried. Departures from the letter of UAX #14, each on purpose: soft hyphens offer no break, since no hyphen would be
drawn there; South-East Asian scripts, which need a dictionary, break at spaces (a run wider than a line breaks by
width); a slash after a space may begin a line, as paths in code and logs do; emoji flags keep together in runs.
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
"""Unicode's classes, with OP split into narrow and wide (OW), and QU into initial, final and plain marks."""

NEVER, AFTER_SPACES, ALWAYS, GAP = 0, 1, 2, 3
"""Whether a line may break between two characters. After a GAP, spaces, it depends on what stands before them."""

_ROW = 32
"""Length of a row of the pair table, a power of two."""
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
    # Kinsoku: no line begins with these.
    **dict.fromkeys("：；・‼⁇⁈⁉ゝゞヽヾ々〻〜〽゛゜･ﾞﾟ", NS),
    **dict.fromkeys("ーぁぃぅぇぉっゃゅょゎゕゖァィゥェォッャュョヮヵヶㇰㇱㇲㇳㇴㇵㇶㇷㇸㇹㇺㇻㇼㇽㇾㇿｧｨｩｪｫｬｭｮｯｰ", NS),
    **dict.fromkeys("‘“«‹", QI),
    **dict.fromkeys("’”»›", QF),
}


def _classify(code: int) -> int:
    """The class of one code point, from the lists above and Python's Unicode data."""
    character = chr(code)
    if character in _CLASS_OF:
        return _CLASS_OF[character]
    category = unicodedata.category(character)
    wide = unicodedata.east_asian_width(character) in "WF"
    if 0x1F1E6 <= code <= 0x1F1FF:
        return RI
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
    """Over class before * _ROW + class after: NEVER, AFTER_SPACES, ALWAYS, GAP. Later rules override earlier ones."""
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
    rule([ID, CL, NS, EX], [QI], ALWAYS)  # LB19a: beside East Asian characters the direction of the mark decides
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
    """The class of each code point. A table fills as new characters turn up."""
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
    codes: NDArray[np.uint32], kinds: NDArray[np.uint8], breaking: Literal["unicode", "spaces"]
) -> NDArray[np.bool_]:
    """For each character, whether a line may begin with it; `kinds` is `classes(codes)`. Index 0 is always False.

    `spaces` breaks after white space and beside ideographs only, as reportlab's Paragraph does for English.
    """
    num = len(codes)
    allowed = np.zeros(num, np.bool_)
    if num < 2:
        return allowed
    kinds, combining = _resolve_combining(codes, kinds)
    before, after = kinds[:-1], kinds[1:]
    rules = _rules(before, after)
    found = rules == ALWAYS
    if breaking == "spaces":
        found &= (before == BK) | (before == ID) | (after == ID) | (codes[:-1] == _TAB)
    gaps = np.flatnonzero(rules == GAP)
    found[gaps] = _allowed_after(gaps, kinds, breaking)
    returns = codes[:-1] == 13
    if returns.any():
        found &= ~(returns & (codes[1:] == 10))
    if combining is not None:
        found &= ~combining[1:]
    allowed[1:] = found
    return allowed


def _rules(before: NDArray[np.uint8], after: NDArray[np.uint8]) -> NDArray[np.uint8]:
    pairs = before * np.uint16(_ROW)
    pairs += after
    return _pair_table().take(pairs)


def _allowed_after(gaps: NDArray[np.int64], kinds: NDArray[np.uint8], breaking: str) -> NDArray[np.bool_]:
    """Whether a line may begin after each of these spaces, the last of their runs: what surrounds the run says so."""
    last = last_inked(kinds, gaps)
    before = kinds.take(last)
    # Spaces at the very start stand after nothing, as after a newline: indentation stays with what it indents.
    before[last < 0] = BK
    allowed = before != BK
    if breaking == "unicode":
        allowed &= _rules(before, kinds.take(gaps + 1)) != NEVER
    return allowed


def last_inked(kinds: NDArray[np.uint8], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each place, the last one up to it that is no space; -1 where there is none, or for the place -1."""
    last = places
    for _ in range(3):  # most gaps are a space or two
        spaces = (kinds.take(last) == SP) & (last >= 0)
        if not spaces.any():
            return last
        last = last - spaces
    index = np.where(kinds == SP, -1, np.arange(len(kinds)))
    return np.where(places < 0, -1, np.maximum.accumulate(index, out=index).take(places))


def _resolve_combining(
    codes: NDArray[np.uint32], kinds: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], NDArray[np.bool_] | None]:
    """LB9, LB10: a mark takes its base's class and never begins a line; without a base it is a letter."""
    marks = kinds == CM
    if not marks.any():
        return kinds, None
    index = np.where(marks, 0, np.arange(len(kinds), dtype=np.int32))
    base = kinds[np.maximum.accumulate(index, out=index)]
    orphan = marks & ((base == SP) | (base == BK) | (base == ZW) | (base == CM))
    attached = marks & ~orphan
    resolved = np.where(attached, base, np.where(orphan, AL, kinds)).astype(np.uint8)
    # LB8a: nothing parts what a zero-width joiner joins
    attached[1:] |= codes[:-1] == _ZWJ
    return resolved, attached
