"""Tests of the training summary: it is made from the logs of the stages, stored, read and plotted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seer.config import write_config
from seer.errors import InputError
from seer.miniature.learning import (
    CURVE_POINTS,
    SUMMARY_NAME,
    learning_section,
    read_summary,
    summarise,
    summarise_stage,
    write_summary,
)
from seer.miniature.model import ISO_STAGE_FOLDERS, SHIPPED, STAGE_FOLDERS

HELD_OUT = ("lessons/reading/validation", "lessons/asking/validation")


def write_run(folder: Path, records: list[dict[str, Any]], **changes: Any) -> Path:
    """Write a run folder as the trainer leaves it: the resolved configuration and the log."""
    from train.config import TrainConfig

    settings = {
        "out": str(folder),
        "steps": 500,
        "seed": 7,
        "data": {
            "mixing": "step",
            "sets": [{"path": "lessons/reading/train", "share": 2, "samples_per_step": 48}],
            "held_out": [{"path": path} for path in HELD_OUT],
        },
        "model": {"path": "untrained"},
        "optimizer": {"kind": "muon", "lr": 3e-3, "schedule": "cosine"},
    }
    folder.mkdir(parents=True)
    write_config(TrainConfig.model_validate(settings | changes), folder / "config.toml")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    return folder


def step(number: int, loss: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"step": number, "loss": loss, "lr": 0.001, "step_s": 30.0, **more}


def test_summarise_stage_keeps_recipe_totals_and_last_metrics(tmp_path: Path) -> None:
    records = [
        step(1, 4.0, text_tokens=90.0, vision_tokens=10.0),
        {"step": 1, "kind": "eval", "eval-0/accuracy/answer": 0.1, "eval-1/accuracy/answer": 0.123456},
        step(2, 2.0, text_tokens=80.0, vision_tokens=20.0),
        {"step": 2, "kind": "eval", "eval-0/accuracy/answer": 0.4, "eval-1/exact/call": 0.5, "eval-1/loss/call": 9.0},
        {"step": 2, "kind": "generation", "generated/samples": 4},
    ]
    stage = summarise_stage(write_run(tmp_path / "stage-1", records))
    assert (stage.name, stage.start, stage.seed, stage.max_steps) == ("stage-1", "untrained", 7, 500)
    assert (stage.optimizer, stage.learning_rate, stage.schedule) == ("muon", 3e-3, "cosine")
    assert (stage.steps, stage.seconds, stage.tokens) == (2, 60.0, 200)
    assert (stage.first_loss, stage.last_loss, stage.best_loss) == (4.0, 2.0, 2.0)
    (lessons,) = stage.data
    assert (lessons.path, lessons.share, lessons.samples_per_step) == ("lessons/reading/train", 2, 48)
    assert [(one.step, one.seconds, one.metrics) for one in stage.evaluations] == [
        (1, 30.0, {"accuracy/answer": 0.1235}),
        (2, 60.0, {"exact/call": 0.5}),
    ]
    assert stage.final_metrics == {HELD_OUT[0]: {"accuracy/answer": 0.4}, HELD_OUT[1]: {"exact/call": 0.5}}


@pytest.mark.parametrize("steps", [0, 1, CURVE_POINTS, CURVE_POINTS + 1, 1616])
def test_summarise_stage_thins_the_curve_without_losing_its_ends(tmp_path: Path, steps: int) -> None:
    stage = summarise_stage(write_run(tmp_path / "stage-1", [step(n, float(n)) for n in range(1, steps + 1)]))
    curve = stage.curve
    assert len(curve.step) == len(curve.seconds) == len(curve.loss) == len(curve.learning_rate) <= CURVE_POINTS
    assert stage.steps == steps and stage.tokens is None
    assert list(curve.step) == sorted(set(curve.step))
    if steps:
        assert curve.step[-1] == steps and curve.seconds[-1] == stage.seconds == 30.0 * steps
        # The mean of the steps 1 to n in a window is the mean of its first and last step.
        starts = [1, *(end + 1 for end in curve.step[:-1])]
        means = [(start + end) / 2 for start, end in zip(starts, curve.step, strict=True)]
        assert curve.loss == pytest.approx(means, rel=1e-3)
    else:
        assert stage.first_loss is stage.last_loss is stage.best_loss is None


def test_write_summary_read_back_is_equal(tmp_path: Path) -> None:
    for name in STAGE_FOLDERS[:2]:
        write_run(tmp_path / name, [step(1), step(2)])
    summary = summarise(tmp_path, STAGE_FOLDERS[:2])
    write_summary(summary, tmp_path)
    assert read_summary(tmp_path) == summary
    assert [stage.name for stage in summary.stages] == ["stage-1", "stage-2"]


def test_summarise_without_a_log_or_configuration_names_the_file(tmp_path: Path) -> None:
    run = write_run(tmp_path / "stage-1", [step(1)])
    (run / "metrics.jsonl").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"metrics.jsonl', line 1"):
        summarise(tmp_path, ["stage-1"])
    (run / "metrics.jsonl").write_text('{"loss": 1.0}', encoding="utf-8")
    with pytest.raises(InputError, match=r"metrics.jsonl' is not the log of a training run"):
        summarise(tmp_path, ["stage-1"])
    for broken in ("seed = ", "seed = 1", 'data = "x"\nseed = 1'):
        (run / "config.toml").write_text(broken, encoding="utf-8")
        with pytest.raises(InputError, match=r"config.toml' is not the configuration of a training run"):
            summarise(tmp_path, ["stage-1"])
    with pytest.raises(InputError, match="config.toml"):
        summarise(tmp_path, ["stage-2"])


def test_learning_section_stages_follow_each_other_in_time(tmp_path: Path) -> None:
    for stage, share in (("stage-1", 0.5), ("stage-2", 0.9)):
        evaluation = {"kind": "eval", "step": 2, "eval-0/accuracy/answer": 0.1, "eval-1/accuracy/answer": share}
        write_run(tmp_path / stage, [step(1), step(2), evaluation])
    write_summary(summarise(tmp_path, ["stage-1", "stage-2"]), tmp_path)
    section = learning_section(tmp_path)
    assert section is not None
    assert [(dot.x, dot.y) for dot in section.plots[0].dots] == [(1.0, 0.5), (2.0, 0.9)]
    assert len(section.tables[0].rows) == 2


def test_learning_section_without_summary_is_none_and_damaged_summary_is_named(tmp_path: Path) -> None:
    assert learning_section(tmp_path) is None
    for damaged in ("{", "{}", '{"stages": []}', '{"stages": [{"name": "stage-1"}]}'):
        (tmp_path / SUMMARY_NAME).write_text(damaged, "utf-8")
        with pytest.raises(InputError, match="training.json' is not a training summary"):
            learning_section(tmp_path)


def test_learning_section_of_shipped_model_has_every_stage() -> None:
    section = learning_section(SHIPPED)
    assert section is not None and len(section.tables[0].rows) == len(STAGE_FOLDERS)
    assert {dot.series for dot in section.plots[0].dots} >= {"whole select calls", "whole answers"}


def test_read_summary_of_shipped_checkpoints_names_their_stages_and_recipes() -> None:
    root = Path(__file__).parents[2]
    for folder, names in ((SHIPPED, STAGE_FOLDERS), (SHIPPED.with_name("checkpoint_iso"), ISO_STAGE_FOLDERS)):
        summary = read_summary(folder)
        assert summary is not None
        assert tuple(stage.name for stage in summary.stages) == names
        assert summary.versions["transformers"]
        for number, stage in enumerate(summary.stages, 1):
            # The recipe in configs/ and the record of what ran must agree.
            recipe = (root / "configs" / f"miniature-{number}.toml").read_text(encoding="utf-8")
            assert all(one.path in recipe for one in stage.data)
            assert f"steps = {stage.max_steps}" in recipe
            assert stage.steps <= stage.max_steps and stage.best_loss is not None
            assert bool(stage.drop_turns) == stage.name.startswith("iso")
