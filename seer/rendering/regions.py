"""Regions: the position of a span of a document's text on its pages.

    regions = regions_of(document, citation.start, citation.end, kind="quote")

A region is the part of the span on one page, with its boxes in pixels on the page's image.
"""

from __future__ import annotations

from seer.schema import Document, Region


def regions_of(document: Document, start: int, end: int, kind: str = "text") -> tuple[Region, ...]:
    """Return one region for each page that the source text [start, end) touches, in page order.

    An empty span has no regions. The boxes of laid-out text and of PDF text end exactly at the span's first and last
    character. The lines of a scan have no character positions, so a box there is the whole line.

    Raises ValueError if the span does not lie within the document's text.
    """
    if not 0 <= start <= end <= len(document.text):
        raise ValueError(
            f"span [{start}, {end}) of '{document.name}': must lie within its {len(document.text)} characters"
        )
    if start == end:
        return ()
    first, last = document.page_at(start).number, document.page_at(end - 1).number
    regions = []
    for page in document.pages[first - 1 : last]:
        low, high = max(start, page.start), min(end, page.end)
        if low < high:
            boxes = tuple(page.span_boxes(low, high))
            regions.append(Region(page=page.number, start=low, end=high, boxes=boxes, kind=kind))
    return tuple(regions)
