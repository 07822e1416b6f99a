"""Test that the shipped miniature selects pages and answers on unseen single facts, by generation."""

from __future__ import annotations

from seer.evaluation.scoring.pages import page_score
from seer.miniature.model import ROUNDS, SHIPPED
from seer.miniature.world import STYLE, World
from seer.reading.policy import ReadingPolicy
from seer.systems.base import Task
from seer.systems.build import build_system

NUM_QUESTIONS = 60
SEED = 20_260
"""A held-out world that no reported figure uses."""


def test_shipped_model_finds_and_answers_single_facts():
    pairs = [
        (document, next(question for question in document.questions if question.kind == "single"))
        for document in World(SEED, "test").documents(NUM_QUESTIONS)
    ]
    tasks = [Task(question.id, document.text, question.text) for document, question in pairs]
    policy = ReadingPolicy(rounds=ROUNDS, max_new_tokens=64)
    system = build_system("seer", model=str(SHIPPED), style=STYLE, policy=policy, device="cpu")
    answers = system.answer_batch(tasks)
    pages = page_score((answer.selected_pages, one.pages) for answer, (_, one) in zip(answers, pairs, strict=True))
    right = sum(answer.text.strip() == one.answer for answer, (_, one) in zip(answers, pairs, strict=True))
    assert not any(step.deviations for answer in answers for step in answer.trace), "an invalid selection"
    assert pages.f1 >= 0.95
    assert right / NUM_QUESTIONS >= 0.9
