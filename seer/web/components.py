"""Parts that the report pages share: notes, folds, tables, page pictures, citations and text in loss-class colours.

Every function takes plain values and returns `Html`; all text is escaped by the builder in `seer.web.html`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from seer.schema import Citation, Document, LossClass, Page, Region
from seer.web.html import Child, Html, element, fragment, png_url
from seer.web.wording import cite, make_page_strip

Tone = Literal["", "good", "warn", "bad"]


# ── Text ─────────────────────────────────────────────────────────────────────────────────────────


def note_line(*children: Child | Iterable[Child]) -> Html:
    """A paragraph in small, dim type."""
    return element("p", *children, class_="note")


def callout(*children: Child | Iterable[Child], tone: Tone = "") -> Html:
    """A highlighted block that keeps line breaks, for answers and warnings."""
    return element("div", *children, class_=_classes("callout", tone), dir="auto")


def verbatim(text: str, heading: str = "") -> Html:
    """Text with its line breaks in a scrolling box, with an optional heading line in bold."""
    return element("pre", [element("b", heading), "\n"] if heading else None, text, dir="auto")


def fold(summary: str, *children: Child | Iterable[Child]) -> Html:
    """Content that starts collapsed under a summary line."""
    return element("details", element("summary", summary), *children)


def facts(pairs: Iterable[tuple[str, str]]) -> Html:
    """Terms with their values, in two columns."""
    return element(
        "dl",
        [fragment(element("dt", term), element("dd", value, dir="auto")) for term, value in pairs],
        class_="facts",
    )


# ── Tables ───────────────────────────────────────────────────────────────────────────────────────


def table(heads: Iterable[Html], rows: Iterable[Html]) -> Html:
    """A table from `th` and `tr` elements. It scrolls sideways where the screen is narrow."""
    head = element("thead", element("tr", heads))
    return element("div", element("table", head, element("tbody", rows)), class_="scroll")


# ── Pages of a document ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Mark:
    """A rectangle drawn over a page picture. All lengths are fractions of the picture's width or height."""

    left: float
    top: float
    width: float
    height: float
    title: str
    """Shown when the pointer rests on the mark."""
    is_citation: bool = True
    """False for a region that a step found."""


def region_marks(region: Region, page: Page, title: str, *, is_citation: bool = True) -> list[Mark]:
    """Marks at the boxes of a region on its page."""
    width, height = page.width_px, page.height_px
    return [
        Mark(box.x_px / width, box.y_px / height, box.width_px / width, box.height_px / height, title, is_citation)
        for box in region.boxes
    ]


def thumbnail(
    number: int,
    png: bytes,
    caption: str,
    *,
    is_selected: bool = False,
    is_missed: bool = False,
    anchor: str = "",
    marks: Iterable[Mark] = (),
) -> Html:
    """A page picture. A solid frame marks a selected page, a dashed one a page that should have been selected.

    With an `anchor`, the figure has that id, and a click on the picture enlarges it in place. `marks` are drawn over
    the picture.
    """
    image = element("img", alt=f"page {number}", src=png_url(png), loading="lazy")
    picture: Html = element("span", image, map(_mark, marks), class_="sheet")
    if anchor:
        picture = element("a", picture, href=f"#{anchor}", title="enlarge")
    # An anchor that no element has ends the enlargement without scrolling.
    close = element("a", "close", href="#closed", class_="close") if anchor else None
    return element(
        "figure",
        picture,
        element("figcaption", caption, close),
        class_=_classes("selected" if is_selected else "missed" if is_missed else ""),
        id=anchor or None,
    )


def _mark(mark: Mark) -> Html:
    style = "".join(
        f"{name}:{100 * min(max(fraction, 0.0), 1.0):.3f}%;"
        for name, fraction in (("left", mark.left), ("top", mark.top), ("width", mark.width), ("height", mark.height))
    )
    return element("span", class_=_classes("mark", "" if mark.is_citation else "found"), style=style, title=mark.title)


def thumbnails(figures: Iterable[Html], *, is_small: bool = False) -> Html:
    """Page pictures in a grid that adapts to the screen."""
    return element("div", figures, class_=_classes("pages", "small" if is_small else ""))


def page_strip(num_pages: int, selected: Collection[int]) -> Html:
    """The document as a row of squares, those with selected pages filled; empty for fewer than two pages."""
    if num_pages < 2:
        return Html("")
    strip = make_page_strip(num_pages, selected)
    squares = [element("i", class_="on" if is_filled else "") for is_filled in strip.filled]
    listed = ", ".join(map(str, sorted(selected))) or "none"
    label = f"selected pages: {listed} of {num_pages}"
    scale = element("span", f"{strip.pages_per_square} pages each") if strip.pages_per_square > 1 else None
    return element("div", squares, scale, class_="strip", role="img", aria_label=label, title=label)


def citation_chips(citations: Sequence[Citation], document: Document, shown: Collection[int] = ()) -> Html:
    """Citations as a list of chips. A chip links to its page picture if the page is among the `shown` numbers."""

    def chip(citation: Citation) -> Html:
        text = cite(citation, document)
        content: Child = element("a", text, href=f"#p{citation.page}") if citation.page in shown else text
        return element("li", content, class_="verified" if citation.verified else "unverified", dir="auto")

    return element("ul", map(chip, citations), class_="chips")


# ── Text in loss-class colours ───────────────────────────────────────────────────────────────────


def loss_span(text: str, loss_class: LossClass, *, is_learned: bool = False, title: str | None = None) -> Html:
    """Text on the colour of its loss class, underlined if it is learned."""
    classes = _classes("loss", loss_class.value, "learned" if is_learned else "")
    return element("span", text, class_=classes, title=title)


def loss_text(spans: Iterable[Html]) -> Html:
    """Loss spans in order, as one block that keeps line breaks."""
    return element("div", spans, class_="loss-text", dir="auto")


def loss_legend() -> Html:
    """The colours of all loss classes with their names."""
    names = [fragment(loss_span(loss_class.value, loss_class), " ") for loss_class in LossClass]
    return element("p", "Loss classes: ", names, class_="legend")


def _classes(*names: str) -> str:
    return " ".join(name for name in names if name)
