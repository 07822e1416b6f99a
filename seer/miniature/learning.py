"""How a model of the miniature learned: its stages' logs as a plot and a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seer.evaluation.jsonlines import read_json_lines
from seer.web.tables import Dot, Plot, Section, Table, columns, row

LOG_NAMES = "log-*.jsonl"
SHOWN = {
    "accuracy/answer": "tokens of the answer",
    "exact/call": "whole select calls",
    "exact/answer": "whole answers",
}
"""Evaluated figures, teacher-forced, on documents that were not trained on."""


def learning_section(checkpoint: str | Path) -> Section | None:
    """A section over the logs in a checkpoint folder; None where it holds none. Time is the training's own, evaluations
    not counted. Raises InputError where a log is unreadable."""
    logs = sorted(Path(checkpoint).glob(LOG_NAMES))
    if not logs:
        return None
    dots: list[Dot] = []
    rows = []
    seconds, steps = 0.0, 0
    for stage, log in enumerate(logs, 1):
        last: dict[str, Any] = {}
        for _, record in read_json_lines(log):
            seconds += record.get("step_s", 0.0)
            steps += "step_s" in record
            if record.get("kind") == "eval":
                last = _figures(record)
                dots += [Dot(seconds / 60, value, f"stage {stage}", SHOWN[name]) for name, value in last.items()]
        rows.append(row(f"stage {stage}", float(steps), seconds / 60, *(last.get(name) for name in SHOWN)))
    note = (
        "Teacher-forced, on the last held-out set of each stage: see the stages' configurations beside the checkpoint."
    )
    table = Table(
        "Stages",
        columns("at the end of", "steps:0", "minutes:1", *(f"{name}:3" for name in SHOWN.values())),
        rows,
        note,
    )
    plot = Plot("Learning from nothing", "minutes of training", "share that is right", dots)
    return Section("How it learned", tables=[table], plots=[plot])


def _figures(record: dict[str, Any]) -> dict[str, float]:
    """The shown figures of the record's last held-out set."""
    sets: Sequence[str] = sorted({key.split("/")[0] for key in record if key.startswith("eval") and "/" in key})
    return {name: record[f"{sets[-1]}/{name}"] for name in SHOWN if f"{sets[-1]}/{name}" in record} if sets else {}
