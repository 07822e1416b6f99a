"""The Ray runner writes the same bytes as the local runner and makes the same teacher calls.

The slow tests start Ray. The others use a fake in this process, whose workers finish in random order.
"""

from __future__ import annotations

import pickle
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fixtures.data.teacher_server import Body, Say, is_judge, serve, user_text
from fixtures.data.world import MAP, write_world

from data_pipeline import ray_runner
from data_pipeline.build import build
from data_pipeline.settings import BuildConfig
from data_pipeline.tally import BuildStopped
from seer.errors import InputError
from seer.teaching.ledger import BudgetReached, Ledger


@pytest.fixture(autouse=True)
def many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_runner, "_BATCH_ITEMS", 16)


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="the Ray runner needs the extra 'ray'")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


class Actor:
    """A worker that runs a batch only when its result is requested. Batches and results are pickled, as in Ray."""

    def __init__(self, made: Any, ray: FakeRay) -> None:
        self.alive = True
        self.process = SimpleNamespace(remote=lambda batch: ray.later(lambda: made.process(copied(batch))))


class FakeRay(ModuleType):
    """The functions of Ray that the runner uses."""

    def __init__(self, cpus: int, seed: int) -> None:
        super().__init__("ray")
        self.cpus, self.actors = cpus, []
        self._random = random.Random(seed)
        self._work: dict[object, Callable[[], Any]] = {}
        self._done: dict[object, Any] = {}

    def later(self, work: Callable[[], Any]) -> object:
        self._work[reference := object()] = work
        return reference

    def remote(self, kind: Any) -> Any:
        def start(*arguments: Any) -> Actor:
            self.actors.append(Actor(kind(*map(copied, arguments)), self))
            return self.actors[-1]

        return SimpleNamespace(options=lambda num_cpus: SimpleNamespace(remote=start))

    def wait(self, open_: list[object]) -> tuple[list[object], list[object]]:
        first = self._random.choice(open_)
        self.get(first)
        return [first], [one for one in open_ if one is not first]

    def get(self, reference: object) -> Any:
        if reference in self._work:
            self._done[reference] = copied(self._work.pop(reference)())
        return self._done[reference]

    def kill(self, actor: Actor) -> None:
        actor.alive = False

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(self.cpus)}


