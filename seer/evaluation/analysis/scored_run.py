"""A run as the analysis sees it: its scores and, where Seer made it, its prediction records.

    run = load_run("runs/mine", partial=True)
    run.report.scores, run.predictions["hotpotqa"]["hotpotqa-0003"].selected_pages

Published runs hold texts only. They have scores, and `predictions` is empty: everything about pages, tokens and time
leaves them out and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seer.evaluation.files import read_predictions, read_run_manifest
from seer.evaluation.runs.probing import PrefillProbe, read_probes
from seer.evaluation.runs.score import ScoreReport, score_folder
from seer.evaluation.scoring.scorers import CodeRatio, Postprocess
from seer.schema import PageStyle, Prediction

Predictions = Mapping[str, Mapping[str, Prediction]]
"""By task, then by id."""


@dataclass(frozen=True)
class ScoredRun:
    name: str
    report: ScoreReport
    predictions: Predictions
    probes: Mapping[str, PrefillProbe] = field(default_factory=dict)
    """By input id; empty where `seer eval probe` has not been run."""

    @property
    def is_ours(self) -> bool:
        return bool(self.predictions)

    def each(self) -> Iterator[Prediction]:
        for by_id in self.predictions.values():
            yield from by_id.values()

    @property
    def is_forced(self) -> bool:
        """Whether a fixed selector, not the model, chose the pages: the run is named after system and selector."""
        return "+" in str(self.report.manifest.get("system", ""))

    @property
    def style(self) -> str | PageStyle:
        """How its pages were laid out."""
        return read_style(self.report.manifest.get("style") or "seer")

    def categories(self) -> dict[str, str]:
        """The category of each task."""
        return {name: task.task.category for name, task in self.report.tasks.items()}

    def sample_scores(self) -> dict[str, Mapping[str, float]]:
        """Scores in [0, 1] by task and id."""
        return {name: task.sample_scores for name, task in self.report.tasks.items()}


def read_style(told: Any) -> str | PageStyle:
    """A manifest's style: ours by their names, any other in full."""
    return PageStyle.model_validate(told) if isinstance(told, dict) else str(told)


def load_run(
    path: str | Path,
    *,
    name: str | None = None,
    postprocess: Postprocess | str = Postprocess.OFFICIAL,
    code_ratio: CodeRatio | str = CodeRatio.DIFFLIB,
    partial: bool = False,
) -> ScoredRun:
    """Score a folder and read its records, if they are ours."""
    folder = Path(path)
    report = score_folder(folder, postprocess=postprocess, code_ratio=code_ratio, partial=partial)
    predictions: dict[str, dict[str, Prediction]] = {}
    if read_run_manifest(folder):
        for task in report.tasks:
            predictions[task] = {one.id: one for one in read_predictions(folder / f"{task}.jsonl")}
    return ScoredRun(name or folder.resolve().name, report, predictions, read_probes(folder))
