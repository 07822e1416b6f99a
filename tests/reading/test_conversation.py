"""One conversation with a scripted engine: requests, turns, usage, and policies for invalid calls."""

from __future__ import annotations

import pytest
from fakes import make_document, small_encoder
from reading_fakes import DOCUMENT, TEXTS, calls, reader

from seer.engines.base import Generation
from seer.engines.scripted import ScriptedEngine, oracle_script
from seer.errors import InputError
from seer.protocol.call import render_call
from seer.reading.reader import Reader
from seer.schema import Status


def test_converse_selects_retrieves_and_answers_with_citations():
    asked = reader(oracle_script(pages=(1, 3), answer="$1,749.98", think='It says "The monitor costs $449.99."'))
    answer = asked.ask(DOCUMENT, "What is the total?")
    assert answer.status is Status.ANSWERED
    assert answer.text == "$1,749.98"
    assert answer.selected_pages == (1, 3)
    assert [step.name for step in answer.trace] == ["look", "select", "retrieve", "reason", "answer"]
    assert [excerpt.text for excerpt in answer.trace[2].excerpts] == [TEXTS[0], TEXTS[2]]
    (citation,) = answer.citations
    assert citation.verified
    assert DOCUMENT.text[citation.start : citation.end] == citation.quote == "The monitor costs $449.99."
    assert citation.page == 3
    assert asked.engine.forgotten, "the engine frees what it kept for the conversation"


def test_usage_counts_the_last_prompt():
    asked = reader(oracle_script(pages=(1, 3), answer="x"))
    usage = asked.ask(DOCUMENT, "What?").usage
    last = asked.engine.requests[-1]
    encoded = small_encoder().encode(last.prompt.turns, last.prompt.page_sizes, last.prompt.written)
    assert usage.prompt == len(encoded)
    assert usage.vision == 3 * 12
    assert 0 < usage.retrieved < usage.prompt
    assert usage.full_text == asked.ask(DOCUMENT, "What?").usage.full_text > 0


def test_second_request_continues_the_first():
    asked = reader(oracle_script(pages=(2,), answer="brown"))
    asked.ask(DOCUMENT, "Which colour?")
    first, second = asked.engine.requests
    assert second.prompt.turns[: len(first.prompt.turns)] == first.prompt.turns
    assert second.session == first.session


def test_converse_without_retrieval_acknowledges_the_selection():
    answer = reader(oracle_script(pages=(1, 3), answer="x"), retrieve=False).ask(DOCUMENT, "q")
    assert answer.trace[2].text.startswith("You identified images [1, 3] as relevant")
    assert answer.trace[2].excerpts == ()


def test_converse_retrieves_only_the_first_pages_within_the_limit():
    answer = reader(oracle_script(pages=(1, 3), answer="x"), max_retrieved_pages=1).ask(DOCUMENT, "q")
    assert answer.selected_pages == (1, 3), "the selection is free"
    assert [excerpt.page for excerpt in answer.trace[2].excerpts] == [1]
    everything = reader(oracle_script(pages=(1, 3), answer="x"), max_retrieved_pages=2).ask(DOCUMENT, "q")
    assert [excerpt.page for excerpt in everything.trace[2].excerpts] == [1, 3]


def test_converse_with_an_empty_selection_answers():
    answer = reader(oracle_script(pages=(), answer="Not answerable.")).ask(DOCUMENT, "q")
    assert answer.selected_pages == ()
    assert answer.status is Status.NOT_ANSWERABLE


@pytest.mark.parametrize(
    ("mode", "kinds"), [("visual", ["look", "reason", "answer"]), ("text", ["look", "reason", "answer"])]
)
def test_visual_and_text_modes_answer_without_selection(mode, kinds):
    asked = reader(oracle_script(answer="x", think="y"), mode=mode)
    answer = asked.ask(DOCUMENT, "q")
    assert [step.name for step in answer.trace] == kinds
    assert bool(answer.trace[0].pages) is (mode == "visual")
    if mode == "text":
        assert answer.usage.prompt == answer.usage.full_text
        assert answer.usage.vision == 0


def test_running_out_of_tokens_fails_with_a_cause():
    answer = reader(oracle_script(think="long " * 50, answer="x"), max_new_tokens=8).ask(DOCUMENT, "q")
    assert answer.status is Status.FAILED
    assert answer.cause == "no answer within the token limit"


@pytest.mark.parametrize("question", ["", "  \n\t"])
def test_converse_rejects_an_empty_question(question):
    with pytest.raises(InputError, match="question is empty"):
        reader(oracle_script()).ask(DOCUMENT, question)


def test_converse_rejects_a_document_without_pages():
    with pytest.raises(InputError, match="'empty' has no pages to read; give a document"):
        reader(oracle_script()).ask(make_document([], name="empty"), "q")


# ── Invalid calls and their policies ─────────────────────────────────────────────────────────────

BAD = '{"name": "select", "indices": [9, 3, 3]}'


def test_drop_policy_keeps_valid_pages_and_names_deviations():
    answer = reader(calls(BAD), on_invalid_call="drop").ask(DOCUMENT, "q")
    assert answer.selected_pages == (3,)
    assert answer.trace[1].deviations == ("out_of_range", "duplicate")
    assert answer.status is Status.ANSWERED


def test_reject_policy_fails_and_names_deviations():
    answer = reader(calls(BAD), on_invalid_call="reject").ask(DOCUMENT, "q")
    assert answer.status is Status.FAILED
    assert "out_of_range" in answer.cause
    assert answer.trace[1].deviations


def test_quoted_call_is_text_and_not_a_call():
    class Quotes(ScriptedEngine):
        def generate(self, requests):
            if requests[0].constraint is None:
                return super().generate(requests)
            quoted = f"The page says <tool_call>{render_call((3,))}</tool_call>. "
            own = (("<tool_call>", ""), ("", render_call((1,))), ("</tool_call>", ""))
            return [Generation(parts=(("", quoted), *own))]

    answer = Reader(Quotes(oracle_script(answer="x"), small_encoder())).ask(DOCUMENT, "q")
    assert answer.selected_pages == (1,)
    assert answer.trace[1].deviations == ("text_around",)


def test_reask_policy_repeats_the_request_without_the_invalid_call():
    asked = reader(calls(BAD, render_call((1,))), on_invalid_call="reask")
    answer = asked.ask(DOCUMENT, "q")
    assert answer.selected_pages == (1,)
    assert [step.deviations for step in answer.trace if step.name == "select"] == [("out_of_range", "duplicate"), ()]
    assert asked.engine.requests[0].prompt.turns == asked.engine.requests[1].prompt.turns
    assert asked.engine.requests[1].sampling.temperature > 0  # greedy decoding would repeat the call


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_reask_policy_changes_sampling_on_every_attempt(temperature):
    asked = reader(calls(BAD, BAD, BAD), on_invalid_call="reask", reasks=2, temperature=temperature, seed=7)
    asked.ask(DOCUMENT, "q")
    drawn = [request.sampling for request in asked.engine.requests[:3]]
    assert len({*drawn}) == 3
    assert drawn[0].seed == 7
    if temperature:
        assert {sampling.temperature for sampling in drawn} == {temperature}


def test_reask_policy_drops_after_its_last_attempt():
    answer = reader(calls(BAD, BAD, BAD), on_invalid_call="reask", reasks=2).ask(DOCUMENT, "q")
    assert answer.selected_pages == (3,)
    assert len([step for step in answer.trace if step.name == "select"]) == 3
