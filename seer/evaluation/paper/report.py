"""The report of a reproduction: each table and figure of the paper has its place, filled or marked as not run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from seer.evaluation.analysis.endings import count_endings, ending_warnings
from seer.evaluation.paper import cost_tables as costs
from seer.evaluation.paper import score_tables as scores
from seer.evaluation.paper import selection_tables as selection
from seer.evaluation.paper import setting_tables as settings
from seer.evaluation.paper.loaded import NOT_RUN, Loaded
from seer.evaluation.reports.cases import failures_section
from seer.evaluation.reports.notes import conditions
from seer.evaluation.reports.scores import comparison_section
from seer.web.tables import Report, Section, Table, columns, row

SECTIONS: Mapping[str, Callable[[Loaded], Section]] = {
    "table1": scores.main_results,
    "table2": costs.token_budget,
    "table3": scores.ablation,
    "table4": scores.chinese_tasks,
    "table5": settings.architecture,
    "table6": settings.special_tokens,
    "table7": partial(settings.retention, by_source=False),
    "table8": partial(settings.retention, by_source=True),
    "table9": settings.training_settings,
    "table10": scores.remaining_tasks,
    "table11": partial(costs.tokens_by_task, first=True),
    "table12": partial(costs.tokens_by_task, first=False),
    "table13": costs.latency,
    "table14": costs.prefill,
    "table15": scores.iso_control,
    "table16": scores.iso_categories,
    "table17": selection.page_selection,
    "table18": scores.forced_selectors,
    "table19": scores.recursive_reading,
    "table20": scores.cases,
    "figure2": selection.selected_pages,
    "figure3": selection.retrieval,
    "figure4": selection.heterogeneity,
    "calls": selection.free_calls,
}
"""Builders of the report's sections by place, in order."""


def paper_report(loaded: Loaded, title: str = "The paper's tables") -> Report:
    """Return the report with every section, the runs behind it, and warnings for runs that were cut."""
    built = [build(loaded) for build in SECTIONS.values()]
    comparison = None
    ours = [run for name, run in loaded.runs.items() if not name.startswith(("latency", "foreign"))]
    if "seer" in loaded.runs:
        others = [run for run in ours if run.name != "seer"]
        comparison = comparison_section([loaded.runs["seer"], *others], loaded.models.seed)
    extra = [runs_section(loaded), comparison, failures_section(ours) if ours else None]
    return Report(
        title,
        summary_points(loaded),
        [*built, *(section for section in extra if section is not None)],
        {name: run.report.to_json() for name, run in loaded.runs.items()},
        warnings_of(loaded),
    )


def warnings_of(loaded: Loaded) -> list[str]:
    """Return a warning for each run in which too many inputs were cut or ended inside the thinking."""
    return ending_warnings([(name, run.each()) for name, run in loaded.runs.items() if run.is_ours])


def summary_points(loaded: Loaded) -> list[str]:
    """Return the overall score of the main runs, and how many runs of the plan exist."""
    points = [
        f"{name}: {run.report.macro:.2f} (mean of categories), {run.report.failures} of {run.report.num_inputs:,} inputs failed"
        for name, run in loaded.runs.items()
        if name in ("seer", "k0", "glyph", "iso") or name.startswith("text")
    ]
    planned = [run for run in loaded.plan if run.job not in ("labels", "prefill")]
    points.append(f"{len(loaded.runs)} of {len(planned)} planned runs have predictions")
    return points


def runs_section(loaded: Loaded) -> Section:
    """Return every planned run: its settings, how its generations ended, or why it does not exist."""
    rows = []
    for planned in loaded.plan:
        run = loaded.runs.get(planned.name)
        if run is None:
            state = _other_job(loaded, planned.name) or f"{NOT_RUN}: {loaded.reasons.get(planned.name, '')}"
            rows.append(row(planned.name, planned.model, state, *(None for _ in range(6))))
            continue
        ends = count_endings(run.each())
        gaps = sum(run.report.gaps.values())
        state = f"PARTIAL: {gaps:,} inputs missing" if gaps else "complete"
        settings = (run.report.manifest.get("reasoning_tokens"), str(run.report.manifest.get("prompts", "–")))
        counts = (run.report.num_inputs, run.report.failures, ends.num_cut, ends.num_thinking)
        rows.append(row(planned.name, planned.model, state, *counts, *settings))
    heads = columns(
        *("run", "model", "state", "inputs", "failed", "cut", "ended inside thinking", "reasoning tokens", "prompts")
    )
    held = list(loaded.runs.values())
    return Section("Runs", "", [Table("Planned runs", heads, rows, conditions(held) if held else "No runs.")])


def _other_job(loaded: Loaded, name: str) -> str:
    """Return the state of a job without predictions; empty if it has no result."""
    if name == "labels" and loaded.gold:
        return f"{len(loaded.gold):,} inputs labelled"
    if name == "prefill" and loaded.prefill:
        return f"{len(loaded.prefill):,} measurements"
    return ""
