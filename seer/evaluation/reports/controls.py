"""Sections of a report that need control runs: scores by number of retrieved pages, and gains of retrieval."""

from __future__ import annotations

from collections.abc import Sequence

from seer.evaluation.analysis.scored_run import ScoredRun
from seer.evaluation.analysis.selections import ScopeRow, gain_by_selected, heterogeneity, retrieval_scope
from seer.evaluation.reports.notes import PAPER_SCOPE, are_of_longbench, conditions
from seer.web.tables import Row, Section, Table, columns, row


def scope_section(runs: Sequence[ScoredRun]) -> Section | None:
    """Return scores with no retrieved page, one and all selected pages (table 3, figure 3).

    None without runs for k = 0 and k = all.
    """
    none, one, every = _find(runs, "none"), _find(runs, "one"), _find(runs, "all")
    if none is None or every is None:
        return None
    scope = retrieval_scope(none.report, every.report, one.report if one else None)
    rows = [
        _scope_row("mean of categories", scope.macro, "total"),
        _scope_row("mean of tasks", scope.overall, "total"),
        *(_scope_row(name, part) for name, part in {**scope.categories, **scope.tasks}.items()),
        *(row(*figures, kind="paper") for figures in PAPER_SCOPE if are_of_longbench(runs)),
    ]
    used = [run for run in (none, one, every) if run is not None]
    text = f"k = 0: {none.name}; k = 1: {one.name if one else 'no such run'}; k = all: {every.name}."
    heads = columns("over", "k = 0:2", "k = 1:2", "k = all:2", "gain:+2", "recovered by k = 1, %:1")
    table = Table("Scores by number of retrieved pages", heads, rows, conditions(used))
    return Section("Retrieval scope", text, [table])


def _scope_row(name: str, part: ScopeRow, kind: str = "") -> Row:
    recovered = None if part.recovered_by_one is None else 100 * part.recovered_by_one
    return row(name, part.none, part.one, part.all, part.gain, recovered, kind=kind)


def heterogeneity_section(runs: Sequence[ScoredRun]) -> Section | None:
    """Return scores by number of selected pages (figure 4); None without runs for k = all and for images only."""
    full, visual, none = _find(runs, "all"), _find(runs, "visual"), _find(runs, "none")
    if full is None or visual is None:
        return None
    found = heterogeneity(full, visual.report, none.report if none else None)
    if not found:
        return None
    labels = list(found[0].cells)
    table = Table(
        f"{full.name}, by number of selected pages, minus the task's score by {visual.name}",
        columns("task", *(f"{label} pages:+2" for label in labels), "gain over k = 0:+2"),
        [row(one.task, *(one.cells[label] for label in labels), one.gain) for one in found],
        conditions([run for run in (full, visual, none) if run], "Cells of fewer than 5 samples are left out"),
        shaded=True,
    )
    return Section("Where retrieval helps", "", [table, *([_gain_table(full, none)] if none else [])])


def _gain_table(full: ScoredRun, none: ScoredRun) -> Table:
    rows = [
        row(one.label, one.with_text, one.without_text, one.with_text - one.without_text, one.num_samples)
        for one in gain_by_selected(full, none)
    ]
    heads = columns("pages selected", f"{full.name}:2", f"{none.name}:2", "gain:+2", "samples")
    return Table("Gain by number of selected pages, over all samples", heads, rows, conditions([full, none]))


def _find(runs: Sequence[ScoredRun], role: str) -> ScoredRun | None:
    """Return the first run with a role, according to its manifest: visual, none (k = 0), one (k = 1) or all.

    Runs whose pages a fixed selector chose have no role.
    """
    for run in (one for one in runs if not one.is_forced):
        manifest = run.report.manifest
        policy = manifest.get("policy") or {}
        system = str(manifest.get("system", ""))
        # Other systems, such as text baselines and sibling systems, are not controls of selection and retrieval.
        if system == "visual":
            found = "visual"
        elif not system.startswith("seer"):
            continue
        elif system == "seer-k0" or policy.get("retrieve") is False:
            found = "none"
        else:
            found = "one" if policy.get("max_pages") == 1 else "all"
        if found == role:
            return run
    return None
