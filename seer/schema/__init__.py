"""The records that every part of Seer exchanges: frozen, validated at construction, unknown keys rejected.

Spans are half-open, [start, end), and count Unicode code points of the source text. Page numbers start at 1. Sizes carry
their unit in the name: `_px`, `_pt`.

    base            Record, the base of all others
    documents       PageStyle, Page, Document, DocumentWarning; LineBox, Box and Region: places on a page
    conversations   Turn, Excerpt, Trajectory, LossClass
    answers         Answer, Citation, Step, Usage, Prediction
"""

from __future__ import annotations

from seer.schema.answers import Answer, Citation, Failure, Prediction, Status, Step, StepUsage, Usage
from seer.schema.base import Record
from seer.schema.conversations import Excerpt, LossClass, Trajectory, Turn
from seer.schema.documents import (
    Box,
    Document,
    DocumentWarning,
    LineBox,
    MissingGlyph,
    NewlineMode,
    Page,
    PageStyle,
    Region,
)

__all__ = [
    "Answer",
    "Box",
    "Citation",
    "Document",
    "DocumentWarning",
    "Excerpt",
    "Failure",
    "LineBox",
    "LossClass",
    "MissingGlyph",
    "NewlineMode",
    "Page",
    "PageStyle",
    "Prediction",
    "Record",
    "Region",
    "Status",
    "Step",
    "StepUsage",
    "Trajectory",
    "Turn",
    "Usage",
]
