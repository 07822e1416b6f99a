"""LongBench's metrics: words, classes, numbers and code, with pinned values and properties of every metric."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.evaluation.scoring.scorers import (
    CodeRatio,
    Metric,
    Postprocess,
    Score,
    classification,
    code_sim,
    count,
    postprocess,
    qa_f1,
    qa_f1_zh,
    retrieval_en,
    retrieval_zh,
    score_sample,
)

PINNED = json.loads((Path(__file__).parents[2] / "fixtures/evaluation/pinned_scores.json").read_text(encoding="utf-8"))


texts = st.lists(st.sampled_from(["a", "b", "c", "the", ".", " . ", "\n", "Paragraph 3", "7", "é", "#", "x=1"])).map(
    " ".join
)


# ── Words, classes, numbers, code ──────────────────────────────────────────────────────────────────


def test_qa_f1_ignores_case_punctuation_and_articles():
    assert qa_f1("The Eiffel Tower!", "eiffel tower") == 1.0
    assert qa_f1("an eiffel-tower", "eiffel tower") == 0.0, "a hyphen is removed without a space"
    assert qa_f1("in Paris, France", "Paris") == 2 * (1 / 3) / (1 / 3 + 1)
    assert qa_f1("“Paris”", "Paris") == 0.0, "typographic punctuation stays"
    assert qa_f1("the", "the") == 0.0, "no words remain"
    assert qa_f1("x x y", "x y y") == pytest.approx(2 / 3)


def test_qa_f1_removes_articles_only_as_whole_words():
    assert qa_f1("a cat, an owl, the fox", "cat owl fox") == 1.0
    assert qa_f1("theory", "ory") == qa_f1("sofa", "sof") == 0.0
    assert qa_f1("rise—the—fall", "rise— —fall") == 1.0, "an article is replaced by a space"


def test_qa_f1_zh_ignores_punctuation_and_whitespace():
    assert qa_f1_zh("《北京》 大学。", "北京大学") == 0.0, "segmented before cleaning: 北京, 大学 against 北京大学"
    assert qa_f1_zh("北京大学。", "北京大学") == 1.0
    assert qa_f1_zh("ＡＢ", "。") == 0.0
    assert qa_f1_zh("北京\r\n 大学，2024", "北京。大学(2024)") == 1.0
    assert qa_f1_zh("ABC公司", "abc公司") == 1.0


def test_exact_ignores_only_surrounding_whitespace():
    assert score_sample(Metric.EXACT, " Paris\n", ["Rome", "\tParis "]).value == 1.0
    assert score_sample(Metric.EXACT, "paris", ["Paris"]).value == 0.0
    assert score_sample(Metric.EXACT, "New  York", ["New York"]).value == 0.0


def test_classification_divides_score_by_number_of_named_classes():
    classes = ["Food", "Date", "Other entity", "Other"]
    assert classification("Food", "Food", classes) == 1.0
    assert classification("Food or Date", "Food", classes) == 0.5
    assert classification("Date", "Food", classes) == 0.0
    assert classification("Other entity", "Other entity", classes) == 1.0, "'Other' is part of the correct name"
    assert classification("Other entity", "Other entity", classes[::-1]) == 1.0, "at any position in the list"
    assert classification("food", "Food", classes) == 0.0, "case matters"
    assert classification("Other entity", "Other", classes) == 0.5, "a longer name counts against the correct one"
    assert score_sample(Metric.CLASSIFICATION, "Food", ["Date", "Food"], all_classes=classes).value == 1.0


def test_classification_skips_class_after_removed_one():
    """Quirk of the published scorer: removing 'a' from the list during iteration skips 'b'."""
    assert classification("abc", "abc", ["abc", "a", "b"]) == 0.5
    assert classification("abc", "abc", ["abc", "a", "b", "c"]) == 0.5


def test_count_and_retrieval_score_fraction_of_correct_numbers():
    assert count("There are 5 of 7", "5") == 0.5
    assert count("five", "5") == 0.0
    assert count("15", "5") == 0.0
    assert retrieval_en("Paragraph 12, Paragraph 3", "Paragraph 12") == 0.5
    assert retrieval_zh("段落7", "段落7") == 1.0
    assert retrieval_en("12", "2 of Paragraph 12") == retrieval_zh("7", "2 段落7") == 1.0, (
        "the number after the label counts"
    )
    assert retrieval_en("Paragraph", "Paragraph 1") == 0.0
    for answer in ("段落1", "Paragraph one", "Paragraph "):
        with pytest.raises(InputError, match="names no paragraph.*'Paragraph 12'"):
            retrieval_en("1", answer)
    with pytest.raises(InputError, match="names no paragraph.*'段落12'"):
        retrieval_zh("1", "段落一")


@pytest.mark.parametrize(("prediction", "answer", "difflib", "indel"), PINNED["code_sim"])
def test_code_sim_equals_published_values_for_both_ratios(prediction, answer, difflib, indel):
    assert code_sim(prediction, answer) == difflib
    assert code_sim(prediction, answer, CodeRatio.INDEL) == indel


def test_code_sim_compares_first_line_of_code():
    line = "total = price * count"
    for above in ("\n\n", "```python\n", "# the total\n", "// the total\n", "x = 1  # one\n"):
        assert code_sim(f"{above}{line}\nreturn total", line) == 1.0
    assert code_sim(f"\n  \n{line}", line) < 1.0, "a line of spaces counts as a line of code"
    assert code_sim("# only\n`comments`", line) == 0.0
    assert code_sim("# only", "") == code_sim("", "") == 1.0, "without a line of code, an empty line is compared"


def test_code_sim_ignores_frequent_characters_of_long_answer():
    """Quirk of published scores: in answers of 200 characters or more, difflib ignores frequent characters."""
    long, short = "ab" * 120, "b" + "ab" * 40
    assert code_sim(long, long) == 1.0
    assert code_sim(short, long) == 0.0
    assert code_sim(long, short) == 0.5, "the prediction's own length does not matter"
    assert code_sim(short, long, CodeRatio.INDEL) == 0.5


def test_code_ratios_differ_in_pinned_values():
    assert any(difflib != indel for _, _, difflib, indel in PINNED["code_sim"])


# ── Post-processing and properties of every metric ─────────────────────────────────────────────────


def test_postprocess_keeps_or_collapses_whitespace():
    assert postprocess("\n\n one \n two", Postprocess.OFFICIAL, first_line=True) == " one "
    assert postprocess("\n one \n", Postprocess.OFFICIAL, first_line=False) == "\n one \n", "never stripped"
    assert postprocess("\n one \n two", Postprocess.GLYPH, first_line=True) == "one two"


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(Metric), texts, st.lists(texts, max_size=4), st.randoms())
def test_score_sample_is_best_over_answers_in_any_order(metric, prediction, answers, random):
    answers = [f"Paragraph 3 段落3 {answer}" for answer in answers]
    classes = ["a", "b", "Paragraph 3"]
    whole = score_sample(metric, prediction, answers, all_classes=classes).value
    assert 0 <= whole <= 1
    singles = [score_sample(metric, prediction, [answer], all_classes=classes).value for answer in answers]
    assert whole == max(singles, default=0.0)
    random.shuffle(answers)
    assert score_sample(metric, prediction, answers, all_classes=classes).value == whole


@pytest.mark.parametrize("metric", Metric)
def test_score_sample_without_answers_is_zero(metric):
    assert score_sample(metric, "Paragraph 3", [], all_classes=["a"]) == Score(0.0, deep=False)


@pytest.mark.parametrize("metric", Metric)
def test_score_sample_of_correct_answer_is_one_as_float(metric):
    """The answer is both Chinese and English, so that it suits every metric."""
    answer = "3" if metric is Metric.COUNT else "Paragraph 3 段落3"
    score = score_sample(metric, answer, ["Paragraph 4 段落4", answer, "段落5 Paragraph 5"], all_classes=[answer])
    assert type(score.value) is float, "a float, so that JSON contains 1.0 and not true"
    assert score.value == pytest.approx(1, abs=1e-7)
    assert not score.deep


@pytest.mark.parametrize("metric", Metric)
@pytest.mark.parametrize(
    "prediction", ["", "\n", ".", "。", "word " * 20_000, "a. " * 20_000, "字" * 20_000, "9" * 20_000]
)
def test_score_sample_accepts_empty_and_huge_predictions(metric, prediction):
    assert 0 <= score_sample(metric, prediction, ["Paragraph 3 段落3 a word"], all_classes=["a"]).value <= 1
