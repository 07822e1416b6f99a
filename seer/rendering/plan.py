"""Planning: count the pages and tokens of a text in each style, and choose the cheapest layout. Nothing is drawn.

    rows = plan(text, ["seer", "dense", "auto"])      # one PlanRow per style
    style = settle(text, "auto")                      # the cheapest layout of this text

Blank space costs as many tokens as text. Prose fills its lines, but code, verse, chats and hard-wrapped text leave
most of a page blank. Columns recover that space, and so do newline marks, which let short lines run on. The best layout
depends on the text, so `auto` lays the text out in each way and counts tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from seer.protocol.geometry import GLM_41V, VisionGeometry
from seer.rendering.layout.fonts import load_chain
from seer.rendering.layout.lines import PIECE_CHARS, lay_out
from seer.rendering.layout.measure import Measure
from seer.rendering.newlines import decide_newline, settle_newline
from seer.rendering.styles import STYLES, resolve_style
from seer.schema import Document, PageStyle

AUTO = "auto"
_SAMPLE_WINDOWS = 16

SELECTED_PAGES = 1.59
"""Average number of pages that a question retrieves as text, as measured in section 6.4 of the paper."""
PAGE_OVERHEAD_TOKENS = 6
"""Tokens of a page's label, such as "[Image 12]", and of the two markers around its image."""


@dataclass(frozen=True)
class PlanRow:
    """The cost of a text in one style."""

    style: PageStyle
    pages: int
    vision_tokens: int
    """Image tokens after the model's resize, without the label and markers of each page."""
    letter_height_px: float | None
    """Font size in pixels after the model's resize of a full page; None for pages not laid out by Seer."""


def reading_tokens(text_tokens: int, pages: int, vision_tokens: int) -> int:
    """Estimate the prompt tokens of a question: all pages as images, and the text of the pages it retrieves.

    The text is assumed to be spread evenly over the pages, of which SELECTED_PAGES are retrieved.
    """
    retrieved = text_tokens * min(SELECTED_PAGES, pages) / pages if pages else 0.0
    return round(vision_tokens + pages * PAGE_OVERHEAD_TOKENS + retrieved)


def plan(text: str, styles: Iterable[str | PageStyle], geometry: VisionGeometry = GLM_41V) -> tuple[PlanRow, ...]:
    """Count pages and tokens of `text` in each style; "auto" gives the row of the layout that it chooses.

    Raises InputError if a style is unknown.
    """
    return tuple(_row(text, settle(text, style, geometry), geometry) for style in styles)


def own_pages_row(document: Document, geometry: VisionGeometry = GLM_41V) -> PlanRow:
    """Return the cost of a document's own pages, such as those of a PDF."""
    tokens = sum(geometry.tokens(page.width_px, page.height_px) for page in document)
    return PlanRow(document.style, len(document.pages), tokens, None)


def settle(text: str, style: str | PageStyle, /, geometry: VisionGeometry = GLM_41V, **changes: object) -> PageStyle:
    """Resolve the style for `text`: "auto" becomes the layout with the fewest tokens, and the newline mode is decided.

    `changes` are fields of the style set by the user; "auto" chooses among the layouts that keep them. Raises
    InputError if the style is unknown, and ConfigError if a change is invalid.
    """
    if style != AUTO:
        return settle_newline(text, resolve_style(style, **changes))
    if changes.get("newline") == "auto":
        changes["newline"] = decide_newline(text, resolve_style("seer", **changes)).newline
    sample = _sample(text)
    rows = [_row(sample, candidate, geometry) for candidate in _candidates(changes)]
    # `min` returns the first of equal rows, so layouts that keep the source's lines win ties.
    return min(rows, key=lambda row: row.vision_tokens).style


def _candidates(changes: dict[str, object]) -> list[PageStyle]:
    """Return the layouts that "auto" chooses from, without those that contradict `changes`.

    They use the text size of `seer` on a page of whole 28 px cells, which the model's resize does not blur.
    """
    base = STYLES["seer"].model_copy(update={"page_width_px": 588, "page_height_px": 840, "margin_x_px": 16})
    layouts: list[tuple[str, dict[str, object]]] = [("auto:lines", {"crop_width": True})]
    layouts += [(f"auto:columns={num}", {"columns": num, "crop_width": True}) for num in (2, 3, 4)]
    layouts.append(("auto:mark", {"newline": "mark", "crop_width": True}))
    return [
        resolve_style(base, **(values | changes)).model_copy(update={"name": name})
        for name, values in layouts
        if not any(key in changes and changes[key] != value for key, value in values.items() if key != "crop_width")
    ]


def _row(text: str, style: PageStyle, geometry: VisionGeometry) -> PlanRow:
    """Lay `text` out in `style` and count pages and tokens."""
    pages = tokens = 0
    for page in lay_out([text], Measure(style, load_chain(style.fonts))):
        pages += 1
        tokens += geometry.tokens(page.width_px, page.height_px)
    resized_px, _ = geometry.resized(style.page_width_px, style.page_height_px)
    return PlanRow(style, pages, tokens, style.font_size_px * resized_px / style.page_width_px)


def _sample(text: str) -> str:
    """Return a text of up to about a million characters whole, and of a longer one evenly spaced windows."""
    if len(text) <= _SAMPLE_WINDOWS * PIECE_CHARS:
        return text
    step = len(text) // _SAMPLE_WINDOWS
    return "".join(text[k * step : k * step + PIECE_CHARS] for k in range(_SAMPLE_WINDOWS))
