"""Tests of the paper's controls in miniature: held-out questions, one run per control, figures and report."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seer.cli.eval.main import app
from seer.errors import ConfigError, InputError, ModelError
from seer.evaluation.analysis.scored_run import load_run
from seer.evaluation.analysis.selections import count_invalid, gain_by_selected
from seer.evaluation.benchmarks.longbench import read_data
from seer.miniature.controls import (
    CONTROLS,
    DATA,
    MIX,
    draw_questions,
    figures,
    gold_pages,
    load_controls,
    quotas,
    run_controls,
    write_world,
)
from seer.miniature.model import build_untrained
from seer.miniature.world import STYLE, split_of

KEYS = (
    *("page_f1_single", "page_f1_all", "bm25_f1_low_overlap", "page_f1_low_overlap", "all_sample_f1", "em"),
    *("em_without_retrieve", "em_iso_control", "em_visual", "invalid_selections", "n", "seed"),
)


def test_draw_questions_has_fixed_proportions_and_one_document_per_question():
    drawn = list(draw_questions(100, seed=5))
    assert Counter(question.kind for _, question in drawn) == {kind: 100 * share for kind, share in MIX.items()}
    assert len({document.id for document, _ in drawn}) == 100
    assert 15 <= sum(question.language == "zh" for _, question in drawn) <= 40
    facts = {(line.name, line.code) for document, _ in drawn for line in document.lines if line.code}
    assert {split_of(*fact) for fact in facts} == {"test"}
    assert drawn == list(draw_questions(100, seed=5)) != list(draw_questions(100, seed=6))
    for n in (10, 11, 37):
        assert sum(quotas(n).values()) == n
        assert min(quotas(n).values()) >= 1
    with pytest.raises(InputError, match="at least 10"):
        list(draw_questions(9, seed=0))


def test_write_world_is_read_as_a_benchmark(tmp_path):
    data = write_world(tmp_path / "world", 10, seed=1)
    records, benchmark = read_data(data)
    assert (benchmark.name, benchmark.num_records, len(records)) == ("miniature", 10, 10)
    gold = gold_pages(data)
    assert gold.keys() == {record.id for record in records}
    drawn = {question.id: question for _, question in draw_questions(10, seed=1)}
    for record in records:
        question = drawn[record.id]
        assert (record.task, record.input, record.answers) == (question.kind, question.text, (question.answer,))
        assert gold[record.id] == question.pages


def test_write_world_rejects_folder_with_another_world(tmp_path):
    before = {path.name: path.read_bytes() for path in write_world(tmp_path, 10, seed=1).iterdir()}
    write_world(tmp_path, 10, seed=1)
    for n, seed in ((10, 2), (12, 1)):
        with pytest.raises(InputError, match="contains another world"):
            write_world(tmp_path, n, seed)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_untrained(tmp_path_factory.mktemp("models") / "untrained")


@pytest.fixture(scope="module")
def controls(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the whole command on ten questions, with the same untrained model also as iso-training model."""
    out = tmp_path_factory.mktemp("controls")
    arguments = ["miniature", "--model", str(checkpoint), "--iso-model", str(checkpoint), "--n", "10", "--seed", "4"]
    with pytest.MonkeyPatch.context() as patch:  # an untrained model generates up to its limit
        patch.setattr("seer.miniature.controls.MAX_NEW_TOKENS", dict.fromkeys(MIX, 12))
        result = CliRunner().invoke(app, [*arguments, "--out", str(out), "--report", "--json"])
    assert result.exit_code == 0, result.output
    (out / "printed.json").write_text(result.stdout.splitlines()[-1], encoding="utf-8")
    return out


def test_miniature_command_prints_figures_last(controls):
    printed = json.loads((controls / "printed.json").read_text(encoding="utf-8"))
    assert tuple(printed) == KEYS
    assert (printed["n"], printed["seed"], printed["invalid_selections"]) == (10, 4, 0)
    runs = load_controls(controls)
    assert [run.name for run in runs] == [control.name for control in CONTROLS]
    assert figures(runs, gold_pages(controls / DATA), n=10, seed=4) == printed
    assert figures(runs[:4], gold_pages(controls / DATA), n=10, seed=4)["em_iso_control"] is None


def test_run_controls_each_run_follows_its_control(controls):
    runs = {run.name: list(run.each()) for run in load_controls(controls)}
    gold = gold_pages(controls / DATA)
    assert {len(one) for one in runs.values()} == {10}
    for full, none, single, oracle, every, matched in zip(
        *(runs[name] for name in ("full", "without-retrieve", "one-page", "forced-oracle", "forced-all")),
        runs["forced-bm25"],
        strict=True,
    ):
        assert full.selected_pages == none.selected_pages
        assert none.usage.retrieved < full.usage.retrieved or not full.selected_pages
        assert len(single.selected_pages) <= 1
        assert oracle.selected_pages == gold[oracle.id]
        assert every.selected_pages == tuple(range(1, every.pages + 1))
        assert len(matched.selected_pages) == max(1, len(full.selected_pages))
    for name in ("visual", "iso"):
        assert not any(one.selected_pages for one in runs[name])
    assert load_run(controls / "full").style == STYLE


def test_run_controls_skips_finished_runs_and_rejects_other_weights(controls, checkpoint, tmp_path):
    before = (controls / "full" / "single.jsonl").read_bytes()
    run_controls(controls / DATA, controls, model=checkpoint, iso_model=None, seed=4, controls=CONTROLS[:1])
    assert (controls / "full" / "single.jsonl").read_bytes() == before
    other = build_untrained(tmp_path / "other", seed=1)
    with pytest.raises(ConfigError, match="holds a run with model"):
        run_controls(controls / DATA, controls, model=other, iso_model=None, seed=4, controls=CONTROLS[:1])


def test_miniature_report_shows_pages_and_gains(controls):
    page = (controls / "report.html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in page
    text = (controls / "report.md").read_text(encoding="utf-8")
    for title in ("At a glance", "Controls", "Retrieval scope", "Pages and selections", "Page selection"):
        assert title in text
    assert "full compared with other selectors, by task" in text
    assert "forced-first beside" not in text
    full, none = (load_run(controls / name) for name in ("full", "without-retrieve"))
    gains = gain_by_selected(full, none)
    assert sum(one.num_samples for one in gains) == 10
    assert count_invalid(full.each()) == 0


def test_miniature_command_world_only_writes_a_benchmark(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["miniature", "--world-only", "--n", "10", "--out", str(tmp_path / "world")])
    assert result.exit_code == 0, result.output
    records, benchmark = read_data(tmp_path / "world")
    assert len(records) == 10 and benchmark.name == "miniature"
    assert {*gold_pages(tmp_path / "world")} == {record.id for record in records}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["world"]
    nowhere = CliRunner().invoke(app, ["miniature", "--world-only"])
    assert isinstance(nowhere.exception, InputError) and "--out" in str(nowhere.exception)


def test_miniature_command_rejects_missing_model(tmp_path):
    result = CliRunner().invoke(app, ["miniature", "--model", str(tmp_path / "none"), "--n", "10"])
    assert isinstance(result.exception, ModelError)
