"""Random order, targets with early stop, and proportional pilots: they depend on the seed, and never on timing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fixtures.data.builds import configure, correct_teacher, entry_number, with_teachers, written_files
from fixtures.data.teacher_server import Body, Say, is_judge, serve
from fixtures.data.world import MAP, write_world

from data_pipeline.build import build
from data_pipeline.records import Rejection
from data_pipeline.settings import BuildConfig, SourceSpec, pilot_of
from data_pipeline.sources.registry import load_source
from data_pipeline.sources.spool import shuffled
from seer.errors import ConfigError
from seer.shards.reader import ShardSet
from seer.teaching.ledger import BudgetReached

MANIFEST = ("ledger.jsonl", "config.toml", "manifest.json")


def source_of(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    path = tmp_path / "train.jsonl"
    if not path.exists():
        write_world(path, 40)
    return {"kind": "table", "path": str(path), "map": MAP, "name": "world", **changes}


def test_shuffled_yields_every_item_once_in_an_order_of_the_seed() -> None:
    items = [{"n": n, "text": "x" * n} for n in range(200)]
    order = list(shuffled(items, 1, "s"))
    assert order != items
    assert sorted(item["n"] for item in order) == list(range(200))
    assert order == list(shuffled(items, 1, "s"))
    assert order != list(shuffled(items, 2, "s"))
    assert order != list(shuffled(items, 1, "other"))
    assert list(shuffled([], 1, "s")) == []


def test_load_source_in_random_order_limits_a_random_sample_and_keeps_row_names(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    rows = [json.dumps({"question": f"Q{n}?", "context": f"C{n}", "answers": ["a"]}) for n in range(100)]
    path.write_text("\n".join([*rows, "broken"]) + "\n")
    spec = SourceSpec(path=str(path), order="random", limit=20)
    items = list(load_source(spec, seed=3))
    samples = [item for item in items if not isinstance(item, Rejection)]
    assert len(samples) == 20
    # A record without an id is named by its row in the file, whatever the order.
    assert all(sample.question == f"Q{int(sample.id) - 1}?" for sample in samples)
    assert max(int(sample.id) for sample in samples) > 40
    assert [item.id for item in items] != [item.id for item in load_source(spec, seed=4)]
    everything = list(load_source(spec.model_copy(update={"limit": None}), seed=3))
    assert sum(isinstance(item, Rejection) for item in everything) == 1
    assert len(everything) == 101


def test_build_stops_a_source_at_its_target_and_continues_with_the_next(tmp_path: Path) -> None:
    sources = [source_of(tmp_path, target=5), source_of(tmp_path, name="second", target=7)]
    report = build(configure(tmp_path, sources=sources))
    counts = report.statistics["sources"]
    assert {name: source["written"] for name, source in counts.items()} == {"world": 5, "second": 7}
    assert counts["world"]["retention"]["read"] == 5
    assert report.statistics["targets"] == {"world": 5, "second": 7}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| world | 5 | 5 |" in card and "| **all** | 12 | 12 |" in card


def test_build_with_target_beyond_the_source_keeps_what_there_is(tmp_path: Path) -> None:
    report = build(configure(tmp_path, sources=[source_of(tmp_path, target=500)]))
    assert report.statistics["written"] == 40
    assert "| world | 500 | 40 |" in (tmp_path / "out" / "README.md").read_text()


def test_build_with_target_writes_the_same_bytes_whatever_is_in_flight(tmp_path: Path) -> None:
    benchmark = tmp_path / "benchmark"
    benchmark.mkdir()
    (benchmark / "a.jsonl").write_text(
        json.dumps({"input": "Nobody asks this here?", "context": "Nor this. " * 50}) + "\n"
    )

    def script(body: Body, n: int) -> Say:
        say = correct_teacher(body, n)
        if not is_judge(body) and entry_number(body) % 3 == 0:
            say = Say("<think>x</think>Answer: wrong")
        # Replies arrive in another order than the requests.
        say.delay_s = 0.002 * (n % 7)
        return say

    asked = {}
    with serve(script) as server:
        for concurrency in (1, 4, 32):
            teachers = with_teachers(server)
            for part in teachers.values():
                part["teacher"]["concurrency"] = concurrency
            source = source_of(tmp_path, target=9, order="random")
            before = len(server.asked)
            guard = {"benchmark": str(benchmark)}
            build(configure(tmp_path, sources=[source], out=f"c{concurrency}", guard=guard, **teachers))
            asked[concurrency] = len(server.asked) - before
    sets = [written_files(tmp_path / f"c{concurrency}", ignore=MANIFEST) for concurrency in (1, 4, 32)]
    assert sets[0] == sets[1] == sets[2]
    statistics = json.loads(sets[0]["stats.json"])
    source = statistics["sources"]["world"]
    assert source["written"] == 9
    assert sum(statistics["guard"]["context_overlap"]["world"].values()) == source["retention"]["read"] < 40
    # A narrow build pays for little beyond its target.
    assert asked[1] < asked[32]


def test_build_with_target_interrupted_twice_writes_the_same_bytes(tmp_path: Path) -> None:
    source = source_of(tmp_path, target=9, order="random")
    with serve(correct_teacher) as server:
        teachers = with_teachers(server)
        for part in teachers.values():
            part["teacher"]["concurrency"] = 2
        build(configure(tmp_path, sources=[source], out="whole", **teachers))
        keys = len(server.keys)
        for calls in (7, 19):
            with pytest.raises(BudgetReached):
                build(configure(tmp_path, sources=[source], budget={"max_calls": calls}, **teachers))
        build(configure(tmp_path, sources=[source], **teachers))
        resumed = server.keys[keys:]
    assert written_files(tmp_path / "out", ignore=MANIFEST) == written_files(tmp_path / "whole", ignore=MANIFEST)
    # No finished call is repeated. Calls behind the target may be cancelled, and are then not in the ledger.
    assert len(resumed) == len(set(resumed))


def test_build_with_ledger_of_a_pilot_repeats_none_of_its_calls(tmp_path: Path) -> None:
    with serve(correct_teacher) as server:
        config = configure(tmp_path, sources=[source_of(tmp_path, order="random")], **with_teachers(server))
        pilot = pilot_of(config, 6).model_copy(update={"out": str(tmp_path / "pilot")})
        assert build(pilot).statistics["written"] == 6
        paid = set(server.keys)
        (tmp_path / "out").mkdir()
        shutil.copy(tmp_path / "pilot" / "ledger.jsonl", tmp_path / "out")
        assert build(config).statistics["written"] == 40
        assert len(server.keys) == len(set(server.keys)) > len(paid)


def test_build_over_ray_and_local_agree_on_targets(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    sources = [source_of(tmp_path, target=6, order="random"), source_of(tmp_path, name="second", target=3)]
    for out, runner in (("local", "local"), ("ray", "ray")):
        build(configure(tmp_path, sources=sources, out=out), runner=runner, workers=1)  # type: ignore[arg-type]
    assert written_files(tmp_path / "local", ignore=MANIFEST) == written_files(tmp_path / "ray", ignore=MANIFEST)
    assert len(ShardSet(tmp_path / "ray" / "train")) == 9


@pytest.mark.parametrize(
    ("targets", "total", "limits"),
    [
        ([100, 100, 200], 43, [11, 11, 21]),
        ([None, None], 7, [4, 3]),
        ([300, None, 100], 30, [15, 10, 5]),
        ([1, 10_000], 2, [1, 1]),
    ],
)
def test_pilot_of_divides_samples_like_targets(
    tmp_path: Path, targets: list[int | None], total: int, limits: list[int]
) -> None:
    sources = [SourceSpec(path="train.jsonl", name=str(n), target=target) for n, target in enumerate(targets)]
    config = BuildConfig(out=str(tmp_path), sources=tuple(sources))
    pilot = pilot_of(config, total)
    assert [source.limit for source in pilot.sources] == limits
    assert sum(limits) == total
    with pytest.raises(ConfigError, match=f"--limit 1: must be at least {len(targets)}"):
        pilot_of(config, 1)


def test_pilot_of_never_raises_a_limit(tmp_path: Path) -> None:
    source = SourceSpec(path="train.jsonl", limit=3)
    assert pilot_of(BuildConfig(out="o", sources=(source,)), 50).sources[0].limit == 3