def copied(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@pytest.fixture
def fake_ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    monkeypatch.setattr(ray_runner, "_BATCH_ITEMS", 4)
    ray = FakeRay(cpus=3, seed=1)
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


def configure(tmp_path: Path, out: str, count: int = 60, **changes: Any) -> BuildConfig:
    path = tmp_path / "train.jsonl"
    if not path.exists():
        write_world(path, count, filler_sentences=90)
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


def test_fake_ray_random_completion_order_writes_the_same_bytes(tmp_path: Path, fake_ray: FakeRay) -> None:
    options = {"validation_share": 0.3, "variants": {"shuffle_share": 0.5, "unanswerable_share": 0.3}}
    build(configure(tmp_path, "local", **options))
    build(configure(tmp_path, "ray", **options), runner="ray", workers=3)
    assert files(tmp_path / "ray") == files(tmp_path / "local")
    assert [actor.alive for actor in fake_ray.actors] == [False] * 3


def test_fake_ray_makes_the_same_calls_and_reuses_the_ledger(tmp_path: Path, fake_ray: FakeRay) -> None:
    with serve(teacher_says) as server:
        teacher = {"base_url": server.base_url, "model": "scripted", "concurrency": 8}
        both = {"judge": {"kind": "teacher", "teacher": teacher}, "reason": {"kind": "teacher", "teacher": teacher}}
        build(configure(tmp_path, "local", **both))
        calls = len(server.asked)
        build(configure(tmp_path, "ray", **both), runner="ray", workers=2)
        build(configure(tmp_path, "ray", **both), runner="ray", workers=3, force=True)
        assert len(server.asked) == 2 * calls
    assert files(tmp_path / "ray") == files(tmp_path / "local")


def test_fake_ray_unusable_teacher_stops_build_and_workers(tmp_path: Path, fake_ray: FakeRay) -> None:
    with serve(lambda body, n: Say(status=401)) as server:
        teacher = {"base_url": server.base_url, "model": "scripted", "concurrency": 8}
        config = configure(tmp_path, "ray", judge={"kind": "teacher", "teacher": teacher})
        with pytest.raises(BuildStopped, match="judge teacher cannot be used"):
            build(config, runner="ray", workers=2)
    assert fake_ray.actors and not any(actor.alive for actor in fake_ray.actors)


def test_fake_ray_spent_budget_stops_build(tmp_path: Path, fake_ray: FakeRay) -> None:
    with serve(teacher_says) as server:
        teacher = {"base_url": server.base_url, "model": "scripted", "concurrency": 8}
        config = configure(
            tmp_path, "ray", judge={"kind": "teacher", "teacher": teacher}, budget={"max_calls": 10, "then": "stop"}
        )
        with pytest.raises(BudgetReached):
            build(config, runner="ray", workers=2)
        assert len(server.asked) <= 10


def test_fake_ray_more_workers_than_cpus_fails(tmp_path: Path, fake_ray: FakeRay) -> None:
    with pytest.raises(InputError, match="Ray has 3 CPUs for 4 workers; reduce --workers"):
        build(configure(tmp_path, "more"), runner="ray", workers=4)


@pytest.mark.parametrize("workers", [1, 3, 16])
def test_config_per_worker_divides_concurrency_and_remaining_budget(tmp_path: Path, workers: int) -> None:
    teacher = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "concurrency": 8}
    budget = {"max_calls": 100, "max_usd": 2.0}
    config = configure(tmp_path, "o", judge={"kind": "teacher", "teacher": teacher}, budget=budget)
    spent = SimpleNamespace(calls=40, tokens=999, usd=3.0)
    mine = ray_runner._config_per_worker(config, workers, SimpleNamespace(spent=spent))
    assert mine.judge.teacher is not None and mine.judge.teacher.concurrency == max(1, 8 // workers)
    # Each worker's count starts at the 40 calls in the ledger.
    assert 40 < mine.budget.max_calls <= 40 + 60 / workers
    assert mine.budget.max_tokens == 0  # no limit stays no limit
    assert mine.budget.max_usd == 3.0  # a spent budget stays spent


@pytest.mark.slow
def test_ray_without_teachers_writes_the_same_bytes(tmp_path: Path, local_ray: None) -> None:
    options = {"validation_share": 0.3, "variants": {"shuffle_share": 0.5, "unanswerable_share": 0.3}}
    build(configure(tmp_path, "local", 150, **options))
    for workers in (1, 2):
        build(configure(tmp_path, f"ray{workers}", 150, **options), runner="ray", workers=workers)
        assert files(tmp_path / f"ray{workers}") == files(tmp_path / "local")


@pytest.mark.slow
def test_ray_makes_the_same_calls_and_reuses_the_ledger(tmp_path: Path, local_ray: None) -> None:
    with serve(teacher_says) as server:
        teacher = {"base_url": server.base_url, "model": "scripted", "concurrency": 8}
        both = {"judge": {"kind": "teacher", "teacher": teacher}, "reason": {"kind": "teacher", "teacher": teacher}}
        build(configure(tmp_path, "local", 150, **both))
        calls = len(server.asked)
        build(configure(tmp_path, "ray", 150, **both), runner="ray", workers=2)
        assert len(server.asked) == 2 * calls
        assert files(tmp_path / "ray") == files(tmp_path / "local")
        build(configure(tmp_path, "ray", 150, **both), runner="ray", workers=2, force=True)
        assert len(server.asked) == 2 * calls
    with Ledger(tmp_path / "ray" / "ledger.jsonl") as ledger:
        assert len(ledger) == calls


@pytest.mark.slow
def test_ray_unusable_teacher_or_too_few_cpus_fails(tmp_path: Path, local_ray: None) -> None:
    with serve(lambda body, n: Say(status=401)) as server:
        teacher = {"base_url": server.base_url, "model": "scripted", "concurrency": 8}
        config = configure(tmp_path, "ray", 150, judge={"kind": "teacher", "teacher": teacher})
        with pytest.raises(BuildStopped, match="judge teacher cannot be used"):
            build(config, runner="ray", workers=2)
    with pytest.raises(InputError, match="Ray has 2 CPUs for 3 workers"):
        build(configure(tmp_path, "more"), runner="ray", workers=3)
