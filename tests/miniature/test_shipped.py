"""The shipped miniature truly sees, selects and answers: on unseen single facts, by generation."""

from __future__ import annotations

from seer.evaluation.scoring.pages import page_score
from seer.miniature.model import ROUNDS, SHIPPED
from seer.miniature.world import STYLE, World
from seer.reading.policy import ReadingPolicy
from seer.systems.base import Task
from seer.systems.seer import build_system

NUM_QUESTIONS = 60
SEED = 20_260
"""Of the held-out world; no figure that we report comes from it."""


def test_single_facts_are_found_in_pictures_and_answered_from_text():
    asked = [
        (document, next(question for question in document.questions if question.kind == "single"))
        for document in World(SEED, "test").documents(NUM_QUESTIONS)
    ]
    tasks = [Task(question.id, document.text, question.text) for document, question in asked]
    policy = ReadingPolicy(rounds=ROUNDS, max_new_tokens=64)
    system = build_system("seer", model=str(SHIPPED), style=STYLE, policy=policy, device="cpu")
    answers = system.answer_batch(tasks)
    pages = page_score((answer.selected_pages, one.pages) for answer, (_, one) in zip(answers, asked, strict=True))
    right = sum(answer.text.strip() == one.answer for answer, (_, one) in zip(answers, asked, strict=True))
    assert not any(step.deviations for answer in answers for step in answer.trace), "an invalid selection"
    assert pages.f1 >= 0.95
    assert right / NUM_QUESTIONS >= 0.9
