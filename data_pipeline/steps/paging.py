"""Find where the pages of a context start and end. Only the layout runs; no page is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from data_pipeline.records import PageSpan, Sample
from seer.evaluation.benchmarks.tasks import TASKS
from seer.protocol.geometry import GLM_41V
from seer.schema import NewlineMode, PageStyle


class Paginate(Protocol):
    """Splits a text into pages. `newline` applies if the page style leaves the newline mode open, as `paper` does."""

    def __call__(self, text: str, newline: NewlineMode | None = None) -> tuple[PageSpan, ...]: ...


def newline_of(sample: Sample) -> NewlineMode | None:
    """Return how the sample's benchmark task shows newlines, or None without a task."""
    return TASKS[sample.task].newline if sample.task else None


def layout_pages(style: PageStyle) -> Paginate:
    """Return a function that splits a text into the pages of `style`, the same pages that readers and the trainer draw."""
    from seer.rendering import stream
    from seer.rendering.styles import with_newline

    def paginate(text: str, newline: NewlineMode | None = None) -> tuple[PageSpan, ...]:
        return tuple(
            PageSpan(
                page.number,
                page.start,
                page.end,
                GLM_41V.tokens(page.width_px, page.height_px),
                page.width_px,
                page.height_px,
            )
            for page in stream(text, with_newline(style, newline))
        )

    return paginate


_NOMINAL_PX = (595, 842)
"""A4 at 72 dpi: the size of pages that no layout measured."""


def fixed_pages(page_chars: int) -> Paginate:
    """Return a function that cuts pages of `page_chars` characters: for measurements without a layout, not for training."""

    def paginate(text: str, newline: NewlineMode | None = None) -> tuple[PageSpan, ...]:
        starts = range(0, max(1, len(text)), page_chars)
        return tuple(
            PageSpan(n, start, min(start + page_chars, len(text)), 0, *_NOMINAL_PX) for n, start in enumerate(starts, 1)
        )

    return paginate


def pages_overlapping(spans: Sequence[tuple[int, int]], pages: Sequence[PageSpan]) -> tuple[int, ...]:
    """Return the numbers of the pages that overlap any of the spans, ascending."""
    return tuple(page.number for page in pages if any(start < page.end and end > page.start for start, end in spans))
