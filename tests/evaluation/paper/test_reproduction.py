"""`seer eval paper`: runs, resuming, merging folders, and the report with what is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seer.cli.eval.main import app
from seer.cli.eval.paper import places_in_short
from seer.errors import ConfigError
from seer.evaluation.files import read_predictions, read_run_manifest
from seer.evaluation.paper.plan import PLACES
from seer.evaluation.runs.score import EXIT_GAPS


def paper(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["paper", *map(str, arguments)])


def sections(out: Path) -> dict[str, str]:
    """The text of each section of the report by its heading."""
    parts = (out / "report.md").read_text(encoding="utf-8").split("\n## ")
    return {part.partition("\n")[0]: part for part in parts[1:]}


def tables(out: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for table in json.loads((out / "report.json").read_text(encoding="utf-8"))["tables"]:
        found.setdefault(table["section"].partition(":")[0], []).append(table)
    return found


def test_paper_makes_every_run_and_fills_or_marks_every_table(data, models_path, tmp_path):
    out = tmp_path / "out"
    result = paper("--data", data, "--models", models_path, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    statuses = json.loads(result.stdout.splitlines()[-1])["runs"]
    made = {name for name, status in statuses.items() if status == "done"}
    assert made == {
        *("seer", "k0", "k1-select", "k1-retrieve", "unconstrained", "glyph", "text-plain", "prefill"),
        *("forced-first", "forced-random", "forced-bm25", "forced-all", "forced-oracle"),
        *("latency-seer", "latency-glyph", "latency-plain"),
    }
    assert read_run_manifest(out / "k1-retrieve")["policy"]["max_retrieved_pages"] == 1
    assert read_run_manifest(out / "forced-bm25")["system"] == "seer+bm25"
    assert (out / "latency-seer" / "probes.jsonl").read_text().count("\n") == 6
    found = sections(out)
    headings = [heading.partition(":")[0] for heading in found]
    places = [place.replace("table", "Table ").replace("figure", "Figure ") for place in PLACES if place != "calls"]
    assert headings[: len(places)] == places
    assert "not run: models.toml names no data build" in found["Table 7: retention"]
    assert "not run: iso (models.toml names no \\[iso\\])" in found["Table 3: ablation"]
    rows = {row[0]: row for table in tables(out)["Table 1"] for row in table["rows"]}
    assert rows["seer"][1] == 100.0 and rows["Seer (paper)"][1] == 51.11, "the paper's figure stands beside ours"
    (forced,) = tables(out)["Table 18"]
    assert {row[0] for row in forced["rows"]} >= {"seer", "forced-bm25", "BM25 (paper, 15 tasks)"}
    (rlm,) = tables(out)["Table 19"]
    assert next(row for row in rlm["rows"] if row[0] == "foreign-rlm")[2:] is not None
    (prefill,) = tables(out)["Table 14"]
    assert [row[0] for row in prefill["rows"]][:2] == [1, 2]
    (pages,) = tables(out)["Table 17"]
    assert next(row for row in pages["rows"] if row[0] == "seer")[3] == 1.0


def test_paper_again_repeats_no_run_and_loads_no_model(data, models_path, tmp_path, monkeypatch):
    out = tmp_path / "out"
    arguments = ("--data", data, "--models", models_path, "--out", out, "--only", "table4,prefill,table13")
    assert paper(*arguments).exit_code == 0
    before = {path: path.read_bytes() for path in out.rglob("*.jsonl")}
    assert len(before) > 8

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a model is loaded for runs that are complete")

    monkeypatch.setattr("seer.engines.build.build_engine", refuse)
    again = paper(*arguments)
    assert again.exit_code == 0, again.output
    assert {path: path.read_bytes() for path in out.rglob("*.jsonl")} == before
    assert "seer: complete before" in again.output and "seer: done" not in again.output


def test_interrupted_run_is_finished_without_repeating_inputs(data, models_path, tmp_path):
    out = tmp_path / "out"
    arguments = ("--data", data, "--models", models_path, "--out", out, "--only", "seer,prefill")
    assert paper(*arguments).exit_code == 0
    file, points = out / "seer" / "qasper.jsonl", out / "prefill" / "prefill.jsonl"
    whole = {path: path.read_bytes() for path in (file, points)}
    for path, content in whole.items():
        path.write_bytes(content[:-40])  # the last line was being written
    kept = file.read_bytes().splitlines()[0]
    result = paper(*arguments)
    assert "seer: done" in result.output and "prefill: done" in result.output
    assert file.read_bytes().splitlines()[0] == kept
    assert {one.id for one in read_predictions(file)} == {f"qasper-{n}" for n in range(3)}
    assert len(points.read_text().splitlines()) == 4 and all(map(json.loads, points.read_text().splitlines()))


def test_runs_of_two_machines_are_merged_by_putting_folders_together(data, models_path, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    common = ("--data", data, "--models", models_path)
    assert paper(*common, "--out", one, "--only", "seer").exit_code == 0
    assert paper(*common, "--out", two, "--only", "glyph,text-plain").exit_code == 0
    assert "not run: glyph (no folder" in sections(one)["Table 1: main results"]
    for name in ("glyph", "text-plain"):
        shutil.copytree(two / name, one / name)
    assert paper(*common, "--out", one, "--report-only").exit_code == 0
    rows = [row[0] for row in tables(one)["Table 1"][0]["rows"]]
    assert rows[:3] == ["seer", "glyph", "text-plain"]


def test_run_that_cannot_be_made_does_not_stop_the_others(data, models_path, tmp_path):
    models_path.write_text(
        models_path.read_text().replace('[glyph]\nengine = "scripted"', '[glyph]\nmodel = "nowhere"')
    )
    out = tmp_path / "out"
    result = paper("--data", data, "--models", models_path, "--out", out, "--only", "table4,text-plain")
    assert result.exit_code == EXIT_GAPS
    assert "glyph: not run: " in result.output and "text-plain: done" in result.output
    assert "glyph: not run" in sections(out)["Table 1: main results"]
    assert "nowhere" in sections(out)["Runs"]


def test_matched_run_waits_for_the_run_it_needs(data, models_path, tmp_path):
    models_path.write_text(models_path.read_text().replace('[seer]\nengine = "scripted"', '[seer]\nmodel = "nowhere"'))
    result = paper("--data", data, "--models", models_path, "--out", tmp_path / "out", "--only", "forced-bm25")
    assert result.exit_code == EXIT_GAPS
    assert "forced-bm25: not run: it needs the complete run 'seer'" in result.output


def test_oracle_waits_for_labels_of_a_judge_that_failed(data, models_path, tmp_path):
    content = models_path.read_text()
    labels = next(line for line in content.splitlines() if line.startswith("labels"))
    judge = '[judge]\nmodel = "j"\nbase_url = "http://127.0.0.1:9/v1"\nattempts = 1\nbackoff_s = 0\n'
    models_path.write_text(content.replace(labels, "") + judge)
    arguments = ("--data", data, "--models", models_path, "--out", tmp_path / "out", "--only", "forced-oracle")
    for _ in range(2):  # the labels that could not be made are not taken for made ones
        result = paper(*arguments)
        assert result.exit_code == EXIT_GAPS
        assert "labels: not run: 6 inputs failed, the first with: " in result.output
        assert "forced-oracle: not run: it needs the complete run 'labels'" in result.output


def test_run_with_other_settings_is_not_resumed(data, models_path, tmp_path):
    arguments = ("--data", data, "--models", models_path, "--out", tmp_path / "out", "--only", "seer")
    assert paper(*arguments).exit_code == 0
    models_path.write_text(models_path.read_text().replace("[seer]", "[seer]\nreasoning_tokens = 7"))
    result = paper(*arguments)
    assert result.exit_code == EXIT_GAPS
    assert "holds a run with reasoning_tokens 8192, not 7" in result.output


def test_dry_run_prints_the_plan_and_writes_nothing(data, models_path, tmp_path):
    out = tmp_path / "out"
    result = paper("--data", data, "--models", models_path, "--out", out, "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    runs = {run["name"]: run for run in json.loads(result.stdout.splitlines()[-1])["runs"]}
    assert runs["seer"]["inputs"] == 6 and runs["seer"]["prompt_tokens"] > 0
    assert runs["iso"]["missing"] and runs["iso"]["prompt_tokens"] == 0
    assert not out.exists()
    assert places_in_short(("table1", "figure2", "calls")) == "1 F2 calls"


def test_dry_run_in_a_pipe_prints_whole_figures(data, models_path, tmp_path):
    result = paper("--data", data, "--models", models_path, "--out", tmp_path / "out", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "prompt tokens" in result.output and "completion tokens" in result.output
    assert "…" not in result.output


def test_missing_models_file_is_named(data, tmp_path):
    result = paper("--data", data, "--models", tmp_path / "none.toml", "--out", tmp_path / "out")
    assert isinstance(result.exception, ConfigError) and "no configuration at" in str(result.exception)


def test_run_that_was_cut_is_marked_in_terminal_and_report(data, models_path, tmp_path):
    out = tmp_path / "out"
    arguments = ("--data", data, "--models", models_path, "--out", out)
    assert paper(*arguments, "--only", "glyph").exit_code == 0
    file = out / "glyph" / "qasper.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[0]["trace"][-1] = {"name": "reason", "outputs": {"text": "hm", "raw": "<think>hm"}, "finish": "length"}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = paper(*arguments, "--report-only")
    warning = "glyph: 1 of 6 inputs ended inside the thinking"
    assert f"warning: {warning}" in result.output
    assert f"**Warning:** {warning}" in (out / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [80])
def test_paper_help_shows_examples(width):
    result = CliRunner(env={"COLUMNS": str(width)}).invoke(app, ["paper", "--help"])
    assert "--dry-run" in result.output and "--only" in result.output
