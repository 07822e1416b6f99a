"""Settings of Trident, with the paper's values as defaults; each ablation of the paper is one setting."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seer.systems.evidence.config import EvidenceConfig

FieldName = Literal["caption", "section", "entities", "concepts", "snippet"]
FIELDS: tuple[FieldName, ...] = ("caption", "section", "entities", "concepts", "snippet")
Lens = Literal["topical", "entity", "structural"]
LENSES: tuple[Lens, ...] = ("topical", "entity", "structural")


class TridentConfig(EvidenceConfig):
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
    first_stage: Literal["bm25", "dense", "hybrid"] = "bm25"
    """Ranks the pages for the candidate pool."""
    memory: str = ""
    """Folder that keeps the records of pages between runs; empty keeps them in this process."""
