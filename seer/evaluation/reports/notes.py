"""Notes under the tables of a report, and the paper's figures for comparison.

The paper's figures come from its text (sections 6.1 to 6.4, appendices A.6 to A.11) and are marked "(paper)" in every
table. They depend on its own prompts and checkpoint, and the paper does not name its post-processing, so a difference of
a few points from our runs is not meaningful.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seer.evaluation.analysis.scored_run import ScoredRun
from seer.evaluation.benchmarks.tasks import LONGBENCH
from seer.evaluation.files import SESSIONS
from seer.evaluation.runs.score import scored_with

# ── How the runs of a table were made ────────────────────────────────────────────────────────────


def conditions(runs: Sequence[ScoredRun], *more: str) -> str:
    """Return the note under a table: post-processing, prompts, versions, failed and missing inputs of its runs.

    Runs with the same prompts and versions share one entry. `more` adds sentences.
    """
    scoring = {
        f"{run.report.postprocess.value} post-processing, code ratio {run.report.code_ratio.value}" for run in runs
    }
    # Runs made with the same prompts and versions share one sentence.
    made: dict[str, list[str]] = {}
    for run in runs:
        made.setdefault(_made_with(run), []).append(run.name)
    failed = ", ".join(f"{run.name} {run.report.failures}" for run in runs)
    parts = [f"{' / '.join(sorted(scoring))}, scored with {scored_with()}"]
    parts += [f"{', '.join(names)}: {how}" for how, names in made.items()]
    parts.append(f"Failed inputs: {failed}")
    parts += [f"PARTIAL: {run.name} lacks {sum(run.report.gaps.values())} inputs" for run in runs if run.report.gaps]
    parts += [
        f"{run.name} has {run.report.deep} samples that the published scorer would fail on and count 0"
        for run in runs
        if run.report.deep
    ]
    return ". ".join([*parts, *more]) + "."


def are_of_longbench(runs: Sequence[ScoredRun]) -> bool:
    """Return whether all runs are of LongBench, so that the papers' figures can be shown for comparison."""
    return all(run.report.benchmark is LONGBENCH for run in runs)


def left_out(runs: Sequence[ScoredRun], used: Sequence[ScoredRun]) -> list[str]:
    """Return a sentence that names the runs a table cannot use, as a list of at most one."""
    names = [run.name for run in runs if run not in used]
    return [f"Left out, since they hold no such records: {', '.join(names)}"] if names else []


def _made_with(run: ScoredRun) -> str:
    """Return the prompts and library versions of a run. A run resumed with other versions lists all of them."""
    manifest = run.report.manifest
    # A run has one entry per session; sessions with equal versions are named once.
    versions = [session.get("versions", {}) for session in manifest.get(SESSIONS, ())]
    listed = dict.fromkeys(", ".join(f"{name} {number}" for name, number in one.items()) for one in versions if one)
    return f"prompts {manifest.get('prompts', 'not known')}, {' then '.join(listed) or 'versions not known'}"


# ── Figures of the paper ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class PaperFigures:
    """Figures of one system in the paper. None, or an empty mapping, for figures that the paper does not give."""

    name: str
    macro: float
    tasks: Mapping[str, float] = field(default_factory=dict)
    qa_mean: float | None = None
    """Mean of the seven question-answering tasks."""
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
"""Name, F1 over samples with relevant pages, F1 over all samples (table 17)."""

PAPER_SELECTION = ("Seer (paper)", 1.59, 1.0, None, 6.6, 4750)
"""Mean and median number of selected pages, percentage above three (only given as below 1 %), document pages, samples."""

PAPER_SCOPE = (
    ("mean of categories (paper)", 43.00, None, 51.11, 8.11, None),
    ("mean of tasks (paper)", None, None, None, 4.88, 61.5),
)
"""Scores with k = 0, k = 1 and k = all, gain, and the percentage of the gain that k = 1 recovers."""
