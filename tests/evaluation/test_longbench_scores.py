"""Scoring a folder: the published run to two decimals, and the rules about failures and gaps."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.evaluation.benchmarks.longbench import read_records
from seer.evaluation.benchmarks.tasks import LONGBENCH, TASKS, build_question, load_templates
from seer.evaluation.files import MANIFEST_NAME
from seer.evaluation.runs.score import EXIT_GAPS, PartialRunError, score_folder
from seer.schema import Prediction, Status


def write_lines(path: Path, lines: list[dict]) -> None:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


def write_run(folder: Path, tasks: dict[str, list[dict]]) -> Path:
    """A whole run: the manifest asks for just the lines that are there."""
    folder.mkdir(exist_ok=True)
    for name, lines in tasks.items():
        write_lines(folder / f"{name}.jsonl", lines)
    manifest = {"num_inputs": {name: len(lines) for name, lines in tasks.items()}}
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def line(pred: str | None, *answers: str, **more: object) -> dict:
    return {"pred": pred, "answers": list(answers), "all_classes": None, "length": 1, **more}


def test_the_published_run_scores_as_published(shared_data):
    run = shared_data / "longbench/predictions/llama3-8b-instruct"
    report = score_folder(run)
    assert report.scores == json.loads((run / "result.json").read_text(encoding="utf-8"))
    assert report.macro == 47.48
    assert report.failures == report.deep == 0
    assert set(report.to_json()) == {"scores", "categories", "macro", "failures", "postprocess", "code_ratio"}


def test_the_published_run_under_other_rules(shared_data, tmp_path):
    """Sizes of known traps: whitespace collapsed before scoring, and the other code ratio."""
    tasks = ("trec", "triviaqa", "samsum", "lcc")
    for task in tasks:
        source = shared_data / f"longbench/predictions/llama3-8b-instruct/{task}.jsonl"
        (tmp_path / source.name).symlink_to(source)
    glyph = score_folder(tmp_path, postprocess="glyph", partial=True).scores
    assert [glyph[task] for task in tasks] == [35.33, 18.32, 23.91, 14.82]
    assert score_folder(tmp_path, code_ratio="indel", partial=True).scores["lcc"] == 64.89


def test_scores_and_averages(tmp_path):
    run = write_run(
        tmp_path,
        {
            "hotpotqa": [line("Paris", "Paris"), line("Rome", "Paris"), line("no", "yes", "No.")],
            "musique": [line("x", "y")],
            "trec": [line("\nFood\nDate", "Food", all_classes=["Food", "Date"])],
            "passage_count": [line("5 or 6", "5")],
        },
    )
    report = score_folder(run)
    assert report.scores == {"hotpotqa": 66.67, "musique": 0.0, "trec": 100.0, "passage_count": 50.0}
    assert report.categories == {"multi_doc_qa": 33.34, "few_shot": 100.0, "synthetic": 50.0}
    assert report.macro == 61.11, "the mean of categories, not of tasks"
    told = report.to_json()
    assert told.pop("inputs") == 6, "a sample of the benchmark says so"
    assert set(told) == {"scores", "categories", "macro", "failures", "postprocess", "code_ratio"}


def test_the_full_table_of_tasks():
    assert len(TASKS) == 21
    assert LONGBENCH.num_records == 4750
    assert len(LONGBENCH.categories) == 6
    assert {task.category for task in TASKS.values()} == set(LONGBENCH.categories)
    assert {task.name for task in TASKS.values() if task.first_line} == {"trec", "triviaqa", "samsum", "lsht"}
    assert {task.name for task in TASKS.values() if not task.chat} == {
        *("trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p")
    }


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a b", "b", "c", ""]), st.booleans()), min_size=1, max_size=12), st.randoms()
)
def test_order_does_not_count_and_failures_only_lower_a_score(tmp_path_factory, samples, shuffler):
    folder = tmp_path_factory.mktemp("run")
    lines = [line(pred, "a b c", id=str(n)) for n, (pred, _) in enumerate(samples)]
    before = score_folder(write_run(folder, {"qasper": lines}))
    shuffler.shuffle(lines)
    assert score_folder(write_run(folder, {"qasper": lines})).scores == before.scores
    failed = [one | {"status": "failed"} if samples[int(one["id"])][1] else one for one in lines]
    after = score_folder(write_run(folder, {"qasper": failed}))
    assert after.scores["qasper"] <= before.scores["qasper"]
    assert after.failures == sum(fails for _, fails in samples)
    assert len(after.tasks["qasper"].sample_scores) == len(samples)


def test_a_failure_stays_in_the_denominator(tmp_path):
    run = write_run(tmp_path, {"qasper": [line("yes", "yes"), line(None, "yes"), line("yes", "yes", status="failed")]})
    report = score_folder(run)
    assert report.scores["qasper"] == 33.33
    assert report.failures == 2


def test_own_predictions_are_read(tmp_path):
    prediction = Prediction(id="q1", task="hotpotqa", pred="Paris", answers=("Paris",), status=Status.ANSWERED)
    run = write_run(tmp_path, {"hotpotqa": [prediction.model_dump(mode="json")]})
    assert score_folder(run).tasks["hotpotqa"].sample_scores == {"q1": 1.0}


def test_partial_runs_are_refused_unless_asked_for(tmp_path):
    write_lines(tmp_path / "multifieldqa_en.jsonl", [line("x", "x")])
    with pytest.raises(PartialRunError, match=r"multifieldqa_en \(149\)") as caught:
        score_folder(tmp_path)
    assert caught.value.exit_code == EXIT_GAPS
    report = score_folder(tmp_path, partial=True)
    assert report.gaps["multifieldqa_en"] == 149
    assert sum(report.gaps.values()) == 4749
    assert report.to_json()["partial"] == dict(report.gaps)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"pred": "a", "answers": ["a"]}\n{"pred": "b", "ans', "line 2: not JSON"),
        ("[1]\n", "a JSON object was expected"),
        ('{"pred": "a", "answers": "a"}\n', "'answers' must be a list of texts"),
        ('{"answers": ["a"]}\n', "'pred' must be a text"),
        ('{"pred": 3, "answers": ["a"]}\n', "'pred' must be a text"),
        ('{"id": "1", "pred": "a", "answers": []}\n' * 2, "occurs twice"),
    ],
)
def test_broken_files_are_named(tmp_path, content, message):
    (tmp_path / "qasper.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        score_folder(tmp_path, partial=True)
    assert "qasper.jsonl" in str(caught.value)


def test_a_folder_without_predictions_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"holds no <task>\.jsonl"):
        score_folder(tmp_path)
    with pytest.raises(InputError, match="no folder at"):
        score_folder(tmp_path / "none")
    with pytest.raises(InputError, match="'strip'; use one of official, glyph"):
        score_folder(tmp_path, postprocess="strip")


def test_classes_are_needed_where_they_are_scored(tmp_path):
    write_lines(tmp_path / "trec.jsonl", [line("x", "x")])
    with pytest.raises(InputError, match="'all_classes' is missing"):
        score_folder(tmp_path, partial=True)


def test_records_of_every_task_are_read(shared_data):
    num_records = 0
    for task in TASKS.values():
        records = list(read_records(shared_data / f"longbench/samples/{task.name}.jsonl", task))
        assert len({record.id for record in records}) == len(records)
        assert all(record.answers and record.context for record in records)
        num_records += len(records)
    assert num_records == 237


def test_question_stands_for_input_and_a_missing_id_is_made(tmp_path):
    task = LONGBENCH.find("qasper")
    fields = {"question": "Why?", "context": "Because.\u2028", "answers": ["so"], "_id": None}
    write_lines(tmp_path / "qasper.jsonl", [fields, fields | {"_id": "x7"}])
    first, second = read_records(tmp_path / "qasper.jsonl", task)
    assert (first.id, second.id) == ("qasper-0000", "x7")
    assert (first.input, first.context, first.length, first.language) == ("Why?", "Because.\u2028", None, "en")


def test_every_question_holds_its_input_once_and_braces_are_left_alone():
    for task in TASKS.values():
        question = build_question(task, "what is {this}?")
        expected = 0 if task.input_ends_document else 1
        assert question.count("what is {this}?") == expected
        assert "{input}" not in question


def test_templates_in_the_benchmarks_format(tmp_path):
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps({"qasper": "Read.\n{context}\n\nAsked: {input}\nReply:"}), encoding="utf-8")
    templates = load_templates(path)
    question = build_question(LONGBENCH.find("qasper"), "why {context}?", templates)
    assert question == "Read.\n\n\nAsked: why {context}?\nReply:"
    with pytest.raises(InputError, match="no template for 'trec'"):
        build_question(LONGBENCH.find("trec"), "x", templates)
    path.write_text('{"qasper": "no place for it"}', encoding="utf-8")
    with pytest.raises(InputError, match=r"lacks \{context\}"):
        load_templates(path)


def test_scoring_a_shuffled_published_run(shared_data, tmp_path):
    source = shared_data / "longbench/predictions/llama3-8b-instruct/passage_count.jsonl"
    lines = [json.loads(text) for text in source.read_text(encoding="utf-8").splitlines()]
    random.Random(3).shuffle(lines)
    assert score_folder(write_run(tmp_path, {"passage_count": lines})).scores["passage_count"] == 6.72
