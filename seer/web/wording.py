"""Wording of a reading, shared by the terminal, the trace page and the demo: values in, plain text out.

Nothing here escapes: each caller escapes for its own medium (rich text, HTML or Markdown).
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from seer.schema import Answer, Citation, Document, Step

STRIP_SQUARES = 50
"""Most squares in a page strip, so that it fits one terminal line."""
MAX_QUOTE_CHARACTERS = 120


# ── One step ─────────────────────────────────────────────────────────────────────────────────────


def describe_shown(step: Step) -> str:
    """How a step named "look" presents the document: as text or as a number of page pictures."""
    if not step.pages:
        return "the whole text"
    return "1 page as a picture" if len(step.pages) == 1 else f"{len(step.pages)} pages as pictures"


def describe_pages(step: Step) -> str:
    """The pages of a step, e.g. "pages [2, 5]"; "no page" if it concerns none."""
    return f"pages {list(step.pages)}" if step.pages else "no page"


def step_text(step: Step) -> str:
    """The content of any step as plain text: its pages, its outputs, and deviations from the protocol.

    The steps of Seer's reading have specific wording. For any other step the pages, the text and the outputs
    follow one another, each output on a line that starts with its name; a step without any of them shows its inputs.
    """
    text = _WORDINGS.get(step.name, _any_step)(step)
    departs = f" (departs from the protocol: {', '.join(step.deviations)})" if step.deviations else ""
    return f"{text}{departs}" if text else departs.strip()


def cost_line(step: Step) -> str:
    """Tokens of a step's model calls; empty for a step without one."""
    spent = step.usage
    return f"{spent.prompt:,} in, {spent.cached:,} cached, {spent.completion:,} out" if spent.prompt else ""


def _look(step: Step) -> str:
    shown, question = describe_shown(step), step.inputs.get("question", "")
    return "\n".join([f"{shown[0].upper()}{shown[1:]}. {_plain(question)}", *_named(step.outputs)])


def _select(step: Step) -> str:
    return "\n".join([f"select pages {list(step.pages)}", *_named(step.outputs)])


def _any_step(step: Step) -> str:
    pages = [describe_pages(step)] if step.pages and step.name not in ("retrieve", "reason", "answer") else []
    excerpts = [f"Text from image {excerpt.page}: {excerpt.text}" for excerpt in step.excerpts]
    lines = [*pages, *([step.text] if step.text else []), *excerpts, *_named(step.outputs)]
    return "\n".join(lines or _named(step.inputs))


_WORDINGS = {"look": _look, "select": _select}
_SHOWN_APART = {"raw", "text", "excerpts"}
"""Outputs with a fixed place; `raw` repeats them as the model wrote them."""


def _named(values: Mapping[str, JsonValue]) -> list[str]:
    return [f"{name}: {_plain(value)}" for name, value in values.items() if name not in _SHOWN_APART]


def _plain(value: JsonValue) -> str:
    """A value as text: strings as they are, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


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
