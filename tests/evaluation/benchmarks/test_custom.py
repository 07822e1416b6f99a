"""Custom benchmarks: written in TOML, stored in the manifest, scored and reported like LongBench."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seer.cli.eval.main import app
from seer.errors import ConfigError
from seer.evaluation.analysis.scored_run import load_run
from seer.evaluation.benchmarks.custom import FILE_NAME, from_manifest, load_benchmark, to_manifest
from seer.evaluation.benchmarks.tasks import LONGBENCH
from seer.evaluation.files import read_run_manifest
from seer.evaluation.reports.build import build_report
from seer.evaluation.runs.score import score_folder
from seer.evaluation.scoring.scorers import Metric

WORLD = """
name = "small world"

[tasks.digits]
category = "lookup"
metric = "qa_f1"
max_new_tokens = 8
num_records = 4
question = "Which digits belong to {input}?"

[tasks.names]
category = "naming"
metric = "count"
max_new_tokens = 4
num_records = 1
"""


@pytest.fixture
def world(tmp_path: Path) -> Path:
    folder = tmp_path / "world"
    folder.mkdir()
    (folder / FILE_NAME).write_text(WORLD, encoding="utf-8")
    digits = [{"input": f"w{n}", "context": f"{n} {n}\nw{n}", "answers": [f"{n} {n}"]} for n in range(4)]
    names = [{"input": "how many?", "context": "7\n", "answers": ["7"]}]
    for name, lines in {"digits": digits, "names": names}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


def test_load_benchmark_without_file_returns_longbench(tmp_path):
    assert load_benchmark(tmp_path) is LONGBENCH
    assert from_manifest(to_manifest(LONGBENCH), "here") is LONGBENCH


def test_benchmark_is_equal_after_manifest_round_trip(world):
    benchmark = load_benchmark(world)
    assert (benchmark.name, benchmark.categories, benchmark.num_records) == ("small world", ("lookup", "naming"), 5)
    assert benchmark.find("names").metric is Metric.COUNT
    assert from_manifest(json.loads(json.dumps(to_manifest(benchmark))), "here") == benchmark


def test_custom_task_newline_is_in_the_manifest_only_if_set(world):
    (world / FILE_NAME).write_text(WORLD + 'newline = "mark"\n', encoding="utf-8")
    benchmark = load_benchmark(world)
    assert (benchmark.find("digits").newline, benchmark.find("names").newline) == (None, "mark")
    manifest = to_manifest(benchmark)
    assert "newline" not in manifest["tasks"]["digits"] and manifest["tasks"]["names"]["newline"] == "mark"
    assert from_manifest(json.loads(json.dumps(manifest)), "here") == benchmark
    (world / FILE_NAME).write_text(WORLD + 'newline = "auto"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="newline"):
        load_benchmark(world)


def test_custom_benchmark_is_predicted_scored_and_reported(world, tmp_path):
    out = tmp_path / "run"
    arguments = ["longbench", "--data", str(world), "--engine", "scripted", "--out", str(out), "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    scores = json.loads(result.stdout.splitlines()[-1])
    assert scores["scores"] == {"digits": 100.0, "names": 100.0}
    assert scores["categories"] == {"lookup": 100.0, "naming": 100.0}
    assert "inputs" not in scores, "the run is complete"
    assert read_run_manifest(out)["benchmark"] == "small world"
    assert score_folder(out).macro == 100
    report = build_report([load_run(out)])
    assert report.title == "small world"
    tables = [table for section in report.sections for table in section.tables]
    assert not any(row.kind == "paper" for table in tables for row in table.rows), "papers report only on LongBench"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('metric = "qa_f1"', 'metric = "bleu"'), "tasks.digits.metric"),
        (("max_new_tokens = 8", "max_tokens = 8"), "did you mean 'max_new_tokens'"),
        (("[tasks.digits]", '[tasks."../x"]'), "can't be a file's name"),
        (("{input}", "it"), r"needs \{input\}"),
        (('name = "small world"', "name ="), "cannot be read as TOML: .*; correct its syntax"),
    ],
)
def test_load_benchmark_rejects_invalid_file(world, change, message):
    (world / FILE_NAME).write_text(WORLD.replace(*change), encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_benchmark(world)
