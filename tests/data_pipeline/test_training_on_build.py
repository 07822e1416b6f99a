"""The trainer reads the shards of a build unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data_pipeline.build import build
from data_pipeline.settings import BuildConfig
from seer.config import build_config


def test_trainer_reads_shards_of_build(tmp_path: Path, small_checkpoint_dir: Path) -> None:
    pytest.importorskip("torch")
    from train.config import TrainConfig
    from train.loop import fit

    rows = [
        {"question": f"What does item {n} cost?", "context": f"Item {n} costs {n * 3}.", "answers": [str(n * 3)],
         "evidence": [f"Item {n} costs {n * 3}."]}
        for n in range(1, 5)
    ]  # fmt: skip
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assemble = {"forms": ["select", "iso_control"]}
    built = build(
        BuildConfig.model_validate(
            {"out": str(tmp_path / "data"), "sources": [{"path": str(path)}], "assemble": assemble}
        )
    )
    assert set(built.sets) == {"train", "iso_control/train"}
    sets = [{"path": str(tmp_path / "data" / name)} for name in built.sets]
    run = {
        "out": str(tmp_path / "run"),
        "steps": 1,
        "data": {"sets": sets},
        "model": {"path": str(small_checkpoint_dir)},
        "batching": {"global_batch": 2},
    }
    fit(build_config(TrainConfig, run, where="test"))
    assert (tmp_path / "run" / "metrics.jsonl").is_file()
