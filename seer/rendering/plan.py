"""Planning: what a text costs in each style, and which layout is cheapest for it. Nothing is drawn.

White costs as much as ink. Prose fills its lines; code, verse, chats and hard-wrapped text leave most of a page blank,
and get it back by columns, or by running lines on with a small mark for each newline. Which is best depends on the
text, so `auto` lays it out in each way and counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from seer.protocol.geometry import GLM_41V, VisionGeometry
from seer.rendering.layout.fonts import load_chain
from seer.rendering.layout.lines import PIECE_CHARS, lay_out
from seer.rendering.layout.measure import Measure
from seer.rendering.styles import STYLES, resolve_style
from seer.schema import Document, PageStyle

AUTO = "auto"
_SAMPLE_WINDOWS = 16


SELECTED_PAGES = 1.59
"""Pages whose text a question retrieves on average, as the paper measures it (its section 6.4)."""
PAGE_OVERHEAD_TOKENS = 6
"""A page's label, "[Image 12]", and the two markers around its picture."""


@dataclass(frozen=True)
class PlanRow:
    """What one style makes of a text."""

    style: PageStyle
    pages: int
    vision_tokens: int
    """After the model's own resize, without the markers around each page."""
    letter_height_px: float | None
    """Font size in pixels as the model sees it, after its resize of a full page; None where it is not known."""


def reading_tokens(text_tokens: int, pages: int, vision_tokens: int) -> int:
    """What a question costs on average: all pages as pictures, and the text of those that it needs."""
    retrieved = text_tokens * min(SELECTED_PAGES, pages) / pages if pages else 0.0
    return round(vision_tokens + pages * PAGE_OVERHEAD_TOKENS + retrieved)


def plan(text: str, styles: Iterable[str | PageStyle], geometry: VisionGeometry = GLM_41V) -> tuple[PlanRow, ...]:
    """One row for each style; `auto` stands for the layout it chooses. Raises InputError for an unknown style."""
    return tuple(_row(text, settle(text, style, geometry), geometry) for style in styles)


def own_pages_row(document: Document, geometry: VisionGeometry = GLM_41V) -> PlanRow:
    """What the pages of a document cost as they are, e.g. those of a PDF."""
    tokens = sum(geometry.tokens(page.width_px, page.height_px) for page in document)
    return PlanRow(document.style, len(document.pages), tokens, None)


def settle(text: str, style: str | PageStyle, /, geometry: VisionGeometry = GLM_41V, **changes: object) -> PageStyle:
    """The style to lay `text` out in: `auto` becomes the cheapest layout, anything else stays what it is.

    `changes` are fields set by the user; `auto` then chooses among the layouts that keep them.
    """
    if style != AUTO:
        return resolve_style(style, **changes)
    sample = _sample(text)
    rows = [_row(sample, candidate, geometry) for candidate in _candidates(changes)]
    # The first of equals: a layout that keeps the source's lines goes before one that runs them on.
    return min(rows, key=lambda row: row.vision_tokens).style


def _candidates(changes: dict[str, object]) -> list[PageStyle]:
    """Layouts with the letters of `seer`, on a page of whole 28 px cells, which the model's resize leaves sharp."""
    base = STYLES["seer"].model_copy(update={"page_width_px": 588, "page_height_px": 840, "margin_x_px": 16})
    ways: list[tuple[str, dict[str, object]]] = [("auto:lines", {"crop_width": True})]
    ways += [(f"auto:columns={num}", {"columns": num, "crop_width": True}) for num in (2, 3, 4)]
    ways.append(("auto:mark", {"newline": "mark", "crop_width": True}))
    return [
        resolve_style(base, **(values | changes)).model_copy(update={"name": name})
        for name, values in ways
        if not any(key in changes and changes[key] != value for key, value in values.items() if key != "crop_width")
    ]


def _row(text: str, style: PageStyle, geometry: VisionGeometry) -> PlanRow:
    pages = tokens = 0
    for page in lay_out([text], Measure(style, load_chain(style.fonts))):
        pages += 1
        tokens += geometry.tokens(page.width_px, page.height_px)
    resized_px, _ = geometry.resized(style.page_width_px, style.page_height_px)
    return PlanRow(style, pages, tokens, style.font_size_px * resized_px / style.page_width_px)


def _sample(text: str) -> str:
    """The whole of a text, or, past a million characters, evenly spaced windows of it."""
    if len(text) <= _SAMPLE_WINDOWS * PIECE_CHARS:
        return text
    step = len(text) // _SAMPLE_WINDOWS
    return "".join(text[k * step : k * step + PIECE_CHARS] for k in range(_SAMPLE_WINDOWS))
