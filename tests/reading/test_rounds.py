"""Several rounds of selection: pages offered, thinking before a call, and token ids kept on turns."""

from __future__ import annotations

import pytest
from fakes import make_document, small_encoder
from reading_fakes import DOCUMENT, calls, reader, thinks_and_calls

from seer.engines.base import Request
from seer.protocol.call import render_call
from seer.schema import Status


def test_rounds_offer_only_pages_not_yet_selected():
    asked = reader(calls(render_call((1,)), render_call((3,))), rounds=3)
    answer = asked.ask(DOCUMENT, "q")
    assert answer.selected_pages == (1, 3)
    assert [request.constraint.allowed for request in asked.engine.requests if request.constraint] == [
        (1, 2, 3),
        (2, 3),
        (2,),
    ]
    assert answer.text == "forty-two"
    kinds = [step.name for step in answer.trace]
    assert kinds == ["look", "select", "retrieve", "select", "retrieve", "reason", "answer"]


def test_model_may_answer_before_the_last_round():
    asked = reader(calls(render_call((1,))), rounds=5)
    assert asked.ask(DOCUMENT, "q").text == "forty-two"
    assert len(asked.engine.requests) == 2


def test_model_may_think_before_it_calls_again():
    asked = reader(thinks_and_calls(2, 'It says "The desk is brown."'), rounds=3)
    answer = asked.ask(DOCUMENT, "q")
    kinds = [step.name for step in answer.trace]
    assert kinds == ["look", *["select", "retrieve", "reason"] * 2, "answer"]
    assert (answer.text, answer.selected_pages, answer.status) == ("forty-two", (1, 2), Status.ANSWERED)
    assert not any(step.deviations for step in answer.trace)
    assert [citation.quote for citation in answer.citations] == ["The desk is brown."]
    # The last prompt repeats the ids that the model wrote.
    last = asked.engine.requests[-1]
    encoded = small_encoder().encode(last.prompt.turns, last.prompt.page_sizes, last.prompt.written)
    assert answer.usage.prompt == len(encoded) and {1, 3, 4} == {*last.prompt.written}
    assert encoded.ids.tolist() == small_encoder().encode(last.prompt.turns, last.prompt.page_sizes).ids.tolist()


@pytest.mark.parametrize(
    "before",
    ["so far", "<think>never closed", "<think>a</think> then", "and <think>a</think>", "<think>a<think>b</think>"],
)
def test_text_before_a_call_other_than_thinking_is_a_deviation(before):
    def write(request: Request) -> str:
        if request.constraint is None:
            return "forty-two<|user|>"
        head = "" if request.constraint.required else before
        return f"{head}<tool_call>{render_call(request.constraint.allowed[:1])}</tool_call>"

    answer = reader(write, rounds=2).ask(DOCUMENT, "q")
    assert answer.selected_pages == (1, 2)
    assert [step.deviations for step in answer.trace if step.name == "select"] == [(), ("text_around",)]


def test_thinking_that_leaves_no_room_for_its_pages_is_taken_back():
    document = make_document(["word " * 400, "other " * 400])
    script = thinks_and_calls(2, "long " * 4000)
    answer = reader(script, rounds=2, mode="auto", max_call_tokens=32, max_new_tokens=8000).ask(document, "q")
    assert (answer.status, answer.text, answer.selected_pages) == (Status.ANSWERED, "forty-two", (1,))
    assert answer.usage.prompt <= answer.usage.full_text
