"""The runs behind the paper's tables: a pure function of models.toml.

Each planned run has a folder of its own below the output folder. Any run can be made alone or on another machine; folders
that are put together form one reproduction. A run that needs another one, for page budgets or labels, names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from seer.errors import InputError
from seer.evaluation.paper.models import PaperModels

Job = Literal["predict", "labels", "latency", "prefill", "foreign"]
TABLES = tuple(f"table{number}" for number in range(1, 21))
FIGURES = ("figure2", "figure3", "figure4")
CALLS = "calls"
"""Select calls without a grammar: the paper's first limitation, which has no table."""
PLACES = (*TABLES, *FIGURES, CALLS)
LATENCY_RECORDS = 10
"""Inputs of each task in a latency run, sent one at a time (paper, A.7)."""
FORCED = ("first", "random", "bm25", "all", "oracle")


@dataclass(frozen=True)
class PlannedRun:
    """One run: what is predicted or measured, by which model, and where it is needed."""

    name: str
    """Name of its folder."""
    job: Job
    model: str
    """Key in models.toml: seer, iso, glyph, text.NAME, judge or foreign.NAME."""
    places: tuple[str, ...]
    """Tables and figures that use the run."""
    system: str = "seer"
    selector: str = "model"
    policy: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    """Runs that must be complete before this one."""
    missing: str = ""
    """Why the run cannot be made; empty if it can."""

    @property
    def is_text(self) -> bool:
        """Whether a text model reads the benchmark's own prompt."""
        return self.system == "prompted"


def plan_runs(models: PaperModels) -> list[PlannedRun]:
    """Return all runs, each after those it needs. Runs whose model is not in models.toml say so in `missing`."""
    runs = [*_seer_runs(models), *_baselines(models), *_timed(models), *_foreign(models)]
    return [replace(run, missing=missing_part(run, models)) for run in runs]


def _seer_runs(models: PaperModels) -> list[PlannedRun]:
    scores = ("table1", "table2", "table3", "table4", "table10", "table11", "table12", "table15", "table16")
    pages = ("table17", "table18", "table19", "table20", *FIGURES)
    labels = () if models.labels else ("labels",)
    runs = [
        PlannedRun("seer", "predict", "seer", (*scores, *pages)),
        PlannedRun("k0", "predict", "seer", ("table3", "table15", "figure3", "figure4"), "seer-k0"),
        PlannedRun("k1-select", "predict", "seer", ("figure3",), policy={"max_pages": 1}),
        PlannedRun("k1-retrieve", "predict", "seer", ("figure3",), policy={"max_retrieved_pages": 1}),
        PlannedRun("unconstrained", "predict", "seer", (CALLS,), policy={"constraint": "none"}),
        PlannedRun("labels", "labels", "judge", ("table17",)),
    ]
    for selector in FORCED:
        needs = ("seer", *labels) if selector == "oracle" else ("seer",)
        runs.append(PlannedRun(f"forced-{selector}", "predict", "seer", ("table18",), selector=selector, needs=needs))
    return runs


def _baselines(models: PaperModels) -> list[PlannedRun]:
    tokens = ("table2", "table11", "table12")
    shared = ("table1", "table3", "table10", "table15", "table16")
    runs = [
        PlannedRun("glyph", "predict", "glyph", (*shared, *tokens, "table4", "table20", "figure4"), "visual"),
        PlannedRun("iso", "predict", "iso", ("table3", "table15", "table16"), "visual"),
    ]
    for name in models.text:
        places = ("table1", "table10", *tokens, "table19")
        runs.append(PlannedRun(f"text-{name}", "predict", f"text.{name}", places, "prompted"))
    if not models.text:
        runs.append(PlannedRun("text", "predict", "text.", ("table1", "table10", *tokens, "table19"), "prompted"))
    return runs


def _timed(models: PaperModels) -> list[PlannedRun]:
    runs = [
        PlannedRun("latency-seer", "latency", "seer", ("table13",)),
        PlannedRun("latency-glyph", "latency", "glyph", ("table13",), "visual"),
    ]
    for name in models.text:
        runs.append(PlannedRun(f"latency-{name}", "latency", f"text.{name}", ("table13",), "prompted"))
    return [*runs, PlannedRun("prefill", "prefill", "seer", ("table14",))]


def _foreign(models: PaperModels) -> list[PlannedRun]:
    names = list(models.foreign) or [""]
    return [PlannedRun(f"foreign-{name}".rstrip("-"), "foreign", f"foreign.{name}", ("table19",)) for name in names]


def missing_part(run: PlannedRun, models: PaperModels) -> str:
    """Return what a run lacks in models.toml or on disk, as a sentence for its place in the report; "" for nothing."""
    group, _, name = run.model.partition(".")
    if group == "foreign":
        if not name:
            return "models.toml names no [foreign.NAME]"
        folder = Path(models.foreign[name].path)
        return "" if folder.is_dir() else f"no folder at '{folder}'; put the predictions there"
    if run.job == "labels":
        if models.labels:
            return f"models.toml names labels, '{models.labels}'"
        return "" if models.judge else "models.toml names no [judge]"
    if models.served(run.model) is None:
        return f"models.toml names no [{group}{'.NAME' if group == 'text' else ''}]"
    if run.selector == "oracle" and not models.labels and not models.judge:
        return "the oracle needs page labels, and models.toml names neither [judge] nor labels"
    return ""


def choose_runs(runs: Sequence[PlannedRun], only: Sequence[str]) -> list[PlannedRun]:
    """Return the runs for these tables, figures or run names, and those that they need, in the plan's order.

    Raises InputError for a name that is neither a table, a figure nor a run.
    """
    by_name = {run.name: run for run in runs}
    unknown = [name for name in only if name not in PLACES and name not in by_name]
    if unknown:
        raise InputError(
            f"--only {unknown[0]}: must be a table (table1 to table20), {', '.join(FIGURES)}, {CALLS} or a run: "
            f"{', '.join(by_name)}"
        )
    chosen = {run.name for run in runs if not only or run.name in only or set(run.places) & set(only)}
    waiting = list(chosen)
    while waiting:
        for name in by_name[waiting.pop()].needs:
            if name not in chosen:
                chosen.add(name)
                waiting.append(name)
    return [run for run in runs if run.name in chosen]
