"""The miniature's sets are written once, and its trained model is kept with what every stage was told."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from seer.miniature import curriculum, model
from seer.models.checkpoint import load
from seer.shards.reader import ShardSet


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["curriculum", *arguments])
    curriculum.main()


def test_every_set_comes_twice_and_what_is_there_stays(tmp_path, monkeypatch, capsys):
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


def stage(folder: Path, name: str) -> None:
    told = [
        {"step": 1, "loss": 0.123456789, "tokens": 99, "accuracy": 0.5},
        {"step": 1, "kind": "validation", "loss": 0.25, "accuracy/call": 0.123456, "tokens": 99},
    ]
    (folder / name).mkdir()
    (folder / name / "config.toml").write_text(f'out = "{name}"\n')
    (folder / name / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in told))


@pytest.mark.parametrize(("which", "stages"), [("model", model.STAGES), ("iso-model", model.ISO_STAGES)])
def test_the_last_stage_is_kept_with_the_logs_of_all(tmp_path, monkeypatch, which, stages):
    for name in stages:
        stage(tmp_path, name)
    model.build_untrained(tmp_path / stages[-1] / "model")
    run(monkeypatch, str(tmp_path), "--finish", which)
    out = tmp_path / which
    assert [(out / f"config-{n}.toml").read_text() for n in range(1, 10)] == [f'out = "{name}"\n' for name in stages]
    assert [json.loads(line) for line in (out / "log-9.jsonl").read_text().splitlines()] == [
        {"step": 1, "loss": 0.1235},
        {"step": 1, "kind": "validation", "loss": 0.25, "accuracy/call": 0.1235},
    ]
    assert {str(one.dtype) for one in load(out, device="cpu", dtype="bfloat16").model.parameters()} == {
        "torch.bfloat16"
    }
