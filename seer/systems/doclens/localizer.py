"""The element localizer of DocLens: crops of the tables and figures on each evidence page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from seer.engines.base import ChatImage
from seer.schema import Page, Region
from seer.systems.doclens.config import DocLensConfig
from seer.systems.evidence.elements import Element, LayoutDetector
from seer.systems.evidence.images import crop_image
from seer.systems.evidence.system import Question

_ORDER = {"table": 0, "figure": 1, "equation": 2, "text": 3}


@dataclass(frozen=True)
class PageEvidence:
    """One member of the evidence set: a page and the crops of its elements."""

    page: Page
    crops: tuple[tuple[Region, ChatImage], ...] = ()


async def localize(
    question: Question, numbers: Sequence[int], detector: LayoutDetector | None, config: DocLensConfig
) -> list[PageEvidence]:
    """Return the evidence of the pages with these numbers, and record the step. Without a detector there are no crops."""
    pages = [question.document.page(number) for number in numbers]
    if detector is None:
        return [PageEvidence(page) for page in pages]
    started = time.perf_counter()
    # Drawing and detection take half a second a page, so they run outside the event loop.
    evidence = [await asyncio.to_thread(_localize_page, page, detector, config) for page in pages]
    regions = [region for item in evidence for region, _ in item.crops]
    question.record(
        "localize",
        pages=numbers,
        regions=regions,
        outputs={"elements": [f"page {region.page}: {region.kind}" for region in regions]},
        seconds=time.perf_counter() - started,
    )
    return evidence


def _localize_page(page: Page, detector: LayoutDetector, config: DocLensConfig) -> PageEvidence:
    """Return a page with the crops of its elements, tables and figures first where there are too many."""
    found = [element for element in detector.detect(page) if config.crop_text or element.kind != "text"]
    kept = sorted(found, key=lambda element: (_ORDER[element.kind], -element.score))[: config.max_crops]
    kept.sort(key=_position)
    return PageEvidence(page, tuple((element.region(page), crop_image(page, element.box)) for element in kept))


def _position(element: Element) -> tuple[float, float]:
    """Return the sort key of reading order: from top to bottom, then from left to right."""
    return element.box.y_px, element.box.x_px
