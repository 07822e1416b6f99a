"""Wording of a reading, shared by the terminal, the trace page and the demo: values in, plain text out.

Nothing here escapes: each caller escapes for its own medium (rich text, HTML or Markdown).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from seer.schema import Answer, Citation, Document, Step, Turn

STRIP_SQUARES = 50
"""Most squares in a page strip, so that it fits one terminal line."""
MAX_QUOTE_CHARACTERS = 120


# ── One turn ─────────────────────────────────────────────────────────────────────────────────────


def describe_prompt(prompt: Turn) -> str:
    """How the prompt presents the document: as text or as a number of page pictures."""
    if not prompt.pages:
        return "the whole text"
    return "1 page as a picture" if len(prompt.pages) == 1 else f"{len(prompt.pages)} pages as pictures"


def turn_text(step: Step) -> str:
    """The content of a turn as plain text, with any deviation from the protocol."""
    turn = step.turn
    if turn.kind == "prompt":
        shown = describe_prompt(turn)
        return f"{shown[0].upper()}{shown[1:]}. {turn.text}"
    if turn.kind == "call":
        departs = f" (departs from the protocol: {', '.join(step.deviations)})" if step.deviations else ""
        return f"select pages {list(turn.pages)}{departs}"
    if turn.excerpts:
        return "\n".join(f"Text from image {excerpt.page}: {excerpt.text}" for excerpt in turn.excerpts)
    return turn.text


# ── The whole reading ────────────────────────────────────────────────────────────────────────────


def cite(citation: Citation, document: Document) -> str:
    """A citation on one line: `report.pdf:p.12 (printed "8") "quote" verified`.

    Names the file and page number of the source where a document joins several files. Raises ValueError if the
    document has no such page.
    """
    page = document.page(citation.page)
    printed = f' (printed "{page.label}")' if page.label else ""
    quote = shorten(citation.quote, MAX_QUOTE_CHARACTERS)
    name, number = (page.source, page.source_number) if page.source else (document.name, page.number)
    return f'{name}:p.{number}{printed} "{quote}" {"verified" if citation.verified else "NOT FOUND"}'


def tokens_line(answer: Answer) -> str:
    """Token usage on one line: tokens read and written, the saving against the full text, and the time in seconds."""
    usage = answer.usage
    line = f"{usage.prompt:,} prompt ({usage.vision:,} vision, {usage.retrieved:,} retrieved), {usage.completion:,} completion"
    if usage.full_text:
        saved = usage.full_text - usage.prompt
        compared = "saved of" if saved >= 0 else "more than"
        line += f"; {abs(saved):,} {compared} the full text's {usage.full_text:,} ({usage.compression:.2f}x)"
    return f"{line}; {answer.seconds:.2f} s"


@dataclass(frozen=True)
class PageStrip:
    """A document as a row of squares. A square is filled if at least one of its pages is selected."""

    filled: tuple[bool, ...]
    pages_per_square: int


def make_page_strip(num_pages: int, selected: Collection[int]) -> PageStrip:
    """Divide `num_pages` pages among at most STRIP_SQUARES squares; `selected` holds 1-based page numbers."""
    pages_per_square = max(1, math.ceil(num_pages / STRIP_SQUARES))
    filled = {(number - 1) // pages_per_square for number in selected}
    squares = math.ceil(num_pages / pages_per_square)
    return PageStrip(tuple(square in filled for square in range(squares)), pages_per_square)


def shorten(text: str, max_characters: int) -> str:
    """Text on one line, cut to `max_characters` with an ellipsis at the end."""
    text = " ".join(text.split())
    return text if len(text) <= max_characters else f"{text[: max_characters - 1]}…"
