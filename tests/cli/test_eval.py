"""`seer eval`: predictions, scores and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from seer.cli.eval.frontier import page_size
from seer.cli.eval.main import app
from seer.engines.build import choose_engine
from seer.errors import ConfigError, InputError
from seer.evaluation.benchmarks.longbench import read_data
from seer.evaluation.files import read_predictions, read_run_manifest
from seer.evaluation.runs.score import EXIT_GAPS
from seer.protocol.geometry import GLM_41V
from seer.rendering import render_text, resolve_style


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A small benchmark in LongBench's format."""
    folder = tmp_path / "data"
    folder.mkdir()
    qa = [
        {
            "input": f"Who found ruin {n}?",
            "context": f"Digger {n}\nfound ruin {n}.",
            "answers": [f"Digger {n}"],
            "length": 5,
        }
        for n in range(4)
    ]
    classes = {"all_classes": ["Digger 7", "Other"], "answers": ["Digger 7"], "_id": "t7"}
    trec = [{"input": "Question: x\nType:", "context": "Digger 7", **classes}]
    for name, lines in {"hotpotqa": qa, "trec": trec}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


def invoke(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_longbench_predicts_and_scores_like_score_alone(data, tmp_path):
    out = tmp_path / "run"
    result = invoke("longbench", "--data", data, "--engine", "scripted", "--out", out, "--json")
    assert result.exit_code == 0, result.output
    scores = json.loads(result.stdout.splitlines()[-1])
    assert scores["scores"] == {"hotpotqa": 100.0, "trec": 100.0}, "the scripted engine quotes the first line"
    assert scores["failures"] == 0
    assert [one.id for one in read_predictions(out / "trec.jsonl")] == ["t7"]
    manifest = read_run_manifest(out)
    assert (manifest["engine"], manifest["selector"], manifest["style"]) == ("scripted", "model", "seer")
    again = invoke("score", out, "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout.splitlines()[-1]) == scores


def test_predict_with_selector_uses_the_page_budgets_of_a_matched_run(data, tmp_path):
    assert invoke("predict", "--data", data, "--engine", "scripted", "--out", tmp_path / "a").exit_code == 0
    matched = invoke(
        *("predict", "--data", data, "--engine", "scripted", "--out", tmp_path / "b"),
        *("--selector", "bm25", "--match", tmp_path / "a", "--tasks", "hotpotqa", "--limit", 2, "--json"),
    )
    assert matched.exit_code == 0, matched.output
    assert json.loads(matched.stdout)["num_predicted"] == 2
    predictions = read_predictions(tmp_path / "b/hotpotqa.jsonl")
    assert [one.selected_pages for one in predictions] == [(1,), (1,)]
    assert not (tmp_path / "b/trec.jsonl").exists()
    compared = invoke("report", tmp_path / "a", "--out", tmp_path / "report", "--json")
    assert compared.exit_code == 0, compared.output
    assert len(json.loads(compared.stdout)["reports"]) == 3


def test_predict_in_paper_style_draws_each_task_with_its_newlines_and_font(tmp_path):
    text = "".join(f"baker {n} is quiet\n" for n in range(300))
    tasks = {"hotpotqa": "mark", "musique": "break"}
    for name in tasks:
        record = {"input": "Who?", "context": text, "answers": ["x"]}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    common = ("predict", "--data", tmp_path, "--engine", "scripted", "--system", "visual", "--style", "paper")
    assert invoke(*common, "--out", tmp_path / "a").exit_code == 0
    font = ("--font", "DroidSansFallback")
    assert invoke(*common, *font, "--out", tmp_path / "b").exit_code == 0
    fonts = ("DroidSansFallback", "DejaVuSans")
    for run, changes in (("a", {}), ("b", {"fonts": fonts})):
        for name, newline in tasks.items():
            (one,) = read_predictions(tmp_path / run / f"{name}.jsonl")
            document = render_text(text, resolve_style("seer", newline=newline, **changes))
            assert one.usage.vision == sum(GLM_41V.tokens(page.width_px, page.height_px) for page in document)
    assert read_run_manifest(tmp_path / "a")["style"] == "paper"
    assert tuple(read_run_manifest(tmp_path / "b")["style"]["fonts"]) == fonts
    # Other fonts make other pages, so neither run resumes the other.
    assert isinstance(invoke(*common, *font, "--out", tmp_path / "a").exception, ConfigError)
    unknown = invoke(*common, "--font", "No Such Font", "--out", tmp_path / "c")
    assert isinstance(unknown.exception, InputError) and "neither bundled" in str(unknown.exception)


@pytest.mark.parametrize("recorded", ["first", "model"])
def test_probe_rebuilds_the_system_of_a_run_with_a_selector(data, tmp_path, recorded):
    """Runs of earlier versions recorded the selector `model`: their name still holds the one that was used."""
    out = tmp_path / "run"
    chosen = ("--system", "auto", "--selector", "first", "--policy", "rounds=2")
    assert invoke("predict", "--data", data, "--engine", "scripted", "--out", out, *chosen).exit_code == 0
    manifest = json.loads((out / "run.json").read_text(encoding="utf-8"))
    assert (manifest["system"], manifest["selector"]) == ("auto+first", "first")
    assert (manifest["policy"]["mode"], manifest["policy"]["rounds"]) == ("select", 2)
    (out / "run.json").write_text(json.dumps(manifest | {"selector": recorded}), encoding="utf-8")
    probed = invoke("probe", out, "--data", data, "--json")
    assert probed.exit_code == 0, probed.output
    assert json.loads(probed.stdout.splitlines()[-1])["probes"] == 5


def test_score_of_a_run_with_gaps_ends_with_its_own_exit_code(data, tmp_path):
    out = tmp_path / "run"
    invoke("predict", "--data", data, "--engine", "scripted", "--out", out)
    lines = (out / "hotpotqa.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (out / "hotpotqa.jsonl").write_text("".join(lines[:3]), encoding="utf-8")
    refused = invoke("score", out, "--json")
    assert refused.exit_code != 0
    assert getattr(refused.exception, "exit_code", None) == EXIT_GAPS
    assert "hotpotqa (1)" in str(refused.exception)
    scored = invoke("score", out, "--partial", "--json")
    assert scored.exit_code == EXIT_GAPS
    assert "PARTIAL: 1 inputs missing" in scored.stderr
    assert json.loads(scored.stdout.splitlines()[-1])["partial"] == {"hotpotqa": 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "hotpot"], "longbench has no task 'hotpot'"),
        (["--tasks", "lcc"], "has no lcc.jsonl"),
        (["--limit", "0"], "--limit is 0"),
        (["--system", "none"], "no system 'none'; known: seer, seer-k0, visual, text, auto"),
        (["--system", "bm25"], "it is a selector; use --selector bm25"),
        (["--selector", "bm52"], "no selector 'bm52'; known: model"),
        (["--system", "text", "--selector", "bm25"], "selects no pages; use --system seer or leave --selector out"),
        (["--engine", "hf"], "no model given"),
        (["--prompts", "none.json"], "no prompt file"),
        (["--batch-size", "0"], "batch_size is 0"),
    ],
)
def test_predict_rejects_bad_input(data, tmp_path, arguments, message):
    result = invoke("predict", "--data", data, "--engine", "scripted", "--out", tmp_path / "run", *arguments)
    assert message in str(result.exception)
    assert getattr(result.exception, "exit_code", None) == 2


