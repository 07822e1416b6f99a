"""Plans of LongBench runs: questions, budgets, and documents cut to a context window."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.evaluation.files import to_line
from seer.evaluation.runs.plan_longbench import PredictOptions, cut_middle, matched_budgets, prompts_name
from seer.schema import Prediction, Status


def test_matched_budgets_rejects_id_in_two_tasks(tmp_path):
    for task, pages in (("hotpotqa", (1, 2, 3)), ("musique", (4,))):
        one = Prediction(id="same", task=task, pred="x", answers=("x",), status=Status.ANSWERED, selected_pages=pages)
        (tmp_path / f"{task}.jsonl").write_text(f"{to_line(one)}\n", encoding="utf-8")
    with pytest.raises(InputError, match="'same' occurs in two tasks"):
        matched_budgets(tmp_path)
    (tmp_path / "musique.jsonl").unlink()
    assert matched_budgets(tmp_path) == {"same": 3}


@settings(deadline=None)
@given(st.text(max_size=200), st.integers(2, 60))
def test_cut_middle_keeps_beginning_and_end(text, max_tokens):
    cut = cut_middle(text, max_tokens, len)
    if len(text) <= max_tokens:
        assert cut == text
    else:
        assert len(cut) == max_tokens
        assert cut == text[: max_tokens // 2] + text[len(text) - (max_tokens - max_tokens // 2) :]


def test_matched_budgets_of_a_folder_without_predictions_asks_for_a_run(tmp_path):
    with pytest.raises(InputError, match="holds no predictions to match; give the folder of a run"):
        matched_budgets(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("reasoning_tokens", -1, "reasoning_tokens is -1; it must be at least 0"),
        ("max_context_tokens", 1, "max_context_tokens is 1; it must be at least 2"),
    ],
)
def test_predict_options_reject_numbers_below_their_limit(field, value, message):
    with pytest.raises(InputError, match=message):
        PredictOptions(**{field: value})


def test_prompts_name_depends_on_every_prompt_and_not_on_their_order():
    first = {"trec": "a {input}", "lcc": "b {input}"}
    assert prompts_name(None) == "seer"
    assert prompts_name(first) == prompts_name(dict(reversed(first.items())))
    assert prompts_name(first).startswith("file:")
    assert len({prompts_name(first), prompts_name(first | {"lcc": "c"}), prompts_name({"trec": "a {input}"})}) == 3
