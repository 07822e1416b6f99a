"""Conversations over real sockets: the requests that the openai engine sends."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from fakes import error_text, make_document
from openai_fakes import DOCUMENT, FREE, PAGES, PROMPT, TEXTS, engine_for
from serving_fakes import Say

from seer.engines.base import BoundedEngine, Conversation, Request
from seer.engines.openai.engine import OpenAIEngine
from seer.engines.recalling import RecallingEngine
from seer.engines.scripted import ScriptedEngine
from seer.errors import (
    InputError,
)
from seer.protocol.call import render_call
from seer.protocol.literals import neutralise
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import Reader
from seer.schema import Status, Turn
from seer.selection.base import OraclePages


def reading_script(body: dict[str, Any], number: int) -> Say:
    """Selects pages 1 and 3, then answers."""
    if body["messages"][-1]["role"] == "user":
        return Say('<tool_call>{"name": "select", "indices": [1, 3]}</tool_call>')
    return Say("<think>1299.99 + 449.99</think>\n$1,749.98")


def test_conversation_sends_each_image_after_its_label_and_neutralises_text():
    with engine_for(lambda body, n: Say("x")) as (engine, server):
        engine.generate([FREE])
    (message,) = server.asked[0]["messages"]
    kinds = [part["type"] for part in message["content"]]
    assert kinds == ["text", "image_url"] * 3 + ["text"]
    labels = [part["text"] for part in message["content"] if part["type"] == "text"]
    assert labels == ["[Image 1]", "[Image 2]", "[Image 3]", f"\nQuery: {neutralise('What is the total? </think>')}"]
    assert message["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert "</think>" not in json.dumps(server.asked[0])


@pytest.mark.parametrize("continuation", ["tool", "assistant", "user"])
def test_reader_selects_and_answers_with_each_continuation(continuation):
    def script(body: dict[str, Any], number: int) -> Say:
        return reading_script({"messages": [{"role": "user" if number == 0 else "tool"}]}, number)

    with engine_for(script, continuation=continuation) as (engine, server):
        answer = Reader(engine).ask(DOCUMENT, "What is the total?")
    assert (answer.status, answer.text, answer.selected_pages) == (Status.ANSWERED, "$1,749.98", (1, 3))
    assert answer.trace[-2].text == "1299.99 + 449.99"
    assert answer.usage.cached == 10
    second = server.asked[1]
    roles = [message["role"] for message in second["messages"]]
    assert (
        roles
        == {
            "tool": ["user", "assistant", "tool"],
            "assistant": ["user", "assistant"],
            "user": ["system", "user", "assistant", "user"],
        }[continuation]
    )
    assert second.get("continue_final_message", False) == (continuation == "assistant")
    last = second["messages"][-1]["content"]
    assert f"Text from image 1: {TEXTS[0]}\nText from image 3: {TEXTS[2]}" in last


@pytest.mark.parametrize("continuation", ["tool", "assistant", "user"])
def test_thinking_before_a_second_call_is_sent_in_the_message_of_the_call(continuation):
    says = [
        Say('<tool_call>{"name": "select", "indices": [1]}</tool_call>'),
        Say('<think>And </think\u200c>?</think><tool_call>{"name": "select", "indices": [3]}</tool_call>'),
        Say("$1,749.98"),
    ]
    with engine_for(lambda body, number: says[number], continuation=continuation) as (engine, server):
        answer = Reader(engine, policy=ReadingPolicy(rounds=2)).ask(DOCUMENT, "What is the total?")
    assert (answer.text, answer.selected_pages) == ("$1,749.98", (1, 3))
    assert not any(step.deviations for step in answer.trace)
    messages = server.asked[2]["messages"]
    if continuation == "tool":
        assert [message["role"] for message in messages] == ["user", *["assistant", "tool"] * 2]
        assert "reasoning_content" not in messages[1]
        told = messages[3]["reasoning_content"]
        assert [message["tool_calls"][0]["id"] for message in messages[1::2]] == ["call_0", "call_1"]
        assert [message["tool_call_id"] for message in messages[2::2]] == ["call_0", "call_1"]
    elif continuation == "user":
        assert [message["role"] for message in messages] == ["system", *["user", "assistant"] * 2, "user"]
        told, call = messages[4]["content"].split("\n")
        assert json.loads(call)["indices"] == [3]
    else:
        said = messages[-1]["content"]
        told = said.partition("<think>")[2].partition("</think><tool_call>")[0]
    assert told.startswith("And ") and "</think>" not in told


def test_reader_rejects_an_empty_question():
    with engine_for(reading_script) as (engine, _):
        with pytest.raises(InputError, match="the question is empty"):
            Reader(engine).ask_many([(DOCUMENT, "Fine?"), (DOCUMENT, " ")])
        assert Reader(engine).ask(DOCUMENT, "Fine?").text == "$1,749.98"


def test_observation_is_neutralised_and_its_quotation_restored():
    with engine_for(lambda body, n: Say(neutralise("It says <|user|> there.")), continuation="tool") as (
        engine,
        server,
    ):
        shown = Turn(kind="observation", text=TEXTS[1])
        (said,) = engine.generate([Request(Conversation((*PROMPT, Turn(kind="call", pages=(2,)), shown), PAGES), "c")])
    assert server.asked[0]["messages"][-1]["content"] == neutralise(TEXTS[1])
    # restored text is data again; a trusted server's own tags are not
    assert said.raw == "It says <|user|> there."


def test_request_too_large_as_png_is_sent_as_jpeg_and_rejected_if_still_too_large():
    noisy = make_document(["x"], width_px=600, height_px=600)
    request = Request(Conversation((Turn(kind="prompt", text="?", pages=(1,)),), {1: noisy.page(1)}), "big")
    with engine_for(lambda body, n: Say("ok"), max_request_mb=0.42) as (engine, server):
        (said,) = engine.generate([request])
        assert said.raw == "ok"
        assert "image/jpeg" in json.dumps(server.asked)
        engine.max_request_bytes = 1000
        (refused,) = engine.generate([request])
    assert refused.finish == "error"
    assert "max_request_mb" in error_text(refused)


def shown_pages(body: dict[str, Any]) -> list[int]:
    parts = body["messages"][0]["content"]
    return [int(part["text"][7:-1]) for part in parts if part.get("text", "").startswith("[Image ")]


def finding_script(body: dict[str, Any], number: int) -> Say:
    """Selects pages 3 and 8 where it sees them, then answers."""
    if body["messages"][-1]["role"] == "user":
        return Say(render_call([page for page in (3, 8) if page in shown_pages(body)]))
    return Say("found")


@pytest.mark.parametrize("selector", [None, OraclePages(lambda document, question: (3, 8))])
@pytest.mark.parametrize("as_asked", [lambda engine: engine, RecallingEngine])
def test_document_too_large_for_one_request_is_scanned_in_chunks(selector, as_asked):
    document = make_document([f"page {number}\n" for number in range(1, 11)])
    with engine_for(finding_script, max_request_mb=0.04) as (engine, server):
        answer = Reader(as_asked(engine), selector).ask(document, "Where?")
    assert (answer.text, answer.selected_pages) == ("found", (3, 8))
    *scans, last = map(shown_pages, server.asked)
    assert last == [3, 8]
    assert sorted(itertools.chain(*scans)) == ([] if selector else list(range(1, 11)))
    assert selector or 1 < len(scans) < 10
    assert all(len(json.dumps(body)) <= engine.max_request_bytes for body in server.asked)


def test_recalling_engine_is_bounded_only_if_its_engine_is():
    assert not isinstance(RecallingEngine(ScriptedEngine()), BoundedEngine)


def test_page_too_large_for_any_request_fails_before_it_is_sent():
    document = make_document(["a\n", "b\n"], width_px=600, height_px=600)
    with engine_for(finding_script, max_request_mb=0.1) as (engine, server):
        answer = Reader(engine).ask(document, "Where?")
    assert answer.status is Status.FAILED
    assert "max_request_mb" in answer.cause
    assert not server.asked


def test_key_is_read_from_the_environment_and_kept_out_of_messages(monkeypatch):
    monkeypatch.setenv("SEER_API_KEY", "sk-very-secret")
    refusal = json.dumps({"error": {"message": "Incorrect API key provided: sk-very-secret"}}).encode()
    with engine_for(lambda body, n: Say(status=401, raw=refusal)) as (engine, server):
        (said,) = engine.generate([FREE])
        assert server.headers[0]["Authorization"] == "Bearer sk-very-secret"
    assert "401" in error_text(said)
    assert "secret" not in error_text(said)
    assert len(server.asked) == 1
    with pytest.raises(InputError, match="NO_SUCH_KEY"):
        OpenAIEngine("http://127.0.0.1:1/v1", api_key_env="NO_SUCH_KEY")
