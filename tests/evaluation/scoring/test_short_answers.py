"""Scores of short document-QA answers: the published rules with their faults, and the fixed rules."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.evaluation.scoring.short_answers import (
    _NUMBER,
    AnswerFormat,
    DocProtocol,
    _clean_marks,
    score_answer,
)

FIXED, OFFICIAL, LONGDOCURL = DocProtocol


@pytest.mark.parametrize(
    ("form", "gold", "prediction", "fixed", "official", "longdocurl"),
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
        ("List", "[{'year': 2019, 'value': 5}]", "['2019-5']", 0, 0, 1),  # LongDocURL joins the values of dictionaries
        ("Str", "https://a.org/x", "https://a.org/y", 0, 0, 0),  # equal but for one letter, which counts here
        ("Str", "7 p.m.", "8 p.m.", 0, 0, 0),
        ("Float", "0.001", "0.0014", 1, 1, 1),  # equal after rounding to two decimals
    ],
)
def test_score_answer_follows_each_protocol(form, gold, prediction, fixed, official, longdocurl):
    scores = [score_answer(gold, prediction, AnswerFormat(form), protocol) for protocol in DocProtocol]
    assert scores == [pytest.approx(value) for value in (fixed, official, longdocurl)]


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
def test_score_answer_is_in_range_for_any_answer(gold, prediction, form, protocol):
    assert 0 <= score_answer(gold, prediction, form, protocol) <= 1


@pytest.mark.parametrize("protocol", DocProtocol)
@pytest.mark.parametrize("prediction", ["[" * 100_000, "a" * 100_000, "9" * 100_000, "__import__('os').system('x')"])
def test_score_answer_does_not_evaluate_huge_or_hostile_answers(prediction, protocol):
    for form in AnswerFormat:
        assert score_answer("['a']" if form is AnswerFormat.LIST else "8", prediction, form, protocol) == 0


@given(st.text("() \na'\u3000", max_size=14))
@settings(deadline=None, max_examples=300)
def test_clean_marks_removes_parentheses_like_published_scripts(text):
    without = re.sub(r"\s*\([^)]*\)", "", text).strip()
    assert _clean_marks(text) == re.sub(r"^['\"]|['\"]$", "", without).strip()


@given(st.text("17,.-+e% k", max_size=8))
@settings(deadline=None, max_examples=500)
def test_number_pattern_matches_same_texts_as_backtracking_pattern(text):
    plain = r"[-+]?(?:\d[\d,]*)?\.?\d+(?:e[-+]?\d+)?\.?(?:\s*%|\s+[^\d\s]+)?"
    assert bool(_NUMBER.fullmatch(text)) == bool(re.fullmatch(plain, text))


@pytest.mark.parametrize("part", ["(", ")", " ", "( ", " (", "()", "9", "9,", "9.", ".", "-", "['", "1-", "9 "])
@pytest.mark.parametrize("around", [("", ""), ("", "a"), ("a", "a")])
def test_score_answer_takes_linear_time(part, around):
    """Quadratic time would exceed the timeout of the test suite."""
    answer = (part * (100_000 // len(part))).join(around)
    for form, protocol in itertools.product(AnswerFormat, DocProtocol):
        assert 0 <= score_answer("12", answer, form, protocol) <= 1
