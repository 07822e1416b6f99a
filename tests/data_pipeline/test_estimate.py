"""The estimate of a dry run: it sends nothing, counts the requests that the build sends, and learns from a pilot."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixtures.data.builds import configure, correct_teacher, with_teachers
from fixtures.data.teacher_server import Body, Say, TeacherServer, is_judge, serve
from fixtures.data.world import MAP, write_world
from typer.testing import CliRunner

from data_pipeline.build import build
from data_pipeline.cli import app
from data_pipeline.estimate import Assumptions, estimate_build, parse_assumptions, read_pilot
from data_pipeline.settings import BuildConfig, pilot_of
from seer.errors import ConfigError, InputError

EXACT = Assumptions(samples=40, phase1=1.0, phase2=1.0, judge_reply_tokens=1, reason_reply_tokens=12)


def config_of(tmp_path: Path, server: TeacherServer | None = None, **changes: Any) -> BuildConfig:
    write_world(tmp_path / "train.jsonl", 40)
    source = {"kind": "table", "path": str(tmp_path / "train.jsonl"), "map": MAP, "name": "world"}
    teacher = {"base_url": "http://127.0.0.1:9/v1", "model": "m"}
    phases = {"judge": {"kind": "teacher", "teacher": teacher}, "reason": {"kind": "teacher", "teacher": teacher}}
    return configure(tmp_path, sources=[{**source, **changes.pop("source", {})}], **{**phases, **changes})


def test_estimate_counts_the_calls_that_the_build_makes(tmp_path: Path) -> None:
    estimate = estimate_build(config_of(tmp_path), EXACT)
    with serve(correct_teacher) as server:
        report = build(config_of(tmp_path, **with_teachers(server)))
    (source,) = estimate.sources
    judged = sum(map(is_judge, server.asked))
    assert (source.records, source.kept) == (40, 40) == (report.statistics["records"], report.statistics["written"])
    assert (source.judge.calls, source.reason.calls) == (judged, len(server.asked) - judged)
    # The scripted server counts a token for every four characters of JSON, which is near enough for English.
    sent = sum(len(json.dumps(body["messages"])) // 4 for body in server.asked)
    assert source.judge.prompt_tokens + source.reason.prompt_tokens == pytest.approx(sent, rel=0.35)


def test_estimate_stops_at_the_target_and_pays_for_what_it_rejects(tmp_path: Path) -> None:
    half = Assumptions(samples=40, phase1=0.5, phase2=0.5)
    (source,) = estimate_build(config_of(tmp_path, source={"target": 5}), half).sources
    assert (source.records, source.kept) == (20, 5)
    assert source.reason.calls == pytest.approx(10)
    several = config_of(tmp_path, source={"target": 5})
    several = several.model_copy(update={"reason": several.reason.model_copy(update={"samples": 3})})
    # Half of the records need a second reply, and a quarter a third.
    assert estimate_build(several, half).sources[0].reason.calls == pytest.approx(10 * 1.75)


def test_estimate_leaves_out_what_training_refuses(tmp_path: Path) -> None:
    (source,) = estimate_build(config_of(tmp_path, max_tokens=100), EXACT).sources
    assert (source.admitted, source.records, source.judge.calls) == (0, 0, 0)


def test_estimate_adds_money_of_tokens_and_of_machines(tmp_path: Path) -> None:
    priced = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "usd_per_million_prompt_tokens": 2.0,
              "usd_per_million_completion_tokens": 10.0}  # fmt: skip
    config = config_of(tmp_path, reason={"kind": "teacher", "teacher": priced})
    estimate = estimate_build(config, EXACT)
    reason = estimate.sources[0].reason
    tokens_usd = (2 * reason.prompt_tokens + 10 * reason.reply_tokens) / 1e6
    assert estimate.usd == pytest.approx(tokens_usd)
    rented = estimate_build(config, parse_assumptions(["samples=40", "phase1=1", "phase2=1", "usd_per_hour=6"]))
    assert rented.usd > 6 * max(rented.hours.values()) > 0


def test_estimate_of_unknown_size_says_unknown(tmp_path: Path) -> None:
    write_world(tmp_path / "train.jsonl", 40)
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    (tmp_path / "train.json").write_text(json.dumps(rows))
    estimate = estimate_build(config_of(tmp_path, source={"path": str(tmp_path / "train.json")}), EXACT)
    assert math.isinf(estimate.sources[0].records)
    assert "unknown" in estimate.table()
    assert estimate.as_json()["sources"][0]["records"] is None
    assert estimate.usd == 0 and "cost: $0.00" in estimate.table(), "teachers without prices cost nothing"
    rented = estimate_build(
        config_of(tmp_path, source={"path": str(tmp_path / "train.json")}), replace(EXACT, usd_per_hour=6.0)
    )
    assert "cost: $unknown" in rented.table()


def test_dry_run_sends_and_writes_nothing_and_learns_from_a_pilot(tmp_path: Path) -> None:
    def script(body: Body, n: int) -> Say:
        say = correct_teacher(body, n)
        if not is_judge(body) and n % 2:
            say.text = "<think>No.</think>Answer: 7"
        return say

    with serve(script) as server:
        config = config_of(tmp_path, out="out", **with_teachers(server))
        pilot = pilot_of(config, 12).model_copy(update={"out": str(tmp_path / "pilot")})
        report = build(pilot)
        asked = len(server.asked)
        path = tmp_path / "config.toml"
        from seer.config import write_config

        write_config(config, path)
        command = ["build", str(path), "--dry-run", "--pilot", str(tmp_path / "pilot"), "--json"]
        result = CliRunner().invoke(app, command)
        plain = CliRunner().invoke(app, ["build", str(path), "--dry-run", "--limit", "4"])
        assert len(server.asked) == asked
    assert result.exit_code == plain.exit_code == 0, result.output
    assert not (tmp_path / "out").exists()
    estimate = json.loads(result.stdout)
    written = report.statistics["written"]
    assert 0 < written < 12
    assert estimate["measured"] and estimate["sources"][0]["kept"] == pytest.approx(40 * written / 12)
    assert "assumptions (not measured; change with --assume NAME=VALUE)" in plain.stdout


@pytest.mark.parametrize("given", ["phase1=2", "phase2=0", "phase3=1", "samples=many", "usd_per_hour", "phase1=nan"])
def test_parse_assumptions_rejects_bad_values(given: str) -> None:
    with pytest.raises(ConfigError, match=f"--assume '{given}': must be"):
        parse_assumptions([given])


def test_read_pilot_without_ledger_fails(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a finished build with teachers"):
        read_pilot(tmp_path)
