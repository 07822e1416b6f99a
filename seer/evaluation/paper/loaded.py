"""The runs of a reproduction that exist on disk, and the reason for each that does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seer.errors import SeerError
from seer.evaluation.analysis.scored_run import ScoredRun, load_run
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.benchmarks.tasks import LONGBENCH, Benchmark
from seer.evaluation.paper.models import PaperModels
from seer.evaluation.paper.plan import PlannedRun
from seer.evaluation.paper.prefill import PrefillPoint, read_points
from seer.evaluation.reports.notes import conditions
from seer.evaluation.runs.labels import LABELS_NAME
from seer.evaluation.scoring.pages import GoldPages, read_page_labels
from seer.storage import read_manifest
from seer.web.tables import Cell, Column, Row, Table, row

STATISTICS_NAME = "stats.json"
NOT_RUN = "not run"


@dataclass(frozen=True)
class Loaded:
    """Everything that the report is built from."""

    models: PaperModels
    plan: Sequence[PlannedRun]
    runs: Mapping[str, ScoredRun]
    """Runs with predictions by name, in the plan's order."""
    reasons: Mapping[str, str]
    """For each run without predictions, why."""
    benchmark: Benchmark
    records: Sequence[LongBenchRecord] = ()
    gold: GoldPages = field(default_factory=dict)
    prefill: Sequence[PrefillPoint] = ()
    statistics: Mapping[str, Any] = field(default_factory=dict)
    """The content of the data build's stats.json; empty without one."""

    @property
    def is_longbench(self) -> bool:
        """Whether the paper's figures are of the same benchmark."""
        return self.benchmark is LONGBENCH

    def names(self, prefix: str) -> list[str]:
        """Return the planned runs whose name starts with `prefix`, in order."""
        return [run.name for run in self.plan if run.name.startswith(prefix)]

    def held(self, names: Iterable[str]) -> list[ScoredRun]:
        """Return the runs with these names that exist."""
        return [self.runs[name] for name in names if name in self.runs]

    def why_not(self, names: Iterable[str]) -> list[str]:
        """Return a sentence for each of these runs that does not exist."""
        return [f"{NOT_RUN}: {name} ({self.reasons.get(name, 'unknown')})" for name in names if name not in self.runs]

    def table(
        self,
        title: str,
        heads: Sequence[Column],
        names: Sequence[str],
        cells: Callable[[ScoredRun], Sequence[Cell]],
        papers: Sequence[Row] = (),
        *notes: str,
    ) -> Table:
        """Return a table with a row for each run, `cells` after its name, and the paper's rows below.

        A run that does not exist has a row that says so, and its reason in the note.
        """
        rows = []
        for name in names:
            if name in self.runs:
                rows.append(row(name, *cells(self.runs[name])))
            else:
                rows.append(row(f"{name}: {NOT_RUN}", *(None for _ in heads[1:])))
        return Table(title, heads, [*rows, *(papers if self.is_longbench else ())], self.note(names, *notes))

    def note(self, names: Sequence[str], *notes: str) -> str:
        """Return the conditions of the runs with these names, further sentences, and the reasons for missing runs."""
        reasons = self.why_not(names)
        used = self.held(names)
        if used:
            return conditions(used, *notes, *reasons)
        return ". ".join([*notes, *reasons]) + "."


def load_reproduction(
    out: Path,
    plan: Sequence[PlannedRun],
    models: PaperModels,
    records: Sequence[LongBenchRecord],
    benchmark: Benchmark,
    reasons: Mapping[str, str] | None = None,
) -> Loaded:
    """Load every planned run that has a folder. `reasons` explain runs that this session could not make."""
    runs: dict[str, ScoredRun] = {}
    why: dict[str, str] = {}
    for run in plan:
        if run.job in ("labels", "prefill"):
            continue
        path = out / run.name
        if run.job == "foreign" and (name := run.model.partition(".")[2]):
            path = Path(models.foreign[name].path)
        if not path.is_dir():
            why[run.name] = (reasons or {}).get(run.name) or run.missing or f"no folder '{path}'"
            continue
        try:
            runs[run.name] = load_run(path, name=run.name, partial=True)
        except SeerError as error:  # One damaged folder must not take the report of all others away.
            why[run.name] = str(error)
    labels = Path(models.labels) if models.labels else out / "labels" / LABELS_NAME
    statistics = Path(models.build) / STATISTICS_NAME if models.build else None
    return Loaded(
        models=models,
        plan=plan,
        runs=runs,
        reasons=why,
        benchmark=benchmark,
        records=records,
        gold=read_page_labels(labels) if labels.is_file() else {},
        prefill=read_points(out / "prefill"),
        statistics=read_manifest(statistics, remedy="build the data again")
        if statistics is not None and statistics.is_file()
        else {},
    )
