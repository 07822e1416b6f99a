"""The paper's figures that its text gives, by table. None and missing keys: the text does not give the figure.

The tables themselves are figures of another checkpoint with other prompts, so a difference of a few points from our runs
is not meaningful.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SEER, GLYPH, ISO, K0 = "seer", "glyph", "iso", "k0"


@dataclass(frozen=True)
class PublishedScores:
    """Scores of one system in the paper, in points."""

    name: str
    macro: float | None = None
    qa_mean: float | None = None
    tasks: Mapping[str, float] = field(default_factory=dict)


SCORES = {
    SEER: PublishedScores("Seer (paper)", 51.11, 52.54, {"qasper": 47.74, "narrativeqa": 26.05, "hotpotqa": 60.22}),
    GLYPH: PublishedScores(
        "Glyph-9B (paper)",
        48.78,
        45.98,
        {"qasper": 38.99, "narrativeqa": 21.83, "hotpotqa": 56.42, "lsht": 45.50, "samsum": 32.82},
    ),
    ISO: PublishedScores("Same data, no mechanism (paper)", 45.20, 44.67, {"lsht": 22.25, "samsum": 9.60}),
    K0: PublishedScores("Seer without retrieval (paper)", 43.00),
    "qwen3-8b": PublishedScores("Qwen3-8B (paper)", 47.62, 52.25),
    "rlm": PublishedScores("RLM-Qwen3-8B (paper)", None, 42.60),
}

GAINS_OVER_GLYPH = {
    **{"qasper": 8.75, "narrativeqa": 4.22, "hotpotqa": 3.80, "multifieldqa_zh": 19.17, "multifieldqa_en": 10.76},
    **{"passage_retrieval_zh": 6.00, "vcsum": 1.92},
}
"""Seer minus Glyph-9B by task (section 6.1 and table 4)."""
CHINESE_TASKS = ("multifieldqa_zh", "passage_retrieval_zh", "vcsum")
"""The tasks of table 4."""
REMAINING_TASKS = (
    *("multifieldqa_zh", "multifieldqa_en", "musique", "dureader", "multi_news", "samsum", "lcc", "repobench-p"),
)
"""The tasks of table 10, from its caption; table 1 has the others."""
FIRST_TOKEN_TASKS = 11
"""Tasks in table 11; table 12 has the others."""

TOKENS = (
    ("GLM-4-9B-Chat-1M (paper)", 10175.8, 1.0),
    ("Glyph-9B (paper)", 3522.5, 3.14),
    ("Seer (paper)", 7623.8, 1.28),
)
"""Name, prompt tokens, compression (table 2)."""

RETENTION = (("kept in phase 1 (paper)", 30697), ("kept in phase 2, 7 sources (paper)", 10041))
"""Samples after each phase (table 7)."""

LATENCY = (("Seer (paper)", 5.47, 381.0, 76.0), ("GLM-4-9B-Chat-1M, full text (paper)", 1.07, 8.0, 36.0))
"""Name, median seconds end to end, median completion tokens, decode tokens a second (table 13)."""
LATENCY_NOTE = "The paper gives 0.21 to 0.29 s of prefill for its three systems"

PREFILL = ((5_400, 0.26), (79_000, 5.53))
"""Text tokens, seconds of text prefill (table 14); past about 128k tokens the text does not fit."""
KV_SAVING = 0.67
"""Fraction of key-value memory that pages save over text."""

SELECTORS = (
    ("Seer (paper)", 0.578, 1.62, 0.425, 0.487, 0.675),
    ("BM25, matched budget (paper)", 0.606, 1.77, None, 0.474, 0.746),
    ("first, matched budget (paper)", 0.486, 1.77, None, None, None),
    ("random, matched budget (paper)", 0.413, 1.77, None, None, None),
)
"""Name, F1, pages, all-sample F1, F1 with low and with high lexical overlap (table 17)."""

FORCED = (("Seer (paper, 15 tasks)", 48.34), ("BM25 (paper, 15 tasks)", 44.03))
"""Mean of the 15 tasks of table 18."""
SEER_MINUS_BM25 = {"musique": 10.1, "2wikimqa": 11.4, "multifieldqa_zh": 6.1}

SCOPE = (
    ("mean of categories (paper)", 43.00, None, 51.11, 8.11, None),
    ("mean of tasks (paper)", None, None, None, 4.88, 61.5),
)
"""Scores with k = 0, k = 1 and k = all, gain, percentage of the gain that k = 1 recovers (figure 3)."""