def test_read_data_finds_records_in_a_folder_named_data(data):
    assert len(read_data(data.parent)[0]) == 5
    with pytest.raises(InputError, match="no folder at .*give a folder of <task>.jsonl files"):
        read_data(data / "none")


def test_longbench_scores_one_record_of_each_real_task(shared_data, tmp_path):
    result = invoke(
        *("longbench", "--data", shared_data / "longbench/samples", "--engine", "scripted"),
        *("--out", tmp_path, "--limit", 1, "--json"),
    )
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout.splitlines()[-1])["scores"]) == 21
    assert "21 of its 4750 inputs" in result.stderr


def test_longbench_rejects_the_folder_of_another_run_before_loading_a_model(data, tmp_path):
    arguments = ("longbench", "--data", data, "--out", tmp_path / "run")
    assert invoke(*arguments, "--engine", "scripted").exit_code == 0
    before = (tmp_path / "run/run.json").read_bytes()
    refused = invoke(*arguments, "--engine", "hf", "--model", tmp_path / "none")
    assert isinstance(refused.exception, ConfigError)
    assert "holds a run with engine 'scripted', not 'hf'" in str(refused.exception)
    assert (tmp_path / "run/run.json").read_bytes() == before


def test_predict_names_the_policy_field_that_differs_from_the_run(data, tmp_path):
    arguments = ("predict", "--data", data, "--out", tmp_path / "run", "--engine", "scripted")
    assert invoke(*arguments, "--policy", "max_pages=3").exit_code == 0
    refused = invoke(*arguments, "--policy", "max_pages=4")
    assert "holds a run with policy.max_pages 3, not 4; " in str(refused.exception)


