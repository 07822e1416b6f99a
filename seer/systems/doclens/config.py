"""Settings of DocLens, with the paper's values as defaults; each ablation of the paper is one setting."""

from __future__ import annotations

from pydantic import Field

from seer.systems.evidence.config import EvidenceConfig


class DocLensConfig(EvidenceConfig):
    """Settings of DocLens."""

    navigator_samples: int = Field(8, ge=1, le=64)
    """Samples of the page navigator, T_e of the paper. 1 is the ablation without sampling."""
    answer_samples: int = Field(8, ge=1, le=64)
    """Samples of the answer sampler, T_a of the paper."""
    temperature: float = Field(0.7, ge=0, le=2)
    """Of the navigator and the sampler. The adjudicator uses 0."""
    chunk_pages: int = Field(50, ge=1)
    """Pages of one navigator request, K of the paper, if all pages together exceed the model's window."""
    lens: bool = True
    """False: all pages go straight to the answer sampler, without navigator and localizer."""
    localizer: bool = True
    """False: pages go to the answer sampler without crops."""
    reasoning: bool = True
    """False: one answer at temperature 0 replaces sampling and adjudication."""
    text: bool = True
    """False: the navigator and the sampler see page images without their text (the ablation without OCR)."""
    oracle: bool = False
    """True: the gold pages of the task replace the navigator."""
    min_score: float = Field(0.5, ge=0, le=1)
    """Lowest confidence of a layout element (ours)."""
    max_crops: int = Field(8, ge=0)
    """Most crops of one page, tables and figures first (ours)."""
    crop_text: bool = False
    """True: blocks of text are cropped, too (ours: the paper crops key visual elements)."""
