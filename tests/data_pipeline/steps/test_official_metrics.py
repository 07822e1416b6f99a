"""The official metric of a source decides whether a teacher's answer is correct; it keeps enough of GovReport."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_pipeline.records import REASONS, Sample
from data_pipeline.settings import ReasonSpec
from data_pipeline.sources.posing import SUMMARY_QUESTION, posed_question
from data_pipeline.sources.registry import SOURCES
from data_pipeline.steps.filter import matching_answer, summary_score
from data_pipeline.steps.prompts import reason_chat
from seer.evaluation.benchmarks.tasks import TASKS, build_question
from seer.evaluation.scoring.scorers import Metric, score_sample

OFFICIAL = ReasonSpec(correct_by="official")
SAMPLE = Sample(id="1", source="s", question="Which river?", context="x", answers=("Tamber",), task="hotpotqa")


@pytest.mark.parametrize(
    ("task", "kind", "gold", "given", "rule"),
    [
        ("hotpotqa", "extractive", "The Tamber", "tamber.", "exact"),
        ("hotpotqa", "extractive", "October 5, 1987", "5 October 1987", "qa_f1"),
        ("hotpotqa", "extractive", "yes", "Yes, both of them are.", None),
        ("hotpotqa", "extractive", "Tamber", "the river Tamber", None),
        ("qasper", "free", "two scores, BLEU and chrF", "BLEU and chrF scores", "qa_f1"),
        ("qasper", "free", "a new parser", "an old printer", None),
        ("dureader", "free", "坦伯河流经奥尔拉。", "坦伯河流经奥尔拉镇", "rouge_l_zh"),
        ("dureader", "free", "坦伯河流经奥尔拉。", "山很高", None),
        ("qmsum", "summary", "They spoke of roads. Then of rails.", "They spoke of roads and rails.", "rouge_l"),
        ("lcc", "code", "    return x + 1", "return x+1", "line"),
        ("lcc", "code", "    return x + 1", "return x + 2", None),
        ("", "extractive", "yes", "Yes, both of them are.", "meaning"),
    ],
)
def test_matching_answer_official_uses_metric_of_task(
    task: str, kind: Any, gold: str, given: str, rule: str | None
) -> None:
    match = matching_answer(replace(SAMPLE, task=task, kind=kind, answers=(gold,)), given, OFFICIAL)
    assert (match.rule if match else None) == rule


def test_matching_answer_official_names_the_closest_gold_answer() -> None:
    sample = replace(SAMPLE, task="qasper", kind="free", answers=("an old tool", "a new parser for trees"))
    match = matching_answer(sample, "new parser for trees here", OFFICIAL)
    assert match is not None and match.answer == "a new parser for trees"


def test_summary_score_of_published_gov_report_outputs_passes_at_benchmark_rate(shared_data: Path) -> None:
    path = shared_data / "longbench" / "predictions" / "llama3-8b-instruct" / "gov_report.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    sample = replace(SAMPLE, task="gov_report", kind="summary")
    passed = 0
    for row in rows:
        score = score_sample(Metric.ROUGE_L, row["pred"], row["answers"]).value
        assert summary_score(row["pred"], row["answers"][0]) == score
        match = matching_answer(replace(sample, answers=tuple(row["answers"])), row["pred"], ReasonSpec())
        assert (match is not None) == (score >= 0.3)
        passed += match is not None
    assert passed / len(rows) == 0.825


def test_posed_question_equals_the_prompt_of_evaluation() -> None:
    for name, source in SOURCES.items():
        sample = replace(SAMPLE, source=name, task=source.task)
        assert posed_question(sample) == build_question(TASKS[source.task], "Which river?")
    summary = replace(SAMPLE, question=SUMMARY_QUESTION, task="gov_report")
    assert posed_question(summary) == build_question(TASKS["gov_report"], "")
    assert SUMMARY_QUESTION not in posed_question(summary)
    assert posed_question(replace(SAMPLE, task="")) == "Which river?"


def test_reason_chat_of_summary_states_length_and_omits_shortness() -> None:
    system, user = reason_chat("Summarise.", "summary", "text", [(1, "text")], 400).messages
    assert "about 400 words" in user.text
    assert "short" not in system.text + user.text
    assert "as short as it can be" in reason_chat("Who?", "extractive", "text", []).messages[1].text


def test_rejection_reasons_belong_to_their_phase() -> None:
    assert REASONS["too_long_for_teacher"].stage == "judge"
    assert REASONS["reason_too_long"].stage == REASONS["trajectory_too_long"].stage == "reason"