def test_predict_does_not_resume_a_run_with_other_weights(data, tmp_path):
    from seer.miniature.model import build_untrained

    arguments = (
        "predict",
        "--data",
        data,
        "--out",
        tmp_path / "run",
        "--engine",
        "scripted",
        "--model",
        tmp_path / "model",
    )
    build_untrained(tmp_path / "model", seed=0)
    assert invoke(*arguments).exit_code == 0
    assert invoke(*arguments).exit_code == 0
    build_untrained(tmp_path / "model", seed=1)
    refused = invoke(*arguments)
    assert isinstance(refused.exception, ConfigError) and "holds a run with weights '" in str(refused.exception)


def test_predict_and_longbench_have_the_same_options():
    command = get_command(app)
    names = {name: {one.name for one in command.commands[name].params} for name in ("predict", "longbench")}
    assert names["longbench"] - names["predict"] == {"postprocess", "code_ratio"}
    assert names["predict"] < names["longbench"]


@pytest.mark.parametrize("command", ["predict", "longbench", "docqa", "frontier"])
def test_address_selects_the_openai_engine(command, data, tmp_path, monkeypatch):
    built = []

    def building(name: str | None = None, /, base_url: str | None = None, **options: object) -> object:
        built.append((choose_engine(name, base_url=base_url), base_url))
        raise InputError("enough")

    monkeypatch.setattr("seer.systems.build.build_engine", building)
    monkeypatch.setattr("seer.engines.build.build_engine", building)
    question = {"question": "What?", "answer": "5", "doc_id": "a.txt", "doc_type": "report"}
    evidence = {"evidence_pages": "[1]", "evidence_sources": "[]", "answer_format": "Int"}
    (tmp_path / "gold.json").write_text(json.dumps([question | evidence]))
    (tmp_path / "a.txt").write_text("Five.")
    given = ("--gold", tmp_path / "gold.json", "--documents", tmp_path) if command == "docqa" else ("--data", data)
    address = ("--base-url", "http://127.0.0.1:1/v1", "--model", "any")
    invoke(command, *given, *address, "--out", tmp_path / "run")
    assert built == [("openai", "http://127.0.0.1:1/v1")]
    result = invoke(command, *given, *address, "--engine", "vllm", "--out", tmp_path / "other")
    assert result.exit_code != 0
    assert "--base-url goes with --engine openai, not with vllm" in f"{result.output}{result.exception}"
    assert len(built) == 1


@pytest.mark.parametrize("size", ["595", "595x", "x842", "595 x 842", "-1x5", "axb"])
def test_frontier_rejects_a_page_size_that_it_cannot_read(size):
    with pytest.raises(
        InputError, match=f"--page-px {size}: not a page size; write width and height in pixels, e.g. 595x"
    ):
        page_size(size)
    assert page_size("595x842") == (595, 842)


def test_score_docqa_needs_the_questions_of_the_benchmark(tmp_path):
    result = invoke("score", tmp_path, "--benchmark", "docqa")
    assert isinstance(result.exception, InputError)
    assert str(result.exception) == "docqa needs the benchmark's own file; give it with --gold"


def test_report_of_a_run_with_gaps_is_written_and_ends_with_its_own_exit_code(data, tmp_path):
    out = tmp_path / "run"
    invoke("predict", "--data", data, "--engine", "scripted", "--out", out)
    lines = (out / "hotpotqa.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (out / "hotpotqa.jsonl").write_text("".join(lines[:3]), encoding="utf-8")
    result = invoke("report", out, "--out", tmp_path / "report", "--partial")
    assert result.exit_code == EXIT_GAPS, result.output
    assert [Path(path).is_file() for path in result.stdout.split()] == [True, True, True]
