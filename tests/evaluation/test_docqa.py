"""Document-QA scoring: the published rules with their faults, the repaired ones, and what counts in F1."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from seer.cli.eval.main import app
from seer.errors import InputError
from seer.evaluation.benchmarks.docqa import (
    DocQARecord,
    extraction_prompt,
    read_docqa,
    read_extraction,
)
from seer.evaluation.runs.score_docqa import read_docqa_predictions, score_docqa
from seer.evaluation.scoring.short_answers import (
    _NUMBER,
    AnswerFormat,
    DocProtocol,
    _clean_marks,
    read_format,
    score_answer,
)

REPAIRED, OFFICIAL, LONGDOCURL = DocProtocol


@pytest.mark.parametrize(
    ("form", "gold", "prediction", "repaired", "official", "longdocurl"),
    [
        ("Int", "8", "8", 1, 1, 1),
        ("Int", "8", "8.6", 0, 1, 0),
        ("Int", "8", "8%", 1, 0, 1),
        ("Int", "8", "eight", 0, 0, 0),
        ("Int", "96395", "96,395.0", 1, 0, 0),
        ("Float", "18.29%", "0.1829", 1, 1, 1),
        ("Float", "18.29%", "18.4", 1, 1, 1),
        ("Float", "18.29%", "19", 0, 0, 0),
        ("Float", "1,234.5", "1234.5", 1, 0, 1),
        ("Float", "51%", "£51", 1, 0, 1),
        ("Str", "Berlin School", "berlin school (of psychology)", 1, 1, 1),
        ("Str", "page 7", "page 8", 0, 0, 0),
        ("Str", "12 meters", "12 m", 0, 0, 1),
        ("Str", "Europe", "Not answerable", 0, 0, 0),
        ("None", "Not answerable", "Not answerable.", 1, 1 - 1 / 15, 1 - 1 / 15),
        ("None", "Not answerable", "Answerable", 0, 1 - 4 / 14, 1 - 4 / 14),
        ("None", "Not answerable", "Fail to answer", 0, 0, 0),
        ("List", "['White', '10%']", "['10%', 'White']", 1, 1, 1),
        ("List", "['White', '10%']", "[White, 10%]", 1, 0, 0),
        ("List", "['White', 'Black']", "['White', 'Black', 'Red', 'Tan']", 0, 0, 0.5**0.5),
        ("List", "[1500, 8000]", "[8000, 1500]", 1, 1, 0),
        ("List", "['ab', 'abcd']", "['ab', 'abce']", 0.75, 0.75, 0.875),
    ],
)
def test_each_protocol(form, gold, prediction, repaired, official, longdocurl):
    scores = [score_answer(gold, prediction, AnswerFormat(form), protocol) for protocol in DocProtocol]
    assert scores == [pytest.approx(value) for value in (repaired, official, longdocurl)]


@pytest.mark.parametrize(
    ("form", "gold", "prediction", "score"),
    [
        ("Int", "1874", "1,874", 1),
        ("Int", "1,874", "1874", 1),
        ("Int", "1874", "$ 1,874", 1),
        ("Int", "1874", "1_874", 1),
        ("Int", "7", "007", 1),
        ("Int", "7", "+7", 1),
        ("Int", "5", "5 (approximately)", 1),
        ("Int", "12", "12 kg", 1),
        ("Int", "1874", "1,874.00", 0),
        ("Int", "1874", "1 874", 0),
        ("Int", "5", "(5)", 0),
        ("Int", "5", "[5]", 0),
        ("Int", "five", "five", 0),
        ("Float", "1874", "1,874.00", 1),
        ("Float", "1,874.00", "$1874", 1),
        ("Float", "18.29%", "18.29% %", 1),
        ("Float", "18.29% %", "0.1829", 1),
        ("Float", "0.1829", "18.29 %", 1),
        ("Float", "1000", "1e3", 1),
        ("Float", "1.2", "1.2 million", 1),
        ("Float", "1874", "1.874,00", 0),
        ("Float", "1.5", "1 1/2", 0),
        ("Float", "5", "(5)", 0),
        ("Float", "nan", "nan", 0),
        ("Str", "1,874.00", "1874.00", 1),
        ("Str", "1874", "1,874.00", 0),
        ("Str", "1874.5 kg", "1,874.5", 1),
        ("List", "[1874, 5]", "[1,874.00, 5]", 0),
        ("List", "['1,874', '5']", "['1874', '5%']", 1),
        ("List", "['1,874']", "1,874", 1),
        ("List", "1874", "(1, 874)", 0),
    ],
)
def test_longdocurl_number_format_scores_as_in_published_script(form, gold, prediction, score):
    """The expected scores are those of the published script, called with both answers as text."""
    assert score_answer(gold, prediction, AnswerFormat(form), LONGDOCURL) == score


short_answers = st.one_of(
    st.text(max_size=30),
    st.integers().map(str),
    st.floats().map(str),
    st.lists(st.text(max_size=5), max_size=4).map(str),
    st.lists(st.sampled_from("[]{}(),'\"1a%$ "), max_size=20).map("".join),
)


@settings(deadline=None)
@given(short_answers, short_answers, st.sampled_from(AnswerFormat), st.sampled_from(DocProtocol))
def test_any_answer_gets_a_score(gold, prediction, form, protocol):
    assert 0 <= score_answer(gold, prediction, form, protocol) <= 1


@pytest.mark.parametrize("protocol", DocProtocol)
@pytest.mark.parametrize("prediction", ["[" * 100_000, "a" * 100_000, "9" * 100_000, "__import__('os').system('x')"])
def test_huge_and_hostile_answers_are_only_read(prediction, protocol):
    for form in AnswerFormat:
        assert score_answer("['a']" if form is AnswerFormat.LIST else "8", prediction, form, protocol) == 0


def record(number: int, answer: str, form: str = "Str", pages: tuple[int, ...] = (1,)) -> DocQARecord:
    return DocQARecord(f"q{number}", "d", "?", answer, read_format(form), pages, ("Chart",), "report")


@given(st.text("() \na'\u3000", max_size=14))
@settings(deadline=None, max_examples=300)
def test_parentheses_go_as_the_published_scripts_take_them(text):
    without = re.sub(r"\s*\([^)]*\)", "", text).strip()
    assert _clean_marks(text) == re.sub(r"^['\"]|['\"]$", "", without).strip()


@given(st.text("17,.-+e% k", max_size=8))
@settings(deadline=None, max_examples=500)
def test_a_number_ends_in_a_digit_or_a_unit(text):
    plain = r"[-+]?(?:\d[\d,]*)?\.?\d+(?:e[-+]?\d+)?\.?(?:\s*%|\s+[^\d\s]+)?"
    assert bool(_NUMBER.fullmatch(text)) == bool(re.fullmatch(plain, text))


@pytest.mark.parametrize("part", ["(", ")", " ", "( ", " (", "()", "9", "9,", "9.", ".", "-", "['", "1-", "9 "])
@pytest.mark.parametrize("around", [("", ""), ("", "a"), ("a", "a")])
def test_long_answers_take_linear_time(part, around):
    """A hang shows as the time limit of the whole suite."""
    answer = (part * (100_000 // len(part))).join(around)
    for form, protocol in itertools.product(AnswerFormat, DocProtocol):
        assert 0 <= score_answer("12", answer, form, protocol) <= 1


def test_accuracy_and_f1():
    records = [
        record(0, "Europe"),
        record(1, "8", "Int"),
        record(2, "Not answerable", "None", ()),
        record(3, "a", "Str"),
    ]
    predictions = {"q0": "europe", "q1": "9", "q2": "Not answerable", "q3": None}
    report = score_docqa(records, predictions, REPAIRED)
    assert report.overall.accuracy == 0.5
    assert report.overall.num_failures == 1
    recall, precision = 1 / 3, 1 / 3
    assert report.overall.f1 == pytest.approx(2 * recall * precision / (recall + precision))
    assert report.groups["unanswerable"].accuracy == 1
    assert report.groups["format Int"].accuracy == 0
    assert report.groups["single page"].num_questions == 3
    assert report.to_json()["failures"] == 1


def test_a_question_without_a_prediction_is_an_error():
    with pytest.raises(InputError, match="1 of 1 questions have no prediction"):
        score_docqa([record(0, "a")], {}, REPAIRED)


def test_gold_answers_score_full_marks_on_real_records(shared_data):
    records = read_docqa(shared_data / "docqa/mmlongbench_doc_60.json")
    assert len(records) == 60
    for protocol in (REPAIRED, OFFICIAL):
        report = score_docqa(records, {one.id: one.answer for one in records}, protocol)
        assert report.overall.accuracy == 1
        assert report.overall.f1 == 1
    longdocurl = read_docqa(shared_data / "docqa/LongDocURL_sample3.jsonl")
    assert [one.evidence_pages for one in longdocurl] == [(54,), (15, 16), (42,)]
    assert score_docqa(longdocurl, {one.id: one.answer for one in longdocurl}, LONGDOCURL).overall.accuracy == 1


def test_the_short_answer_is_found_in_a_reply():
    prompt = extraction_prompt("How many?", "I counted eight of them.")
    assert "How many?" in prompt
    assert "eight" in prompt
    assert read_extraction("Extracted answer: 8\nAnswer format: Int") == "8"
    assert read_extraction("Well.\nextracted answer: ['a',\n 'b']\n") == "['a',\n 'b']"
    assert read_extraction("I do not know") is None
    assert read_extraction("Extracted answer: \nAnswer format: None") is None


def test_the_command(tmp_path):
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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "needs an object with question"),
        ('[{"question": "a", "answer": "b", "answer_format": "Date"}]', "unknown answer format 'Date'"),
        ('[{"question": "a", "answer": "b", "answer_format": "Int", "evidence_pages": "x("}]', "is not a list"),
        ("[", "cannot be read as JSON"),
    ],
)
def test_broken_records_are_named(tmp_path, content, message):
    path = tmp_path / "gold.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_docqa(path)
    with pytest.raises(InputError, match="no file of questions at"):
        read_docqa(tmp_path / "none.json")


def test_broken_predictions_are_named(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"id": "a", "pred": "x"}\n{"id": "a", "pred": "y"}', encoding="utf-8")
    with pytest.raises(InputError, match="line 2: the id 'a' occurs twice"):
        read_docqa_predictions(path)
    path.write_text('{"id": "a"}', encoding="utf-8")
    with pytest.raises(InputError, match="needs an object with 'id' and 'pred'"):
        read_docqa_predictions(path)
