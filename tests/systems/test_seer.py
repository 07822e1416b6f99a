"""Systems and selectors by name: two names without overlap, the same rules wherever a system is built."""

from __future__ import annotations

import pytest
from fakes import small_encoder

from seer.engines.scripted import ScriptedEngine
from seer.errors import InputError
from seer.protocol.geometry import GLM_41V
from seer.reading.policy import ReadingPolicy
from seer.rendering import render_text, resolve_style
from seer.schema import PageStyle
from seer.selection.base import SELECTORS
from seer.systems.base import Task
from seer.systems.build import (
    READING_SYSTEMS,
    build_system,
    check_system,
    run_name,
    selects_pages,
    system_of_mode,
    system_policy,
)

ANSWER = "<think>There it is.</think>\n482139<|user|>"
TEXT = "The baker is on page one.\nbaker 482139\n"


def test_systems_and_selectors_share_no_name():
    assert not set(READING_SYSTEMS) & set(SELECTORS)


@pytest.mark.parametrize("name", SELECTORS)
def test_build_system_rejects_a_selector_as_system(name):
    with pytest.raises(
        InputError, match=f"no system '{name}': it is a selector; use --selector {name}".replace("+", r"\+")
    ):
        build_system(name, engine=ScriptedEngine(encoder=small_encoder()))


@pytest.mark.parametrize(
    ("system", "selector", "message"),
    [
        ("none", "model", "no system 'none'; known: seer, seer-k0, visual, text, auto"),
        ("seer", "seer", "no selector 'seer'; known: model"),
        ("visual", "bm25", "--selector bm25: the system 'visual' selects no pages; use --system seer"),
        ("text", "first", "--selector first: the system 'text' selects no pages; use --system seer"),
    ],
)
def test_check_system_rejects_unknown_and_contradictory_names(system, selector, message):
    with pytest.raises(InputError, match=message):
        check_system(system, selector)


@pytest.mark.parametrize(
    ("system", "selector", "expected"),
    [
        ("seer", "model", "seer"),
        ("seer", "model+bm25", "seer"),
        ("seer", "bm25", "seer+bm25"),
        ("auto", "oracle", "auto+oracle"),
        ("text", "model", "text"),
    ],
)
def test_run_name_names_the_selector_where_the_model_does_not_select(system, selector, expected):
    assert run_name(system, selector) == expected


@pytest.mark.parametrize("mode", ["visual", "text", "auto"])
def test_system_policy_rejects_a_policy_that_sets_the_mode(mode):
    policy = ReadingPolicy(mode=mode)
    assert system_policy(system_of_mode(mode), policy) == policy
    for other in set(READING_SYSTEMS) - {mode}:
        with pytest.raises(InputError, match=f"policy mode={mode}: the system sets the mode; use --system {mode}"):
            system_policy(other, policy)


def test_system_policy_keeps_other_fields():
    policy = ReadingPolicy(rounds=3, max_pages=2)
    assert system_policy("auto", policy) == ReadingPolicy(rounds=3, max_pages=2, mode="auto")
    assert system_policy("seer-k0", policy) == ReadingPolicy(rounds=3, max_pages=2, retrieve=False)


@pytest.mark.parametrize("name", READING_SYSTEMS)
def test_build_system_answers_with_every_system(name):
    selector = "first" if selects_pages(name) else "model"
    system = build_system(name, engine=ScriptedEngine(lambda request: ANSWER, small_encoder()), selector=selector)
    (answer,) = system.answer_batch([Task(id="1", context=TEXT, question="Which code?")])
    assert (answer.status, answer.text) == ("answered", "482139"), answer.cause
    assert system.name == (f"{name}+first" if selects_pages(name) else name)


def test_answer_batch_oracle_reads_the_gold_pages_of_each_task():
    style = PageStyle(page_height_px=56, crop_last_page=False)
    text = "".join(f"line {n}\n" for n in range(40))
    system = build_system(
        "seer", engine=ScriptedEngine(lambda request: ANSWER, small_encoder()), selector="oracle", style=style
    )
    tasks = [Task(id=str(page), context=text, question="Which?", gold_pages=(page,)) for page in (1, 2)]
    assert [answer.selected_pages for answer in system.answer_batch(tasks)] == [(1,), (2,)]


def test_answer_batch_failed_task_does_not_affect_others():
    engine = ScriptedEngine(lambda request: ANSWER, small_encoder())
    system = build_system("seer", engine=engine, selector="first", policy=ReadingPolicy(selector_pages=1))
    contexts = {"no text": ("", "Which code?"), "no question": (TEXT, ""), "whole": (TEXT, "Which code?")}
    empty, unasked, answered = system.answer_batch(
        [Task(id=name, context=text, question=question) for name, (text, question) in contexts.items()]
    )
    assert (answered.status, answered.text) == ("answered", "482139")
    assert (empty.status, empty.cause) == ("failed", "'no text' is empty; use a text with at least one character")
    assert (unasked.status, unasked.failure.retryable) == ("failed", False)
    assert unasked.cause == "the question is empty; give a question of at least one character"


@pytest.mark.parametrize(("style", "newlines"), [("paper", ("break", "mark", "mark")), ("seer", ("break",) * 3)])
def test_answer_batch_lays_tasks_out_with_their_newlines_if_the_style_leaves_them_open(style, newlines):
    engine = ScriptedEngine(lambda request: ANSWER, small_encoder())
    system = build_system("visual", engine=engine, style=style)
    text = "".join(f"baker {n} is quiet\n" for n in range(400))
    # The last task has no mode of its own, so the text decides.
    tasks = [Task(id=str(mode), context=text, question="Which?", newline=mode) for mode in ("break", "mark", None)]
    usages = [answer.usage for answer in system.answer_batch(tasks)]
    for usage, newline in zip(usages, newlines, strict=True):
        document = render_text(text, resolve_style("seer", newline=newline))
        assert usage.vision == sum(GLM_41V.tokens(page.width_px, page.height_px) for page in document)


def test_answer_batch_retrieves_passages_for_questions_and_pages_for_other_tasks():
    engine = ScriptedEngine(lambda request: ANSWER, small_encoder())
    policy = ReadingPolicy(retrieve="task", max_retrieved_tokens=120)
    system = build_system("seer", engine=engine, selector="bm25", policy=policy, style="seer")
    text = "".join(f"Baker number {n} is quiet. Nobody calls. The shop is closed on day {n}. " for n in range(900))
    tasks = [Task(id=how, context=text, question="Is baker 500 quiet?", retrieve=how) for how in ("passages", "pages")]
    passages, pages = system.answer_batch(tasks)
    assert len(passages.selected_pages) == 3
    assert len(pages.selected_pages) == 2
    (step,) = (step for step in passages.trace if step.name == "retrieve")
    assert any("Baker number 500 " in excerpt.text for excerpt in step.excerpts)
    assert passages.usage.retrieved - 1 <= 120
