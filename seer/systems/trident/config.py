"""Settings of Trident, with the paper's values as defaults; each ablation of the paper is one setting."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seer.schema import Record

FieldName = Literal["caption", "section", "entities", "concepts", "snippet"]
FIELDS: tuple[FieldName, ...] = ("caption", "section", "entities", "concepts", "snippet")
Lens = Literal["topical", "entity", "structural"]
LENSES: tuple[Lens, ...] = ("topical", "entity", "structural")


class TridentConfig(Record):
    """Settings of Trident."""

    pool: int = Field(20, ge=1)
    """Candidate pages from the first stage."""
    max_pages: int = Field(5, ge=1)
    """Most pages that the rerank call may choose, K_max of the paper."""
    fields: tuple[FieldName, ...] = FIELDS
    """Fields of a record that the rerank call sees. ("snippet",) is the ablation without annotation, which makes no
    annotation calls; ("caption",) the caption alone."""
    rerank: bool = True
    """False: the first stage's best `max_pages` pages go to the answer."""
    lenses: tuple[Lens, ...] = LENSES
    """Lenses of Trident-S, asked at the same time. None of them is the paper's "Plain": one call."""
    snippet_characters: int = Field(600, ge=0)
    """Length of the text snippet in a record (ours)."""
    max_side_px: int | None = Field(None, ge=28)
    """Longest side of a page image; None keeps the page's size."""
    max_new_tokens: int = Field(1024, ge=16)
    """Limit of one reply (ours)."""
