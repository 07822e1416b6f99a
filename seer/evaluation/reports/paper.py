"""Figures that papers report, to stand beside ours: never measured here, and marked as the papers' wherever shown.

Source: the Seer paper's text (sections 6.1 to 6.4 and appendices A.6 to A.11). Its numbers rest on its own prompts and
its own checkpoint, and it does not say which post-processing it used, so that a difference of a few points from a
run of ours need not mean anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PaperFigures:
    """What the paper says of one system. None and empty where it says nothing."""

    name: str
    macro: float
    tasks: Mapping[str, float] = field(default_factory=dict)
    qa_mean: float | None = None
    """Plain mean of the seven question-answering tasks."""
    prompt_tokens: float | None = None
    compression: float | None = None


PAPER_FIGURES = (
    PaperFigures(
        "Seer (paper)",
        51.11,
        {"qasper": 47.74, "narrativeqa": 26.05, "hotpotqa": 60.22},
        qa_mean=52.54,
        prompt_tokens=7623.8,
        compression=1.28,
    ),
    PaperFigures(
        "Glyph-9B (paper)",
        48.78,
        {"qasper": 38.99, "narrativeqa": 21.83, "hotpotqa": 56.42},
        qa_mean=45.98,
        prompt_tokens=3522.5,
        compression=3.14,
    ),
    PaperFigures("Qwen3-8B (paper)", 47.62, qa_mean=52.25),
    PaperFigures("Seer without retrieval (paper)", 43.00),
    PaperFigures("Same data, no mechanism (paper)", 45.20, qa_mean=44.67),
)

PAPER_FULL_TEXT_TOKENS = 10175.8
"""Mean full-text prompt over tasks, by GLM-4-9B-Chat-1M's tokenizer."""

PAPER_PAGE_SELECTION = (
    ("Seer (paper)", 0.578, 0.425),
    ("BM25, matched budget (paper)", 0.606, None),
    ("first pages, matched budget (paper)", 0.486, None),
    ("random pages, matched budget (paper)", 0.413, None),
)
"""Name, F1 over samples with relevant pages, F1 over all samples."""

PAPER_SELECTION = ("Seer (paper)", 1.59, 1.0, None, 6.6, 4750)
"""Mean and median number of selected pages, share above three (below 1 %, not given exactly), document pages, samples."""

PAPER_SCOPE = (
    ("mean of categories (paper)", 43.00, None, 51.11, 8.11, None),
    ("mean of tasks (paper)", None, None, None, 4.88, 61.5),
)
"""k = 0, k = 1, k = all, gain, share of the gain that k = 1 recovers in percent."""
