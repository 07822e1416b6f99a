"""Report on a frontier: score against prompt tokens over print densities and retrieval budgets."""

from __future__ import annotations

from collections.abc import Sequence

from seer.evaluation.analysis.frontier import Point
from seer.evaluation.analysis.scored_run import ScoredRun
from seer.evaluation.reports.notes import conditions
from seer.evaluation.reports.scores import runs_section
from seer.web.tables import Dot, Plot, Report, Section, Table, columns, row


def frontier_report(points: Sequence[Point], runs: Sequence[ScoredRun], note: str = "") -> Report:
    """Return a report with a plot of score against prompt tokens, its table, and the settings of the runs."""
    dots = [Dot(one.prompt_tokens, one.score, one.budget, one.density, one.is_on_front) for one in points]
    rows = [
        row(
            *(one.density, one.budget, one.characters_per_vision_token, one.score, one.prompt_tokens),
            *(one.visual_tokens, one.retrieved_tokens, one.compression, "yes" if one.is_on_front else ""),
            *(one.num_inputs, one.num_failed),
        )
        for one in points
    ]
    heads = columns(
        *("density", "budget", "characters per vision token:2", "score:2", "prompt tokens:1", "visual:1"),
        *("retrieved:1", "compression:2", "on the front", "inputs", "failed"),
    )
    text = (
        "Each point is a run with a print density and a budget of retrieved text (k: pages per call, t: tokens; pictures: none). "
        "The score is the mean of categories; tokens are those of the last prompt. The dashed line connects the Pareto front: "
        "runs for which no other has at least the same score for at most the same tokens. " + note
    )
    plot = Plot("Score against prompt tokens", "prompt tokens", "score", dots)
    section = Section(
        "Frontier", text.strip(), [Table("Runs of the sweep", heads, rows, conditions(runs))], plots=[plot]
    )
    best = max(points, key=lambda one: (one.score, -one.prompt_tokens))
    front = ", ".join(one.run for one in sorted(points, key=lambda one: one.prompt_tokens) if one.is_on_front)
    summary = [
        f"Best score: {best.score:.2f} by {best.run} with {best.prompt_tokens:,.1f} prompt tokens",
        f"On the front, from the cheapest: {front}",
    ]
    return Report(
        f"Frontier of {runs[0].report.benchmark.name}",
        summary,
        [section, runs_section(runs)],
        {run.name: run.report.to_json() for run in runs},
    )
