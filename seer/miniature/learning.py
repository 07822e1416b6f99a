"""The training summary of a miniature checkpoint: made from the runs of its stages, stored beside the weights, plotted.

    summary = summarise(Path("runs/miniature"), STAGE_FOLDERS)    # reads config.toml and metrics.jsonl of every stage
    write_summary(summary, checkpoint)                            # training.json
    section = learning_section(checkpoint)                        # for a report

`training.json` replaces logs of thousands of lines by at most `CURVE_POINTS` points a stage.
"""

from __future__ import annotations

import json
import math
import statistics
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from seer.errors import InputError
from seer.evaluation.jsonlines import read_json_lines
from seer.schema import Record
from seer.storage import write_text
from seer.web.tables import Dot, Plot, Section, Table, columns, row

SUMMARY_NAME = "training.json"
CURVE_POINTS = 40
SHOWN = {
    "accuracy/answer": "tokens of the answer",
    "exact/call": "whole select calls",
    "exact/answer": "whole answers",
}
"""Metrics in the learning curve, teacher-forced, on documents outside the training data."""


class LessonShare(Record):
    """A training set of a stage and how often a step draws from it."""

    path: str
    share: int
    samples_per_step: int | None = None


class LossCurve(Record):
    """The training loss at up to `CURVE_POINTS` points. Every list has one entry per point.

    A point covers a window of consecutive steps. Single steps are not comparable: with `mixing = "step"` each one draws
    from another data set.
    """

    step: tuple[int, ...]
    """The last step of the window, from 1 in every stage."""
    seconds: tuple[float, ...]
    """Training time of this stage up to that step."""
    loss: tuple[float, ...]
    """The mean over the window."""
    learning_rate: tuple[float, ...]
    """At the last step of the window."""


class HeldOutPoint(Record):
    """One evaluation during training, on the last held-out set of the stage."""

    step: int
    seconds: float
    metrics: dict[str, float]
    """The metrics named in `SHOWN`, as fractions."""


class StageSummary(Record):
    """How one stage was trained and what it reached."""

    name: str
    """The run folder of the stage."""
    start: str
    """The checkpoint that the stage started from."""
    seed: int
    steps: int
    """Optimizer steps that were taken; a stage stops before `max_steps` when its target metric is reached."""
    max_steps: int
    seconds: float
    """Training time without evaluations."""
    tokens: int | None = None
    """Text and vision tokens that were trained on; None for logs that do not count them."""
    optimizer: str
    learning_rate: float
    schedule: str
    data: tuple[LessonShare, ...]
    held_out: tuple[str, ...]
    drop_turns: tuple[str, ...] = ()
    first_loss: float | None
    """The first point of `curve`; None, like the next two, for a stage without steps."""
    last_loss: float | None
    best_loss: float | None
    curve: LossCurve
    evaluations: tuple[HeldOutPoint, ...] = ()
    final_metrics: dict[str, dict[str, float]] = {}
    """Accuracy and exact match at the last evaluation, by held-out set."""


class TrainingSummary(Record):
    """The stages of a checkpoint, in the order in which they were trained."""

    versions: dict[str, str] = {}
    """Library versions that the trained checkpoint records."""
    stages: tuple[StageSummary, ...] = Field(min_length=1)


# ── From the runs of the stages ──────────────────────────────────────────────────────────────────


def summarise(runs: Path, stages: Sequence[str]) -> TrainingSummary:
    """Summarise the run folders `stages` below `runs`.

    Raises InputError if a stage has no readable config.toml or metrics.jsonl.
    """
    model_config = runs / stages[-1] / "model" / "config.json"
    recorded = json.loads(model_config.read_text(encoding="utf-8")) if model_config.is_file() else {}
    versions = {"transformers": recorded["transformers_version"]} if "transformers_version" in recorded else {}
    return TrainingSummary(versions=versions, stages=tuple(summarise_stage(runs / name) for name in stages))


def summarise_stage(folder: Path) -> StageSummary:
    """Summarise one run folder of the trainer.

    Raises InputError if its config.toml or metrics.jsonl is missing or damaged.
    """
    try:
        config = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
        held_out = [entry["path"] for entry in config["data"]["held_out"]]
        settings = {
            "start": config["model"]["path"],
            "seed": config["seed"],
            "max_steps": config["steps"],
            "optimizer": config["optimizer"]["kind"],
            "learning_rate": config["optimizer"]["lr"],
            "schedule": config["optimizer"]["schedule"],
            "data": [
                {name: entry[name] for name in ("path", "share", "samples_per_step") if name in entry}
                for entry in config["data"]["sets"]
            ],
            "held_out": held_out,
            "drop_turns": config["data"]["drop_turns"],
        }
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"'{folder / 'config.toml'}' is not the configuration of a training run ({error}); train the stage again"
        ) from None
    records = [record for _, record in read_json_lines(folder / "metrics.jsonl")]
    try:
        return StageSummary.model_validate({"name": folder.name, **settings, **_progress(records, held_out)})
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"'{folder / 'metrics.jsonl'}' is not the log of a training run ({error}); train the stage again"
        ) from None


