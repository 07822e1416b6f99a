"""The base of the evidence systems: concurrency, failures as answers, steps, quotes, prompts and crops."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

import numpy as np
import pytest

from seer.engines.base import Chat, Generation, Request
from seer.engines.scripted import ScriptedEngine
from seer.errors import EngineError, InputError
from seer.models.counting import tekken_encoder
from seer.rendering import render_text
from seer.schema import Box, Status
from seer.systems.base import Task
from seer.systems.evidence import prompts
from seer.systems.evidence.budget import Budget
from seer.systems.evidence.images import crop_image, page_image
from seer.systems.evidence.prompts import fill_prompt
from seer.systems.evidence.system import EvidenceSystem, Question, Verdict, cite

SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
TEXT = "The harbour master counted 42 boats on Monday.\n" * 60 + "The lantern cost 17 crowns in all.\n" * 60


class Simple(EvidenceSystem):
    """Two calls at the same time, then an answer."""

    name, budget = "simple", Budget()

    async def answer(self, question: Question) -> Verdict:
        chat = Chat.of(question.text, page_image(question.document.page(1)))
        first, second = await asyncio.gather(
            *(question.caller(role).ask(chat, SCHEMA, lambda reply: reply["answer"]) for role in ("", "navigator"))
        )
        question.record("look", [first, second], outputs={"text": first.value}, pages=(1,))
        return Verdict(first.value, pages=(1,), quotes=((1, "42 boats on Monday"),), answerable=bool(first.value))


def engine(script: Callable[[Request], str]) -> ScriptedEngine:
    return ScriptedEngine(script, encoder=tekken_encoder())


def test_answer_batch_answers_every_task_in_order():
    def script(request: Request) -> str:
        return json.dumps({"answer": request.prompt.messages[-1].text[-1]})

    tasks = [Task(id=str(k), context=TEXT, question=f"Number {k}") for k in range(5)]
    answers = Simple(engine(script)).answer_batch(tasks)
    assert [answer.text for answer in answers] == list("01234")
    step, final = answers[0].trace
    assert (final.name, final.text) == ("answer", "0")
    assert step.name == "look" and step.pages == (1,) and step.usage.prompt == answers[0].usage.prompt > 0
    assert answers[0].usage.full_text > 1000 and answers[0].selected_pages == (1,)
    (citation,) = answers[0].citations[:1]
    assert citation.verified and TEXT[citation.start : citation.end] == "42 boats on Monday" and citation.regions


def test_failure_becomes_failed_answer_with_its_steps():
    class Failing(Simple):
        async def answer(self, question: Question) -> Verdict:
            await super().answer(question)
            raise EngineError("it broke", retryable=True)

    (answer,) = Failing(engine(lambda request: '{"answer": "x"}')).answer_batch([Task("1", TEXT, "Who?")])
    assert answer.status is Status.FAILED and answer.cause == "it broke"
    assert answer.failure is not None and answer.failure.retryable
    assert [step.name for step in answer.trace] == ["look"] and answer.usage.prompt > 0


def test_one_failed_task_leaves_the_others():
    def script(request: Request) -> str:
        return "nothing" if "bad" in request.prompt.messages[-1].text else '{"answer": "fine"}'

    tasks = [Task("1", TEXT, "good"), Task("2", TEXT, "bad"), Task("3", TEXT, " "), Task("4", TEXT, "good")]
    answers = Simple(engine(script)).answer_batch(tasks)
    assert [answer.status.value for answer in answers] == ["answered", "failed", "failed", "answered"]
    assert "could not be" not in answers[1].cause and "JSON object with answer" in answers[1].cause
    assert answers[2].cause == "the question is empty; give a question"


def test_unanswerable_verdict_gets_status_and_no_citations():
    (answer,) = Simple(engine(lambda request: '{"answer": ""}')).answer_batch([Task("1", TEXT, "Who?")])
    assert (answer.status, answer.text, answer.citations) == (Status.NOT_ANSWERABLE, "Not answerable", ())


class Slow:
    """A concurrent engine that takes 0.2 s for each request."""

    name, encoder, constrains, max_positions, max_concurrent = "slow", None, False, 9999, 64

    def __init__(self) -> None:
        self.sessions: list[str] = []
        self.forgotten: list[str] = []

    async def generate_one(self, request: Request) -> Generation:
        self.sessions.append(request.session)
        await asyncio.sleep(0.2)
        return Generation((("", '{"answer": "x"}'),), prompt_tokens=5)

    def generate(self, requests: list[Request]) -> list[Generation]:
        raise AssertionError

    def run(self, work):
        return asyncio.run(work)

    def forget(self, session: str) -> None:
        self.forgotten.append(session)


def test_calls_of_many_questions_run_at_the_same_time():
    slow, navigator = Slow(), Slow()
    system = Simple(slow, roles={"navigator": navigator})
    started = time.perf_counter()
    answers = system.answer_batch([Task(str(k), TEXT, "Who?") for k in range(8)])
    # One after the other, the 16 calls would take 3.2 s; this is a bound on structure, not on speed.
    assert time.perf_counter() - started < 2.4
    assert all(answer.status is Status.ANSWERED for answer in answers)
    assert len(slow.sessions) == len(navigator.sessions) == 8
    assert sorted(slow.forgotten) == sorted(slow.sessions) and sorted(navigator.forgotten) == sorted(navigator.sessions)
    assert len({*slow.sessions, *navigator.sessions}) == 16


def test_ask_reports_steps_as_they_end():
    seen = []
    answer = Simple(engine(lambda request: '{"answer": "x"}')).ask(render_text(TEXT), "Who?", seen.append)
    assert tuple(seen) == answer.trace and [step.name for step in seen] == ["look", "answer"]


def test_cite_finds_quotes_on_another_page_and_keeps_invented_ones_unverified():
    document = render_text(TEXT)
    last = len(document.pages)
    citations = cite(
        document, [(1, "The lantern cost 17 crowns"), (2, "a quote that nobody wrote"), (last + 1, "x"), (1, " ")]
    )
    assert [citation.verified for citation in citations] == [True, False]
    assert document.text[citations[0].start : citations[0].end] == "The lantern cost 17 crowns"
    assert citations[1].page == 2


def test_crop_image_is_the_part_of_the_page():
    page = render_text(TEXT).page(1)
    crop = crop_image(page, Box(x_px=30, y_px=40, width_px=100, height_px=50), margin_px=0)
    assert (crop.width_px, crop.height_px) == (100, 50)
    assert np.array_equal(crop.draw(), page.image()[40:90, 30:130])
    edge = crop_image(page, Box(x_px=-20, y_px=-5, width_px=60, height_px=20))
    assert (edge.width_px, edge.height_px) == (44, 19)
    with pytest.raises(ValueError, match="outside page 1"):
        crop_image(page, Box(x_px=9000, y_px=0, width_px=10, height_px=10))


def test_page_image_reduces_long_sides_only():
    page = render_text(TEXT).page(1)
    assert page_image(page).width_px == page.width_px
    small = page_image(page, 400)
    assert max(small.width_px, small.height_px) == 400 and small.draw().shape == (small.height_px, small.width_px)


def test_fill_prompt_inserts_values_once(tmp_path, monkeypatch):
    monkeypatch.setattr(prompts, "_read", lambda name: "Question: {{question}} of {{pages}} pages")
    assert (
        fill_prompt("x", question="{{pages}} {question} %s", pages=3) == "Question: {{pages}} {question} %s of 3 pages"
    )
    with pytest.raises(ValueError, match=r"has the places \['pages', 'question'\], and values came for \['pages'\]"):
        fill_prompt("x", pages=3)


def test_system_rejects_empty_document_text():
    with pytest.raises(InputError):
        render_text("")
    (answer,) = Simple(engine(lambda request: '{"answer": "x"}')).answer_batch([Task("1", "", "Who?")])
    assert answer.status is Status.FAILED and "is empty" in answer.cause
