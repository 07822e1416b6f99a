"""Document QA from end to end: real PDFs, a system that reads their pages, short answers and scores."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from fixtures.data.teacher_server import Body, Say, serve, user_text
from typer.testing import CliRunner

from seer.cli.eval.main import app
from seer.errors import ConfigError, InputError
from seer.evaluation.benchmarks.docqa import DocQARecord, read_docqa
from seer.evaluation.files import read_predictions, read_run_manifest
from seer.evaluation.runs.plan_docqa import find_documents, plan_docqa
from seer.evaluation.runs.score_docqa import read_docqa_predictions
from seer.evaluation.scoring.short_answers import AnswerFormat
from seer.schema import Status

NUM_PAGES = 6


def make_pdf(lines: list[str]) -> bytes:
    """Return a PDF with one page per line."""
    canvas = pytest.importorskip("reportlab.pdfgen.canvas").Canvas(buffer := io.BytesIO(), pagesize=(300, 200))
    for line in lines:
        canvas.drawString(20, 150, line)
        canvas.drawString(20, 120, "This line is on every page and has no answer.")
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    """A folder with questions in the formats of both benchmarks on one PDF, whose page n contains n squared."""
    (tmp_path / "pdfs").mkdir()
    lines = [str(number * number) for number in range(1, NUM_PAGES + 1)]
    (tmp_path / "pdfs/report.pdf").write_bytes(make_pdf(lines))
    rows = [
        {
            "question": f"Which number is on page {n}?",
            "answer": str(n * n),
            "evidence_pages": f"[{n}]",
            "doc_id": "report.pdf",
        }
        for n in (2, 5)
    ]
    rows = [{**row, "evidence_sources": "[]", "answer_format": "Int", "doc_type": "report"} for row in rows]
    (tmp_path / "samples.json").write_text(json.dumps(rows), encoding="utf-8")
    part = {
        "question_id": "part",
        "doc_no": "report",
        "start_end_idx": [3, 5],
        "question": "Which number is on page 4?",
    }
    part |= {"answer": 16, "evidence_pages": [4], "evidence_sources": ["Text"], "answer_format": "Integer"}
    (tmp_path / "part.jsonl").write_text(json.dumps(part) + "\n", encoding="utf-8")
    return tmp_path


def invoke(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run(folder: Path, out: Path, gold: str = "samples.json", *more: object):
    return invoke(
        *("docqa", "--gold", folder / gold, "--documents", folder / "pdfs", "--out", out),
        *("--engine", "scripted", "--selector", "oracle", *more),
    )


def test_docqa_command_reads_pdf_pages_and_is_scored(benchmark, tmp_path):
    out = tmp_path / "run"
    result = run(benchmark, out)
    assert result.exit_code == 0, result.output
    predictions = read_predictions(out / "docqa.jsonl")
    assert [(one.pred, one.selected_pages, one.pages) for one in predictions] == [("4", (2,), 6), ("25", (5,), 6)]
    assert all(one.usage.vision > 0 for one in predictions), "the pages were shown as images"
    scored = invoke("score", out, "--benchmark", "docqa", "--gold", benchmark / "samples.json", "--json")
    assert json.loads(scored.stdout.splitlines()[-1])["accuracy"] == 100.0
    again = run(benchmark, out)
    assert "2 inputs: 2 done before, 0 predicted now" in again.stderr
    assert (read_run_manifest(out)["benchmark"], read_run_manifest(out)["dpi"]) == ("docqa", 96)


def test_docqa_command_shows_only_page_range(benchmark, tmp_path):
    out = tmp_path / "run"
    assert run(benchmark, out, "part.jsonl").exit_code == 0
    (one,) = read_predictions(out / "docqa.jsonl")
    assert (one.pred, one.pages, one.selected_pages) == ("16", 3, (2,))
    assert run(benchmark, tmp_path / "lower", "part.jsonl", "--dpi", 48).exit_code == 0
    (lower,) = read_predictions(tmp_path / "lower/docqa.jsonl")
    assert 0 < lower.usage.vision < one.usage.vision


def test_docqa_command_counts_damaged_file_as_failure(benchmark, tmp_path):
    (benchmark / "pdfs/report.pdf").write_bytes(b"%PDF-1.4 and no more")
    assert run(benchmark, tmp_path / "run", "samples.json", "--retry-rounds", 0).exit_code == 0
    predictions = read_predictions(tmp_path / "run/docqa.jsonl")
    assert {one.status for one in predictions} == {Status.FAILED}
    assert "report.pdf" in predictions[0].cause


def test_docqa_command_rejects_missing_file_and_other_run_before_loading_model(benchmark, tmp_path):
    out = tmp_path / "run"
    run(benchmark, out)
    refused = run(benchmark, out, "samples.json", "--engine", "hf", "--model", "none")
    assert isinstance(refused.exception, ConfigError)
    (benchmark / "pdfs/report.pdf").unlink()
    missing = run(benchmark, tmp_path / "new", "samples.json", "--engine", "hf", "--model", "none")
    assert "lacks 1 documents that the records name, such as 'report.pdf'" in str(missing.exception)
    assert "--limit is 0" in str(run(benchmark, out, "samples.json", "--limit", 0).exception)


def test_find_documents_rejects_name_outside_folder(benchmark):
    (benchmark / "secret.pdf").write_bytes(b"x")
    for name in ("../secret.pdf", "../secret", str(benchmark / "secret.pdf"), ""):
        record = DocQARecord("q", name, "?", "a", AnswerFormat.STR, (), (), "")
        with pytest.raises(InputError, match="lacks 1 documents"):
            find_documents([record], benchmark / "pdfs")


def test_plan_docqa_accepts_real_records(shared_data, tmp_path):
    records = read_docqa(shared_data / "docqa/LongDocURL_sample3.jsonl")
    assert [record.pages for record in records] == [(42, 71), (8, 37), (24, 53)]
    for record in records:
        (tmp_path / f"{record.document}.pdf").write_bytes(b"")
    inputs, manifest = plan_docqa(records, tmp_path, "seer", reasoning_tokens=100)
    assert [one.length for one in inputs] == [30, 30, 30]
    assert manifest["num_inputs"] == {"docqa": 3}


def test_read_docqa_rejects_invalid_page_range(benchmark):
    row = json.loads((benchmark / "part.jsonl").read_text())
    for page_range in ([5, 3], [0, 4], ["a", "b"], [1]):
        (benchmark / "part.jsonl").write_text(json.dumps({**row, "start_end_idx": page_range}))
        with pytest.raises(InputError, match="start_end_idx is"):
            read_docqa(benchmark / "part.jsonl")


def test_extract_shortens_answers_once(benchmark, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    rows = [
        {"id": "docqa-0000", "pred": "It says four, that is 4.", "status": "answered"},
        {"id": "docqa-0001", "pred": "The question is not answerable, sadly.", "status": "not_answerable"},
    ]
    (out / "docqa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    gold = benchmark / "samples.json"

    def script(body: Body, n: int) -> Say:
        assert "It says four" in user_text(body)
        assert body["temperature"] == 0
        return Say("<think>Hm.</think>Extracted answer: 4\nAnswer format: Int")

    arguments = ["extract", out, "--gold", gold, "--model", "m", "--base-url"]
    with serve(script) as server:
        for _ in range(2):
            result = invoke(*arguments, server.base_url)
            assert result.exit_code == 0, result.output
        assert len(server.asked) == 1, "finished calls are not repeated, and unanswerable questions need none"
    assert read_docqa_predictions(out / "short.jsonl") == {"docqa-0000": "4", "docqa-0001": "Not answerable"}
    scored = invoke("score", out / "short.jsonl", "--benchmark", "docqa", "--gold", gold, "--json")
    assert json.loads(scored.stdout.splitlines()[-1])["accuracy"] == 50.0


def test_extract_marks_reply_without_short_answer_as_failed(benchmark, tmp_path):
    out = tmp_path / "run"
    run(benchmark, out)
    with serve(lambda body, n: Say("I would rather not.")) as server:
        arguments = ["extract", out, "--gold", benchmark / "samples.json", "--model", "m"]
        result = invoke(*arguments, "--base-url", server.base_url)
    assert "0 had failed before, 2 could not be shortened" in result.stderr
    assert set(read_docqa_predictions(out / "short.jsonl").values()) == {None}


def test_extract_rejects_missing_or_unfinished_run(benchmark, tmp_path):
    arguments = ["--gold", benchmark / "samples.json", "--model", "m", "--base-url", "http://127.0.0.1:9/v1"]
    assert "no folder at" in str(invoke("extract", tmp_path / "none", *arguments).exception)
    run(benchmark, tmp_path / "run", "samples.json", "--limit", 1)
    refused = invoke("extract", tmp_path / "run", *arguments)
    assert isinstance(refused.exception, InputError)
    assert "lacks 1 of 2 inputs, such as 'docqa-0001'" in str(refused.exception)


def test_extract_marks_failed_call_and_stops_at_wrong_key(benchmark, tmp_path):
    out = tmp_path / "run"
    run(benchmark, out)
    arguments = ["extract", out, "--gold", benchmark / "samples.json", "--model", "m", "--json"]
    arguments += ["--teacher-option", "attempts=1", "--base-url"]
    with serve(lambda body, n: Say(status=500)) as server:
        report = json.loads(invoke(*arguments, server.base_url).stdout)
    assert (report["num_answers"], report["num_unread"]) == (2, 2)
    with serve(lambda body, n: Say(status=401)) as server:
        refused = invoke(*arguments, server.base_url)
    assert getattr(refused.exception, "exit_code", None) == 1


def test_plan_docqa_rejects_negative_reasoning_tokens_and_a_missing_folder(tmp_path):
    with pytest.raises(InputError, match="reasoning_tokens is -1; it must be at least 0"):
        plan_docqa([], tmp_path, "seer", reasoning_tokens=-1)
    with pytest.raises(InputError, match="no folder at '.*nowhere'; give the one with the benchmark's documents"):
        plan_docqa([], tmp_path / "nowhere", "seer")
