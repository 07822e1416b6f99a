"""Settings of DocMemo. The paper publishes the rounds, the crops and the form of the score; the constants are ours."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seer.systems.evidence.config import EvidenceConfig


class DocMemoConfig(EvidenceConfig):
    """Settings of DocMemo; each ablation of the paper is one setting."""

    rounds: int = Field(3, ge=1, le=16)
    """Most rounds of reading; the paper's value."""
    pages_per_round: int = Field(4, ge=1)
    """New pages that a round reads (ours)."""
    max_crops: int = Field(5, ge=0)
    """Most crops of tables a question; the paper's value. 0 is the ablation without crops."""
    crop_side_px: int = Field(1500, ge=28)
    """Longest side of a crop; the paper's value."""
    schema_memory: bool = True
    """False: no schema is built, planned with or shown."""
    belief: bool = True
    """False: pages are scored by similarity alone."""
    bayes: bool = True
    """False: beliefs keep their prior; nothing is learned from a round."""
    sampling: Literal["thompson", "mean"] = "thompson"
    """"mean" is the ablation without Thompson sampling: the mean of each belief instead of a sample."""
    episodic: bool = True
    """False: a round does not see what earlier rounds found, and repeats the first query."""
    alpha: float = Field(1.0, gt=0)
    beta: float = Field(1.0, gt=0)
    """Prior of every page, Beta(alpha, beta) (ours)."""
    radius: int = Field(2, ge=0)
    """Positive evidence reaches neighbours within this many pages, r of the paper (value ours)."""
    decay: float = Field(0.5, ge=0, le=1)
    """A neighbour at distance d receives decay**d, γ of the paper (value ours)."""
    max_lambda: float = Field(0.5, ge=0, le=1)
    """Weight of the beliefs in the last round; it grows linearly from 0 in the first (ours)."""
    schema_evidence: float = Field(0.5, ge=0)
    """Evidence that a page receives if the plan names it (ours)."""
    schema_characters: int = Field(200, ge=0)
    """Characters of each page from which the schema is built (ours)."""
    first_stage: Literal["bm25", "dense"] = "bm25"
    """Gives the similarity of pages to a query."""
    memory: str = ""
    """Folder that keeps the schemas of documents between runs; empty keeps them in this process."""
