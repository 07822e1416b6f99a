"""Scores of document-QA predictions: accuracy, F1 and groups."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from seer.cli.eval.main import app
from seer.errors import InputError
from seer.evaluation.benchmarks.docqa import (
    DocQARecord,
    read_docqa,
)
from seer.evaluation.runs.score_docqa import read_docqa_predictions, score_docqa
from seer.evaluation.scoring.short_answers import (
    DocProtocol,
    read_format,
)

FIXED, OFFICIAL, LONGDOCURL = DocProtocol


def record(number: int, answer: str, form: str = "Str", pages: tuple[int, ...] = (1,)) -> DocQARecord:
    return DocQARecord(f"q{number}", "d", "?", answer, read_format(form), pages, ("Chart",), "report")


def test_score_docqa_computes_accuracy_f1_and_groups():
    records = [
        record(0, "Europe"),
        record(1, "8", "Int"),
        record(2, "Not answerable", "None", ()),
        record(3, "a", "Str"),
    ]
    predictions = {"q0": "europe", "q1": "9", "q2": "Not answerable", "q3": None}
    report = score_docqa(records, predictions, FIXED)
    assert report.overall.accuracy == 0.5
    assert report.overall.num_failures == 1
    recall, precision = 1 / 3, 1 / 3
    assert report.overall.f1 == pytest.approx(2 * recall * precision / (recall + precision))
    assert report.groups["unanswerable"].accuracy == 1
    assert report.groups["format Int"].accuracy == 0
    assert report.groups["single page"].num_questions == 3
    assert report.to_json()["failures"] == 1


def test_score_docqa_rejects_question_without_prediction():
    with pytest.raises(InputError, match="1 of 1 questions have no prediction"):
        score_docqa([record(0, "a")], {}, FIXED)


def test_score_docqa_of_gold_answers_is_one_on_real_records(shared_data):
    records = read_docqa(shared_data / "docqa/mmlongbench_doc_60.json")
    assert len(records) == 60
    for protocol in (FIXED, OFFICIAL):
        report = score_docqa(records, {one.id: one.answer for one in records}, protocol)
        assert report.overall.accuracy == 1
        assert report.overall.f1 == 1
    longdocurl = read_docqa(shared_data / "docqa/LongDocURL_sample3.jsonl")
    assert [one.evidence_pages for one in longdocurl] == [(54,), (15, 16), (42,)]
    assert score_docqa(longdocurl, {one.id: one.answer for one in longdocurl}, LONGDOCURL).overall.accuracy == 1


def test_score_command_scores_docqa(tmp_path):
    gold = tmp_path / "gold.json"
    fields = {"doc_id": "d", "question": "?", "evidence_pages": "[1]", "evidence_sources": "['Chart']"}
    rows = [fields | {"answer": "8", "answer_format": "Int"}, fields | {"answer": "x", "answer_format": "Str"}]
    gold.write_text(json.dumps(rows), encoding="utf-8")
    run = tmp_path / "run.jsonl"
    run.write_text('{"id": "docqa-0000", "pred": "8"}\n{"id": "docqa-0001", "pred": null}\n', encoding="utf-8")
    arguments = ["score", str(run), "--benchmark", "docqa", "--gold", str(gold), "--json"]
    result = CliRunner().invoke(app, [*arguments, "--protocol", "mmlongbench-official"])
    assert result.exit_code == 0, result.output
    scores = json.loads(result.stdout.splitlines()[-1])
    assert (scores["accuracy"], scores["failures"], scores["protocol"]) == (50.0, 1, "mmlongbench-official")
    assert "--protocol is 'x'; use mmlongbench, mmlongbench-official or longdocurl-official" in str(
        CliRunner().invoke(app, [*arguments, "--protocol", "x"]).exception
    )


def test_read_docqa_predictions_rejects_invalid_line(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"id": "a", "pred": "x"}\n{"id": "a", "pred": "y"}', encoding="utf-8")
    with pytest.raises(InputError, match="line 2: the id 'a' occurs twice; keep one of the lines"):
        read_docqa_predictions(path)
    path.write_text('{"id": "a"}', encoding="utf-8")
    with pytest.raises(InputError, match="needs an object with 'id' and 'pred'"):
        read_docqa_predictions(path)
