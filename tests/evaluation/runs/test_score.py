"""Scores of a folder: the published run to two decimals, and the rules on failed and missing inputs."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.evaluation.files import MANIFEST_NAME
from seer.evaluation.runs.score import EXIT_GAPS, PartialRunError, score_folder
from seer.schema import Prediction, Status


def write_lines(path: Path, lines: list[dict]) -> None:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


def write_run(folder: Path, tasks: dict[str, list[dict]]) -> Path:
    """Write a complete run: the manifest expects exactly these lines."""
    folder.mkdir(exist_ok=True)
    for name, lines in tasks.items():
        write_lines(folder / f"{name}.jsonl", lines)
    manifest = {"num_inputs": {name: len(lines) for name, lines in tasks.items()}}
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def line(pred: str | None, *answers: str, **more: object) -> dict:
    return {"pred": pred, "answers": list(answers), "all_classes": None, "length": 1, **more}


def test_score_folder_reproduces_published_scores(shared_data):
    run = shared_data / "longbench/predictions/llama3-8b-instruct"
    report = score_folder(run)
    assert report.scores == json.loads((run / "result.json").read_text(encoding="utf-8"))
    assert report.macro == 47.48
    assert report.failures == report.deep == 0
    assert set(report.to_json()) == {"scores", "categories", "macro", "failures", "postprocess", "code_ratio"}


def test_score_folder_reproduces_scores_under_other_options(shared_data, tmp_path):
    """The options collapse whitespace before scoring and use the other code ratio."""
    tasks = ("trec", "triviaqa", "samsum", "lcc")
    for task in tasks:
        source = shared_data / f"longbench/predictions/llama3-8b-instruct/{task}.jsonl"
        (tmp_path / source.name).symlink_to(source)
    glyph = score_folder(tmp_path, postprocess="glyph", partial=True).scores
    assert [glyph[task] for task in tasks] == [35.33, 18.32, 23.91, 14.82]
    assert score_folder(tmp_path, code_ratio="indel", partial=True).scores["lcc"] == 64.89


def test_score_folder_computes_task_category_and_macro_means(tmp_path):
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
    result = report.to_json()
    assert result.pop("inputs") == 6, "the number of inputs is given for less than the full benchmark"
    assert set(result) == {"scores", "categories", "macro", "failures", "postprocess", "code_ratio"}


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a b", "b", "c", ""]), st.booleans()), min_size=1, max_size=12), st.randoms()
)
def test_score_folder_ignores_order_and_never_rises_with_failures(tmp_path_factory, samples, shuffler):
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


def test_score_folder_keeps_failures_in_denominator(tmp_path):
    run = write_run(tmp_path, {"qasper": [line("yes", "yes"), line(None, "yes"), line("yes", "yes", status="failed")]})
    report = score_folder(run)
    assert report.scores["qasper"] == 33.33
    assert report.failures == 2


def test_score_folder_reads_own_predictions(tmp_path):
    prediction = Prediction(id="q1", task="hotpotqa", pred="Paris", answers=("Paris",), status=Status.ANSWERED)
    run = write_run(tmp_path, {"hotpotqa": [prediction.model_dump(mode="json")]})
    assert score_folder(run).tasks["hotpotqa"].sample_scores == {"q1": 1.0}


def test_score_folder_rejects_partial_run_by_default(tmp_path):
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
def test_score_folder_rejects_invalid_line(tmp_path, content, message):
    (tmp_path / "qasper.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        score_folder(tmp_path, partial=True)
    assert "qasper.jsonl" in str(caught.value)


def test_score_folder_rejects_folder_without_predictions_and_unknown_option(tmp_path):
    with pytest.raises(InputError, match=r"holds no <task>\.jsonl"):
        score_folder(tmp_path)
    with pytest.raises(InputError, match="no folder at"):
        score_folder(tmp_path / "none")
    with pytest.raises(InputError, match="'strip'; use one of official, glyph"):
        score_folder(tmp_path, postprocess="strip")


def test_score_folder_requires_classes_for_classification(tmp_path):
    write_lines(tmp_path / "trec.jsonl", [line("x", "x")])
    with pytest.raises(InputError, match="'all_classes' is missing"):
        score_folder(tmp_path, partial=True)


def test_score_folder_of_shuffled_published_run_is_unchanged(shared_data, tmp_path):
    source = shared_data / "longbench/predictions/llama3-8b-instruct/passage_count.jsonl"
    lines = [json.loads(text) for text in source.read_text(encoding="utf-8").splitlines()]
    random.Random(3).shuffle(lines)
    assert score_folder(write_run(tmp_path, {"passage_count": lines})).scores["passage_count"] == 6.72


def test_score_folder_names_the_line_whose_answer_cannot_be_scored(tmp_path):
    lines = [line("Paragraph 3", "Paragraph 3"), line("Paragraph 3", "the third")]
    run = write_run(tmp_path / "run", {"passage_retrieval_en": lines})
    with pytest.raises(
        InputError, match=r"line 2: the answer 'the third' names no paragraph; .* has the form 'Paragraph 12'"
    ):
        score_folder(run)
