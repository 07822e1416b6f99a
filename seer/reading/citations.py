"""Citations: where in the retrieved text an answer comes from.

`find_citations` takes the quotes of an answer and its reasoning (text between quotation marks, and the answer itself if it
is short), looks each of them up in the retrieved excerpts and marks it as verified or not. The search is exact first, then
ignores differences of case, space and quotation marks and hyphens at line ends, then accepts similar text. A quote may
continue on the next page.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from seer.rendering.regions import regions_of
from seer.schema import Citation, Document, Excerpt

MAX_SHORT_ANSWER = 160
"""Longest answer, in characters, that is itself looked up as a quote."""
FUZZY_THRESHOLD = 90.0
"""Lowest similarity of a match: rapidfuzz's partial ratio, from 0 to 100."""
_QUOTES = re.compile(r"\"([^\"\n]{4,400})\"|“([^”\n]{4,400})”|「([^」\n]{2,400})」|«([^»\n]{4,400})»")
_IGNORED = frozenset("\"'“”‘’‚„‹›«»`´\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff")
"""Quotation marks, and characters that are not seen: soft hyphens, joiners and marks of direction."""

_LINE_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u00ad\u2010][^\S\n]*\n\s*(?=[^\W\d_])")
"""A hyphen at a line's end between letters: it may belong to the word, as in "well-known", or only divide it."""
_JOINT = "\ue000"
"""Stands for a hyphen at a line's end in normalised text."""

Span = tuple[int, int]


def find_citations(
    document: Document, excerpts: Sequence[Excerpt], answer: str, think: str = ""
) -> tuple[Citation, ...]:
    """Citations of an answer in the retrieved excerpts: verified ones in document order, then unverified ones.

    Each place is cited once, and a quote inside a longer quote is left out. A verified citation has the document's own
    text as its quote, and a region for each page that this text touches.
    """
    found: set[Span] = set()
    missing: dict[str, Citation] = {}
    for quote, claimed in _quotes(answer, think):
        span = locate(quote, excerpts)
        if span is not None:
            found.add(span)
        elif claimed and excerpts:
            first = excerpts[0]
            label = document.page(first.page).label
            missing[quote] = Citation(
                page=first.page, label=label, start=first.start, end=first.start, quote=quote, verified=False
            )
    outer: list[Span] = []
    for start, end in sorted(found, key=lambda span: (span[0], -span[1])):
        if not outer or end > outer[-1][1]:
            outer.append((start, end))
    return (*(_verified(document, start, end) for start, end in outer), *missing.values())


def _verified(document: Document, start: int, end: int) -> Citation:
    page = document.page_at(start)
    return Citation(
        page=page.number,
        label=page.label,
        start=start,
        end=end,
        quote=document.text[start:end],
        verified=True,
        regions=regions_of(document, start, end, kind="quote"),
    )


def _quotes(answer: str, think: str) -> list[tuple[str, bool]]:
    """Texts to look up, each with True if the model marks it as a quote. A short answer is looked up unmarked."""
    quoted = [next(filter(None, groups)) for text in (answer, think) for groups in _QUOTES.findall(text)]
    short = answer.strip()
    whole = [short, short.rstrip(".。")] if 2 <= len(short) <= MAX_SHORT_ANSWER else []
    return list({quote: (quote, quote in quoted) for quote in (*whole, *quoted) if quote}.values())


def locate(quote: str, excerpts: Sequence[Excerpt]) -> Span | None:
    """The source span [start, end) of a quote in the excerpts, or None. Excerpts that adjoin are searched joined, too.

    >>> excerpt = Excerpt(page=3, start=5000, text="The total was  1,749.98 Dollars.")
    >>> locate("the total was 1,749.98 dollars", [excerpt])
    (5000, 5031)
    >>> locate("the total was 1,749.99 dollars", [excerpt])  # digits must agree
    """
    sources = [*excerpts, *_joined(excerpts)]
    for source in sources:
        at = _find(source.text, quote)
        if at >= 0:
            return source.start + at, source.start + at + len(quote)
    needle = _normalised(quote)[0].replace(_JOINT, "")
    if len(needle) < 2:
        return None
    normalised = [(source, *_normalised(source.text)) for source in sources]
    for source, text, offsets in normalised:
        found = _find_over_lines(text, needle)
        if found is not None:
            first, last = found
            return source.start + offsets[first], source.start + _end(source, offsets[last - 1])
    return _locate_similar(needle, normalised) if len(needle) >= 12 else None


