"""Where an answer comes from: its quotes, found again in the retrieved text, each marked verified or not.

Quotes are what stands between quotation marks in the answer and the reasoning, and the answer itself where it is short.
Each is sought in the excerpts: exactly, then with case, space and punctuation marks levelled, then by similarity.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from seer.schema import Citation, Document, Excerpt

MAX_SHORT_ANSWER = 160
FUZZY_THRESHOLD = 90.0
"""Of 100, as rapidfuzz counts a partial ratio."""
_QUOTES = re.compile(r"\"([^\"\n]{4,400})\"|“([^”\n]{4,400})”|「([^」\n]{2,400})」|«([^»\n]{4,400})»")


def find_citations(
    document: Document, excerpts: Sequence[Excerpt], answer: str, think: str = ""
) -> tuple[Citation, ...]:
    """Citations of an answer over what was retrieved; each place once, verified ones first, then in document order."""
    found: dict[tuple[int, int, int], Citation] = {}
    missing: dict[str, Citation] = {}
    for quote, claimed in _quotes(answer, think):
        place = locate(quote, excerpts)
        if place is not None:
            excerpt, start, end = place
            text = document.text[start:end]
            citation = _cite(document, excerpt.page, start, end, text, verified=True)
            found.setdefault((citation.page, start, end), citation)
        elif claimed and excerpts:
            first = excerpts[0]
            missing[quote] = _cite(document, first.page, first.start, first.start, quote, verified=False)
    ordered = sorted(found.values(), key=lambda citation: (citation.start, -citation.end))
    outer: list[Citation] = []
    for citation in ordered:  # a quote inside another one adds nothing
        if not outer or citation.end > outer[-1].end:
            outer.append(citation)
    return (*outer, *missing.values())


def _cite(document: Document, page: int, start: int, end: int, quote: str, *, verified: bool) -> Citation:
    label = document.page(page).label
    return Citation(page=page, label=label, start=start, end=end, quote=quote, verified=verified)


def _quotes(answer: str, think: str) -> list[tuple[str, bool]]:
    """What to look for, and whether the model claims that it is a quote. The answer itself is sought, not claimed."""
    quoted = [next(filter(None, groups)) for text in (answer, think) for groups in _QUOTES.findall(text)]
    short = answer.strip()
    whole = [short, short.rstrip(".。")] if 2 <= len(short) <= MAX_SHORT_ANSWER else []
    return list({quote: (quote, quote in quoted) for quote in (*whole, *quoted) if quote}.values())


def locate(quote: str, excerpts: Sequence[Excerpt]) -> tuple[Excerpt, int, int] | None:
    """The excerpt and the source span [start, end) where a quote stands, or None.

    >>> excerpt = Excerpt(page=3, start=5000, text="The total was  1,749.98 Dollars.")
    >>> locate("the total was 1,749.98 dollars", [excerpt])[1:]
    (5000, 5031)
    >>> locate("the total was 1,749.99 dollars", [excerpt])  # a near miss in a number is another number
    """
    for excerpt in excerpts:
        at = _find(excerpt.text, quote)
        if at >= 0:
            return excerpt, excerpt.start + at, excerpt.start + at + len(quote)
    needle, _ = _level(quote)
    if len(needle) < 2:
        return None
    levelled = [(excerpt, *_level(excerpt.text)) for excerpt in excerpts]
    for excerpt, text, offsets in levelled:
        at = _find(text, needle)
        if at >= 0:
            return excerpt, excerpt.start + offsets[at], excerpt.start + offsets[at + len(needle) - 1] + 1
    return _locate_similar(needle, levelled) if len(needle) >= 12 else None


def _find(text: str, quote: str) -> int:
    """Where a quote first stands that cuts no number in two, as 42 does 1942; -1 where it does not."""
    at = text.find(quote)
    while at >= 0 and (_splits_number(text, at) or _splits_number(text, at + len(quote))):
        at = text.find(quote, at + 1)
    return at


def _splits_number(text: str, at: int) -> bool:
    return text[max(0, at - 1) : at].isdigit() and text[at : at + 1].isdigit()


def _locate_similar(needle: str, levelled: Sequence[tuple[Excerpt, str, list[int]]]) -> tuple[Excerpt, int, int] | None:
    from rapidfuzz import fuzz

    best = None
    for excerpt, text, offsets in levelled:
        match = fuzz.partial_ratio_alignment(needle, text, score_cutoff=FUZZY_THRESHOLD) if text else None
        # digits must agree: a near miss in a number is another number
        if match is None or _digits(text[match.dest_start : match.dest_end]) != _digits(needle):
            continue
        if _splits_number(text, match.dest_start) or _splits_number(text, match.dest_end):
            continue
        if match.dest_end > match.dest_start and (best is None or match.score > best[0]):
            start, end = offsets[match.dest_start], offsets[match.dest_end - 1] + 1
            best = (match.score, excerpt, excerpt.start + start, excerpt.start + end)
    return None if best is None else best[1:]


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text)


def _level(text: str) -> tuple[str, list[int]]:
    """Case, width, space and quotation marks levelled; with the source offset of every character that is left."""
    characters: list[str] = []
    offsets: list[int] = []
    for offset, character in enumerate(text):
        for levelled in unicodedata.normalize("NFKC", character).casefold():
            if levelled.isspace():
                if characters and characters[-1] != " ":
                    characters.append(" ")
                    offsets.append(offset)
            elif levelled not in "\"'“”‘’`\u00ad\u200b\u2060":
                characters.append(levelled)
                offsets.append(offset)
    while characters and characters[-1] == " ":
        characters.pop()
        offsets.pop()
    return "".join(characters), offsets
