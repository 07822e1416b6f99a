"""The Ray runner writes the bytes that the local runner writes, and asks teachers as often."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.data.teacher_server import Body, Say, is_judge, serve, user_text
from fixtures.data.world import MAP, write_world

from data_pipeline import ray_runner
from data_pipeline.build import build
from data_pipeline.settings import BuildConfig
from data_pipeline.tally import BuildStopped
from seer.errors import InputError
from seer.teaching.ledger import Ledger


@pytest.fixture(autouse=True)
def many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_runner, "_BATCH_ITEMS", 16)


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="the Ray runner needs the extra 'ray'")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def configure(tmp_path: Path, out: str, **changes: Any) -> BuildConfig:
    path = tmp_path / "train.jsonl"
    if not path.exists():
        write_world(path, 150, filler_sentences=90)
        path.write_text(path.read_text() + "broken\n")
    source = {"kind": "table", "path": str(path), "map": MAP}
    return BuildConfig.model_validate({"out": str(tmp_path / out), "sources": [source], **changes})


def files(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in paths
        if path.name not in ("config.toml", "ledger.jsonl")
    }


def teacher_says(body: Body, n: int) -> Say:
    number = re.search(r"in entry (\d+)\?", user_text(body))
    assert number is not None
    wanted = 100 + int(number[1])
    if is_judge(body):
        return Say("YES" if f"has {wanted} steps" in user_text(body) else "NO")
    return Say(f"<think>It says {wanted}.</think>Answer: {wanted if wanted % 3 else 0}")


@pytest.mark.slow
def test_ray_writes_the_same_bytes_without_a_model(tmp_path: Path, local_ray: None) -> None:
    options = {"validation_share": 0.3, "variants": {"shuffle_share": 0.5, "unanswerable_share": 0.3}}
    build(configure(tmp_path, "local", **options))
    for workers in (1, 2):
        build(configure(tmp_path, f"ray{workers}", **options), runner="ray", workers=workers)
        assert files(tmp_path / f"ray{workers}") == files(tmp_path / "local")


@pytest.mark.slow
def test_ray_asks_teachers_as_often_and_resumes_from_the_ledger(tmp_path: Path, local_ray: None) -> None:
    with serve(teacher_says) as server:
        teacher = {"base_url": server.base_url, "model": "scripted", "concurrency": 8}
        both = {"judge": {"kind": "teacher", "teacher": teacher}, "reason": {"kind": "teacher", "teacher": teacher}}
        build(configure(tmp_path, "local", **both))
        calls = len(server.asked)
        build(configure(tmp_path, "ray", **both), runner="ray", workers=2)
        assert len(server.asked) == 2 * calls
        assert files(tmp_path / "ray") == files(tmp_path / "local")
        build(configure(tmp_path, "ray", **both), runner="ray", workers=2, force=True)
        assert len(server.asked) == 2 * calls
    with Ledger(tmp_path / "ray" / "ledger.jsonl") as ledger:
        assert len(ledger) == calls


@pytest.mark.slow
def test_ray_stops_as_the_local_runner_does(tmp_path: Path, local_ray: None) -> None:
    with serve(lambda body, n: Say(status=401)) as server:
        teacher = {"base_url": server.base_url, "model": "scripted", "concurrency": 8}
        config = configure(tmp_path, "ray", judge={"kind": "teacher", "teacher": teacher})
        with pytest.raises(BuildStopped, match="judge teacher cannot be used"):
            build(config, runner="ray", workers=2)
    with pytest.raises(InputError, match="Ray has 2 CPUs for 3 workers"):
        build(configure(tmp_path, "more"), runner="ray", workers=3)