def _joined(excerpts: Sequence[Excerpt]) -> list[Excerpt]:
    """Excerpts that continue one another, as on consecutive pages, joined; excerpts without a neighbour are left out."""
    runs: list[list[Excerpt]] = []
    for excerpt in sorted(excerpts, key=lambda excerpt: excerpt.start):
        if runs and runs[-1][-1].end == excerpt.start:
            runs[-1].append(excerpt)
        else:
            runs.append([excerpt])
    return [
        Excerpt(page=run[0].page, start=run[0].start, text="".join(excerpt.text for excerpt in run))
        for run in runs
        if len(run) > 1
    ]


def _find(text: str, quote: str) -> int:
    """The first place of a quote that cuts neither a number in two, as 42 does in 1942, nor a letter from its accent.

    -1 if there is none.
    """
    at = text.find(quote)
    while at >= 0 and any(_splits(text, edge) for edge in (at, at + len(quote))):
        at = text.find(quote, at + 1)
    return at


def _find_over_lines(text: str, needle: str) -> Span | None:
    """The first place of a normalised quote in normalised text, in which a word may be divided at a line's end."""
    if _JOINT not in text:
        at = _find(text, needle)
        return (at, at + len(needle)) if at >= 0 else None
    # A hyphen of the quote may be one at a line's end, and such a hyphen may be missing in the quote.
    parts = [f"[-{_JOINT}]" if character == "-" else re.escape(character) for character in needle]
    for found in re.finditer(f"(?=({f'{_JOINT}?'.join(parts)}))", text):
        first, last = found.span(1)
        if not (_splits(text, first) or _splits(text, last)):
            return first, last
    return None


def _splits(text: str, at: int) -> bool:
    """Whether the place lies inside a number, or between a letter and its combining marks."""
    return _splits_number(text, at) or bool(unicodedata.combining(text[at : at + 1] or " "))


def _splits_number(text: str, at: int) -> bool:
    return text[max(0, at - 1) : at].isdigit() and text[at : at + 1].isdigit()


def _locate_similar(needle: str, normalised: Sequence[tuple[Excerpt, str, list[int]]]) -> Span | None:
    """The span that is most similar to `needle`; `normalised` holds (source, its normalised text, source offsets)."""
    from rapidfuzz import fuzz

    best = None
    for source, text, offsets in normalised:
        match = fuzz.partial_ratio_alignment(needle, text, score_cutoff=FUZZY_THRESHOLD) if text else None
        # A near miss in a number is a different number, so the digits must agree.
        if match is None or _digits(text[match.dest_start : match.dest_end]) != _digits(needle):
            continue
        # In a source shorter than the quote, rapidfuzz matches the source against a part of the quote.
        if match.src_end - match.src_start < len(needle) * FUZZY_THRESHOLD / 100:
            continue
        if _splits(text, match.dest_start) or _splits(text, match.dest_end):
            continue
        if match.dest_end > match.dest_start and (best is None or match.score > best[0]):
            start, end = offsets[match.dest_start], _end(source, offsets[match.dest_end - 1])
            best = (match.score, source.start + start, source.start + end)
    return None if best is None else best[1:]


def _end(source: Excerpt, last: int) -> int:
    """The end of a match whose last character is at `last` of the source, its combining marks included."""
    end = last + 1
    while end < len(source.text) and unicodedata.combining(source.text[end]):
        end += 1
    return end


def _clusters(text: str) -> Iterator[tuple[int, str]]:
    """Yield each character with its combining marks, and its offset."""
    if text.isascii():
        yield from enumerate(text)
        return
    start = 0
    for offset in range(1, len(text) + 1):
        if offset == len(text) or not unicodedata.combining(text[offset]):
            yield start, text[start:offset]
            start = offset


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text)


def _normalised(text: str) -> tuple[str, list[int]]:
    """Text without differences of case, width, composition, space, quotation marks and invisible characters, and the
    source offset of each character.

    Letters with accents are decomposed, so that one character and a letter with a combining mark are the same.
    """
    characters: list[str] = []
    offsets: list[int] = []
    joints = {found.start(): found.end() for found in _LINE_HYPHEN.finditer(text)}
    skip = 0
    for offset, cluster in _clusters(text):
        if offset < skip:
            continue
        if offset in joints:
            characters.append(_JOINT)
            offsets.append(offset)
            skip = joints[offset]
            continue
        # One character may become several, e.g. a ligature; all of them keep its offset.
        for plain in unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", cluster).casefold()):
            if plain.isspace():
                if characters and characters[-1] != " ":
                    characters.append(" ")
                    offsets.append(offset)
            elif plain not in _IGNORED:
                characters.append(plain)
                offsets.append(offset)
    while characters and characters[-1] == " ":
        characters.pop()
        offsets.pop()
    return "".join(characters), offsets