def _progress(records: Sequence[Mapping[str, Any]], held_out: Sequence[str]) -> dict[str, Any]:
    """The fields of `StageSummary` that come from a training log."""
    steps: list[tuple[Mapping[str, Any], float]] = []
    evaluations: list[HeldOutPoint] = []
    final: dict[str, dict[str, float]] = {}
    seconds = 0.0  # training time up to the current record; evaluations do not count
    for record in records:
        if record.get("kind") == "eval":
            by_set = _metrics_by_set(record)
            if by_set:
                # The last held-out set is the stage's goal, so only its metrics form a curve.
                last = list(by_set.values())[-1]
                shown = {name: last[name] for name in SHOWN if name in last}
                evaluations.append(HeldOutPoint(step=record["step"], seconds=round(seconds, 2), metrics=shown))
                final = {_set_name(number, held_out): metrics for number, metrics in by_set.items()}
        elif "loss" in record and "kind" not in record:
            seconds += record.get("step_s", 0.0)
            steps.append((record, seconds))
    curve = _thin(steps)
    # Logs that were reduced to a few fields contain no token counts.
    tokens = [record["text_tokens"] + record["vision_tokens"] for record, _ in steps if "text_tokens" in record]
    return {
        "steps": len(steps),
        "seconds": round(seconds, 2),
        "tokens": int(sum(tokens)) if tokens else None,
        "first_loss": curve.loss[0] if steps else None,
        "last_loss": curve.loss[-1] if steps else None,
        "best_loss": min(curve.loss, default=None),
        "curve": curve,
        "evaluations": evaluations,
        "final_metrics": final,
    }


def _thin(steps: Sequence[tuple[Mapping[str, Any], float]]) -> LossCurve:
    """At most `CURVE_POINTS` points, from windows of equal length; the last window may be shorter."""
    length = max(1, math.ceil(len(steps) / CURVE_POINTS))
    windows = [steps[start : start + length] for start in range(0, len(steps), length)]
    ends = [window[-1] for window in windows]
    return LossCurve(
        step=tuple(record["step"] for record, _ in ends),
        seconds=tuple(round(seconds, 2) for _, seconds in ends),
        loss=tuple(_short(statistics.fmean(record["loss"] for record, _ in window)) for window in windows),
        learning_rate=tuple(_short(record.get("lr", 0.0)) for record, _ in ends),
    )


def _metrics_by_set(record: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Accuracy and exact match of an evaluation by the number of the held-out set, ascending.

    The trainer names a metric eval-0/accuracy/answer.
    """
    found: dict[int, dict[str, float]] = {}
    for key, value in record.items():
        prefix, _, name = key.partition("/")
        number = prefix.removeprefix("eval-")
        if prefix.startswith("eval-") and number.isdecimal() and name.startswith(("accuracy/", "exact/")):
            found.setdefault(int(number), {})[name] = _short(value)
    return dict(sorted(found.items()))


def _set_name(number: int, held_out: Sequence[str]) -> str:
    return held_out[number] if number < len(held_out) else f"set {number}"


def _short(value: float) -> float:
    """Four significant digits, which is more than the noise between runs."""
    return float(f"{value:.4g}")


# ── The file ─────────────────────────────────────────────────────────────────────────────────────


def write_summary(summary: TrainingSummary, checkpoint: Path) -> None:
    """Write training.json into a checkpoint folder, with one field of a stage on each line."""
    values = summary.model_dump(mode="json", exclude_none=True)
    stages = [
        ",\n".join(f"      {json.dumps(name)}: {json.dumps(value)}" for name, value in stage.items())
        for stage in values["stages"]
    ]
    body = ",\n".join(f"    {{\n{fields}\n    }}" for fields in stages)
    text = f'{{\n  "versions": {json.dumps(values["versions"])},\n  "stages": [\n{body}\n  ]\n}}\n'
    write_text(checkpoint / SUMMARY_NAME, text)


def read_summary(checkpoint: str | Path) -> TrainingSummary | None:
    """Read the training summary of a checkpoint folder; None if it has none.

    Raises InputError if the file is damaged.
    """
    path = Path(checkpoint) / SUMMARY_NAME
    try:
        return TrainingSummary.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise InputError(f"'{path}' is not a training summary ({error}); copy the checkpoint folder again") from None


# ── The report ───────────────────────────────────────────────────────────────────────────────────


def learning_section(checkpoint: str | Path) -> Section | None:
    """The learning curve of a checkpoint as a plot and a table; None if the folder has no training summary.

    Time is training time, without evaluations. Raises InputError if the summary is damaged.
    """
    summary = read_summary(checkpoint)
    if summary is None:
        return None
    dots: list[Dot] = []
    rows = []
    seconds, steps = 0.0, 0
    for number, stage in enumerate(summary.stages, 1):
        for point in stage.evaluations:
            minutes = (seconds + point.seconds) / 60
            dots += [Dot(minutes, value, f"stage {number}", SHOWN[name]) for name, value in point.metrics.items()]
        seconds += stage.seconds
        steps += stage.steps
        reached = stage.evaluations[-1].metrics if stage.evaluations else {}
        rows.append(row(f"stage {number}", float(steps), seconds / 60, *(reached.get(name) for name in SHOWN)))
    note = "Teacher-forced, on the last held-out set of each stage. training.json beside the weights names the sets."
    table = Table(
        "Stages",
        columns("at the end of", "steps:0", "minutes:1", *(f"{name}:3" for name in SHOWN.values())),
        rows,
        note,
    )
    plot = Plot("Learning from nothing", "minutes of training", "fraction correct", dots)
    return Section("How it learned", tables=[table], plots=[plot])
