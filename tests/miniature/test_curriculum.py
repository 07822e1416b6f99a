"""Tests of the curriculum: lesson sets are written once, and the trained model is packaged with a training summary."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from seer.miniature import curriculum, model
from seer.miniature.learning import read_summary
from seer.models.checkpoint import load
from seer.shards.reader import ShardSet
from tests.miniature.test_learning import HELD_OUT, step, write_run


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["curriculum", *arguments])
    curriculum.main()


def test_main_writes_train_and_validation_sets_once(tmp_path, monkeypatch, capsys):
    kept = {
        name: replace(wanted, count=4) for name, wanted in curriculum.SETS.items() if name in ("reading", "crowded")
    }
    monkeypatch.setattr(curriculum, "SETS", kept)
    monkeypatch.setattr(curriculum, "HELD_OUT", 2)
    run(monkeypatch, str(tmp_path))
    lessons = tmp_path / "lessons"
    assert sorted(str(path.relative_to(lessons)) for path in lessons.glob("*/*")) == [
        *("crowded/train", "crowded/validation", "reading/train", "reading/validation")
    ]
    trained = [one.id for one in ShardSet(lessons / "crowded" / "train")]
    held_out = [one.id for one in ShardSet(lessons / "crowded" / "validation")]
    assert (len(trained), len(held_out)) == (4, 2)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    capsys.readouterr()
    run(monkeypatch, str(tmp_path))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert not capsys.readouterr().out
    assert load(tmp_path / "untrained", device="cpu").max_positions == model.SHAPE.max_positions


@pytest.mark.parametrize(("which", "stages"), [("model", model.STAGE_FOLDERS), ("iso-model", model.ISO_STAGE_FOLDERS)])
def test_main_finish_keeps_the_last_model_in_bfloat16_and_a_summary_of_all_stages(tmp_path, monkeypatch, which, stages):
    log = [
        step(1, 0.123456789),
        {"step": 1, "kind": "eval", "eval-0/loss": 0.25, "eval-0/accuracy/call": 0.123456, "eval-0/tokens/call": 99},
    ]
    for name in stages:
        write_run(tmp_path / name, log)
    model.build_untrained(tmp_path / stages[-1] / "model")
    run(monkeypatch, str(tmp_path), "--finish", which)
    out = tmp_path / which
    summary = read_summary(out)
    assert summary is not None and [stage.name for stage in summary.stages] == [*stages]
    assert summary.stages[-1].curve.loss == (0.1235,)
    assert summary.stages[-1].final_metrics == {HELD_OUT[0]: {"accuracy/call": 0.1235}}
    assert {str(one.dtype) for one in load(out, device="cpu", dtype="bfloat16").model.parameters()} == {
        "torch.bfloat16"
    }
