"""Compare what the pages of a document show with its text: OCR of each drawn page against the text of the page.

    for page in check_pages(document):
        page.score, page.only_in_picture, page.only_in_text

OCR makes mistakes, so words count as equal if they are similar, and a line differs only if most of its words are missing on
the other side. The check finds hidden text, fonts whose text is not what they draw, and form fields or notes without text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from seer.rendering.formats.scans import read_picture
from seer.schema import Document, Page

MIN_SCORE = 0.85
"""Pages with a lower score differ. OCR of clean pages reaches 0.95 or more."""
_SIMILAR = 75.0
"""Lowest similarity, 0 to 100, of a word and what OCR read."""
_MAX_LINE_FRACTION = 0.5
"""A line differs if a smaller fraction of its words is found on the other side."""
_MIN_LINE_CHARACTERS = 4
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")


@dataclass(frozen=True)
class PageCheck:
    """The comparison of one page."""

    page: int
    score: float
    """Fraction of the words of picture and text that have a counterpart, 0 to 1."""
    only_in_picture: tuple[str, ...]
    """Lines that OCR reads and the text lacks."""
    only_in_text: tuple[str, ...]
    """Lines of the text that OCR does not read."""

    @property
    def differs(self) -> bool:
        return self.score < MIN_SCORE or bool(self.only_in_picture or self.only_in_text)


def check_pages(document: Document) -> Iterator[PageCheck]:
    """Draw and read each page of a document, and compare what OCR reads with the page's text.

    Raises InputError if OCR is not installed.
    """
    for page in document:
        yield check_page(page, [line.text for line in read_picture(page.image())])


def check_page(page: Page, shown: list[str]) -> PageCheck:
    """Compare the text of a page with the lines that its picture shows."""
    written = [line for line in page.text.splitlines() if line.strip()]
    in_picture, in_text = [_words(line) for line in shown], [_words(line) for line in written]
    all_shown = Counter(word for line in in_picture for word in line)
    all_written = Counter(word for line in in_text for word in line)
    # A word that OCR glued to its neighbour is found in the joined text of the other side.
    joined_shown = "".join(word for line in in_picture for word in line)
    joined_written = "".join(word for line in in_text for word in line)
    missing_shown = _missing(all_shown, all_written, joined_written)
    missing_written = _missing(all_written, all_shown, joined_shown)
    total = all_shown.total() + all_written.total()
    score = 1.0 if not total else 1 - (missing_shown.total() + missing_written.total()) / total
    return PageCheck(
        page.number,
        round(score, 4),
        _differing(shown, in_picture, missing_shown),
        _differing(written, in_text, missing_written),
    )


def _words(line: str) -> list[str]:
    """The words of a line without case, accents and punctuation, which OCR often misses."""
    plain = unicodedata.normalize("NFKD", line).casefold()
    return _WORD.findall("".join(one for one in plain if not unicodedata.combining(one)))


def _missing(words: Counter[str], others: Counter[str], joined: str) -> Counter[str]:
    """Return the words without an equal or similar counterpart among the others; digits must be equal."""
    from rapidfuzz import process

    left = words - others
    spare = others - words
    missing: Counter[str] = Counter()
    for word, count in left.items():
        if len(word) > 2 and word in joined:
            continue
        for _ in range(count):
            candidates = [other for other in spare if re.sub(r"\D", "", other) == re.sub(r"\D", "", word)]
            found = process.extractOne(word, candidates, score_cutoff=_SIMILAR) if candidates else None
            if found is None:
                missing[word] += 1
            else:
                spare -= Counter({found[0]: 1})
    return missing


def _differing(lines: list[str], words: list[list[str]], missing: Counter[str]) -> tuple[str, ...]:
    """Return the lines most of whose words are missing on the other side."""
    left = Counter(missing)
    differing = []
    for line, own in zip(lines, words, strict=True):
        lost = [word for word in own if left[word] > 0]
        if sum(map(len, own)) >= _MIN_LINE_CHARACTERS and len(lost) > (1 - _MAX_LINE_FRACTION) * len(own):
            differing.append(line.strip())
            left -= Counter(lost)
    return tuple(differing)
