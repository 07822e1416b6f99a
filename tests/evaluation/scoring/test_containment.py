"""Containment of gold answers in retrieved text."""

from __future__ import annotations

import pytest

from seer.evaluation.scoring.containment import holds_answer, usable_answers


@pytest.mark.parametrize(
    ("texts", "answer", "held"),
    [
        (["Signed in 1713."], "1713", True),
        (["Signed in 17130."], "1713", False),
        (["the  New\nYORK, times"], "New York times", True),
        (["New", "York"], "New York", False),
        (["乌得勒支 和约签订于一七一三年"], "和约签订", True),
        (["和约", "签订"], "和约签订", False),
        (["１７１３"], "1713", True),
        ([], "x y", False),
    ],
)
def test_holds_answer_finds_whole_words_inside_one_text(texts, answer, held):
    assert holds_answer(texts, usable_answers([answer])) is held


def test_usable_answers_leave_out_what_any_text_holds():
    assert usable_answers(["Yes", "no.", "7", "", "Paris!"]) == ["paris"]
    assert not holds_answer(["anything"], [])
