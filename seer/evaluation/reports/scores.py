"""Sections of a report on scores: the runs, their scores, and paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seer.evaluation.analysis.scored_run import ScoredRun
from seer.evaluation.analysis.statistics import Comparison, bootstrap_interval, compare
from seer.evaluation.reports.notes import PAPER_FIGURES, are_of_longbench, conditions
from seer.web.tables import Bar, Chart, Column, Section, Table, columns, row

_PAPERS = "Figures marked (paper) are reported by a paper and not measured here"
_GAP_COLUMNS = ("difference:+2", "95 % from:+2", "to:+2", "p:4")


def summary_points(runs: Sequence[ScoredRun]) -> list[str]:
    """Return one sentence per run: its overall score, its number of inputs, and failed and missing inputs."""
    points = []
    for run in runs:
        report = run.report
        size = (
            f"{report.num_inputs:,} of {report.num_benchmark:,} inputs"
            if report.num_inputs < report.num_benchmark
            else f"all {report.num_inputs:,} inputs"
        )
        partial = f"; PARTIAL, {sum(report.gaps.values()):,} inputs missing" if report.gaps else ""
        points.append(
            f"{run.name}: {report.macro:.2f} (mean of categories) over {size}, {report.failures} failed{partial}"
        )
    return points


def categories_of(runs: Sequence[ScoredRun]) -> dict[str, str]:
    """Return the category of each task that a run has, in the benchmark's order."""
    order = {name: task.category for run in runs for name, task in run.report.benchmark.tasks.items()}
    return {name: category for name, category in order.items() if any(name in run.report.tasks for run in runs)}


def runs_section(runs: Sequence[ScoredRun]) -> Section:
    """Return the settings of the runs from their manifests, and the numbers of their inputs."""
    keys = ("system", "engine", "model", "selector", "style", "prompts")
    rows = []
    for run in runs:
        settings = {**run.report.manifest, "style": style_name(run.report.manifest.get("style"))}
        described = [str(settings.get(key) or "–") for key in keys]
        counts = (run.report.num_inputs, run.report.failures, sum(run.report.gaps.values()))
        rows.append(row(run.name, *described, *counts))
    heads = columns("run", *keys, "inputs", "failed", "missing")
    text = "A failed input counts 0 and stays in the denominator."
    return Section("Runs", text, [Table("Settings of the runs", heads, rows, conditions(runs))])


def style_name(style: Any) -> str:
    """Return the name of the page style in a manifest: a name, a dictionary with all fields, or None."""
    return str(style.get("name")) if isinstance(style, dict) else str(style or "–")


def scores_section(runs: Sequence[ScoredRun], seed: int) -> Section:
    """Return the scores overall, by category and by task (tables 1 and 10)."""
    intervals = {run.name: bootstrap_interval(run.sample_scores(), run.categories(), seed=seed) for run in runs}
    bars = [Bar(name, [(one.mean, "")], one.low, one.high) for name, one in intervals.items()]
    # The papers' figures are shown only next to runs of the same benchmark.
    papers = PAPER_FIGURES if are_of_longbench(runs) else ()
    bars += [Bar(paper.name, [(paper.macro, "")], is_paper=True) for paper in papers]
    overall = [row(run.name, run.report.macro, intervals[run.name].low, intervals[run.name].high) for run in runs]
    overall += [row(paper.name, paper.macro, None, None, kind="paper") for paper in papers]
    title = "Mean of categories, with 95 % bootstrap interval"
    return Section(
        "Scores",
        "The overall score is the mean of the categories' means. Bars with dashes are figures from a paper.",
        [
            Table(
                "Overall scores",
                columns("run", "mean of categories:2", "95 % from:2", "to:2"),
                overall,
                conditions(runs, f"Bootstrap within tasks, seed {seed}", _PAPERS),
            ),
            _task_table(runs),
        ],
        [Chart(title, bars, "points", 2)],
    )


def _task_table(runs: Sequence[ScoredRun]) -> Table:
    papers = [paper for paper in (PAPER_FIGURES if are_of_longbench(runs) else ()) if paper.tasks or paper.qa_mean]
    names = [*(run.name for run in runs), *(paper.name for paper in papers)]
    rows = []
    found = categories_of(runs)
    for category in dict.fromkeys(found.values()):
        for name in found:
            if found[name] == category:
                ours = [run.report.scores.get(name) for run in runs]
                rows.append(row(name, *ours, *(paper.tasks.get(name) for paper in papers)))
        means = [run.report.categories.get(category) for run in runs]
        rows.append(row(f"mean of {category}", *means, *(None for _ in papers), kind="total"))
    macros = [*(run.report.macro for run in runs), *(paper.macro for paper in papers)]
    rows.append(row("mean of categories", *macros, kind="total"))
    seven = [*(run.report.qa_mean for run in runs), *(paper.qa_mean for paper in papers)]
    if any(value is not None for value in seven):
        rows.append(row("mean of 7 QA tasks", *seven, kind="total"))
    heads = [Column("task"), *(Column(name, 2) for name in names)]
    return Table("Scores by task", heads, rows, conditions(runs, _PAPERS))


def comparison_section(runs: Sequence[ScoredRun], seed: int) -> Section | None:
    """Return paired comparisons of each other run with the first; None for a single run."""
    if len(runs) < 2:
        return None
    first, *others = runs
    rows, folded = [], []
    for other in others:
        mine, theirs = first.sample_scores(), other.sample_scores()
        shared = [name for name in mine if not mine[name].keys().isdisjoint(theirs.get(name, {}))]
        if not shared:
            unpaired = other.report.num_inputs + first.report.num_inputs
            rows.append(row(other.name, first.name, None, None, None, None, 0, 0, 0, unpaired))
            continue
        result = compare(mine, theirs, first.categories() | other.categories(), seed=seed)
        counts = (result.num_samples, result.num_better, result.num_worse, result.num_unpaired)
        rows.append(row(other.name, first.name, *_gap(result), *counts))
        # Each task is a separate category here, so its interval does not depend on the other tasks.
        tasks = {name: compare({name: mine[name]}, {name: theirs[name]}, {name: name}, seed=seed) for name in shared}
        folded.append(
            Table(
                f"{other.name} minus {first.name}, by task",
                columns("task", *_GAP_COLUMNS, "pairs"),
                [row(name, *_gap(one), one.num_samples) for name, one in tasks.items()],
                conditions([first, other], "p values are not corrected for the number of tasks"),
                folded=True,
            )
        )
    heads = columns("run", "minus", *_GAP_COLUMNS, "pairs", "better", "worse", "unpaired")
    text = (
        "Differences over the samples of both runs, paired by id. The interval is a bootstrap interval, "
        "p a sign-flip permutation test. Inputs of runs made elsewhere are identified only by their position in the file."
    )
    table = Table("Difference of overall scores", heads, rows, conditions(runs))
    return Section("Paired comparison", text, [table, *folded])


def _gap(comparison: Comparison) -> tuple[float, float, float, float]:
    gap = comparison.difference
    return gap.mean, gap.low, gap.high, comparison.p_value
