"""Sentences: the smallest units of a page's text that are retrieved by themselves.

    sentences("One. Two.\n- three", start=100)   # [(100, 105), (105, 110), (110, 117)]

A sentence ends after a full stop, question or exclamation mark of any supported script, or at a newline, so lines of code,
list items and table rows are sentences too. Space after a sentence belongs to it: the spans of a text join to the whole
text. No boundary lies inside a grapheme.
"""

from __future__ import annotations

import re
import unicodedata

MAX_SENTENCE_CHARS = 240
"""Longest sentence; a longer one is cut at a space or, without one, after a comma."""
_END = re.compile(
    # Blank lines belong to the paragraph before them; the indentation of the next line stays with that line.
    r"\n(?:[^\S\n]*\n)*"
    # A full stop needs a space after it, so that 3.14 and example.org stay whole.
    r"|[.!?؟…][\"'”’)\]»]*\s+"
    # Chinese, Japanese, Hindi and Urdu put no space after the end of a sentence.
    r"|[。！？；।۔]+[”’」』）】]*\s*"
)
_SOFT_BREAK = re.compile(r"[\s,;，、：]")

Span = tuple[int, int]


def sentences(text: str, start: int = 0, max_chars: int = MAX_SENTENCE_CHARS) -> list[Span]:
    """Divide a text into spans that join to the whole text, each with at least one visible character.

    A text without visible characters has one span, an empty text none.

    Args:
        text: the text of one page.
        start: offset of the text in the document; all spans are moved by it.
        max_chars: longest span in characters. Only a single longer grapheme exceeds it, and space at the ends.
    """
    spans: list[Span] = []
    begin = 0
    for end in [*(match.end() for match in _END.finditer(text) if is_boundary(text, match.end())), len(text)]:
        while end - begin > max_chars:
            cut = _cut(text, begin, begin + max_chars)
            if cut >= end or not text[cut:end].strip():
                break
            spans.append((begin, cut))
            begin = cut
        if end > begin:
            spans.append((begin, end))
            begin = end
    return [(start + low, start + high) for low, high in _without_blank(text, spans)]


def _cut(text: str, begin: int, limit: int) -> int:
    """Return the best place in (begin, limit] to cut a long sentence; past `limit` only if a grapheme reaches over it."""
    # A cut in the first half would leave many short pieces.
    for at in range(limit, begin + (limit - begin) // 2, -1):
        if _SOFT_BREAK.match(text[at - 1]) and is_boundary(text, at):
            return at
    for at in range(limit, begin, -1):
        if is_boundary(text, at):
            return at
    while not is_boundary(text, limit):
        limit += 1
    return limit


def _without_blank(text: str, spans: list[Span]) -> list[Span]:
    """Join spans of space only to the span before them; at the beginning, to the one after them."""
    joined: list[Span] = []
    for low, high in spans:
        if joined and (not text[low:high].strip() or not text[joined[-1][0] : joined[-1][1]].strip()):
            joined[-1] = (joined[-1][0], high)
        else:
            joined.append((low, high))
    return joined


def is_boundary(text: str, at: int) -> bool:
    r"""Return whether a text may be cut before index `at` without dividing what a reader sees as one character.

    Follows the rules of Unicode Standard Annex 29 that matter for marks, joiners, Hangul jamo, flags and "\r\n". A
    surrogate pair, which some files hold as two characters, is not divided either.
    """
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if before.isascii() and after.isascii():
        return (before, after) != ("\r", "\n")
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return False
    if after in "\u200c\u200d" or before == "\u200d" or unicodedata.category(after)[0] == "M":
        return False
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return False  # skin tones and the tags of subdivision flags
    if _is_jamo(before) and "\u1160" <= after <= "\u11ff":
        return False
    if _is_flag_letter(before) and _is_flag_letter(after):
        run = at
        while run > 0 and _is_flag_letter(text[run - 1]):
            run -= 1
        return (at - run) % 2 == 0
    return True


def _is_jamo(character: str) -> bool:
    return "\u1100" <= character <= "\u11ff" or "\uac00" <= character <= "\ud7a3"


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
