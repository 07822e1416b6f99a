"""A run with its scores and, if Seer made it, its prediction records.

    run = load_run("runs/mine", partial=True)
    run.report.scores, run.predictions["hotpotqa"]["hotpotqa-0003"].selected_pages

Published runs contain only texts. They have scores, but `predictions` is empty, so the analysis of pages, tokens and time
omits them and names them in its notes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seer.evaluation.analysis.server_metrics import ServerMetrics, read_of_run
from seer.evaluation.files import read_predictions, read_run_manifest
from seer.evaluation.runs.probing import PrefillProbe, read_probes
from seer.evaluation.runs.score import ScoreReport, score_folder
from seer.evaluation.scoring.scorers import CodeRatio, Postprocess
from seer.schema import PageStyle, Prediction

Predictions = Mapping[str, Mapping[str, Prediction]]
"""By task, then by id."""


@dataclass(frozen=True)
class ScoredRun:
    """Scores, predictions and prefill probes of a run."""

    name: str
    report: ScoreReport
    predictions: Predictions
    probes: Mapping[str, PrefillProbe] = field(default_factory=dict)
    """Probes by input id; empty unless `seer eval probe` has been run."""
    at_server: ServerMetrics = field(default_factory=ServerMetrics)
    """Latency as the model server measured it; empty if it offered no metrics."""

    @property
    def is_ours(self) -> bool:
        """Whether Seer made the run, so that it has prediction records."""
        return bool(self.predictions)

    def each(self) -> Iterator[Prediction]:
        """Yield the predictions of all tasks."""
        for by_id in self.predictions.values():
            yield from by_id.values()

    @property
    def is_forced(self) -> bool:
        """Whether a fixed selector, not the model, chose the pages: the run is named after system and selector."""
        return "+" in str(self.report.manifest.get("system", ""))

    @property
    def style(self) -> str | PageStyle:
        """Page style of the run."""
        return read_style(self.report.manifest.get("style") or "seer")

    def categories(self) -> dict[str, str]:
        """Return the category of each task."""
        return {name: task.task.category for name, task in self.report.tasks.items()}

    def sample_scores(self) -> dict[str, Mapping[str, float]]:
        """Return scores in [0, 1] by task, then by id."""
        return {name: task.sample_scores for name, task in self.report.tasks.items()}


def read_style(value: Any) -> str | PageStyle:
    """Return the page style in a manifest, which has built-in styles by name and others with all fields."""
    return PageStyle.model_validate(value) if isinstance(value, dict) else str(value)


def load_run(
    path: str | Path,
    *,
    name: str | None = None,
    postprocess: Postprocess | str = Postprocess.OFFICIAL,
    code_ratio: CodeRatio | str = CodeRatio.DIFFLIB,
    partial: bool = False,
) -> ScoredRun:
    """Score the folder of a run, and read its predictions and probes if Seer made it. Raises the errors of `score_folder`."""
    folder = Path(path)
    report = score_folder(folder, postprocess=postprocess, code_ratio=code_ratio, partial=partial)
    predictions: dict[str, dict[str, Prediction]] = {}
    # Only Seer writes a manifest; predictions of other programs have neither pages nor tokens.
    if read_run_manifest(folder):
        for task in report.tasks:
            predictions[task] = {one.id: one for one in read_predictions(folder / f"{task}.jsonl")}
    return ScoredRun(
        name or folder.resolve().name, report, predictions, read_probes(folder), read_of_run(folder) or ServerMetrics()
    )
