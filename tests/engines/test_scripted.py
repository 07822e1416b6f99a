"""The scripted engine, and the split of output into thinking and answer."""

from __future__ import annotations

import pytest
from fakes import make_document
from reading_fakes import DOCUMENT, reader

from seer.engines.base import Chat, Conversation, Request, Sampling, split_reasoning
from seer.engines.scripted import ScriptedEngine, oracle_script
from seer.schema import Turn


def test_scripted_engine_keeps_only_the_last_requests(monkeypatch):
    monkeypatch.setattr("seer.engines.scripted.MAX_KEPT", 3)
    asked = reader(oracle_script(answer="x"))
    for number in range(4):
        asked.ask(DOCUMENT, f"question {number}")
    assert [request.prompt.turns[0].text for request in asked.engine.requests] == [
        "question 2",
        "question 3",
        "question 3",
    ]
    assert len(asked.engine.forgotten) == 3


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((("", "plain"),), ("", "plain", False)),
        ((("<think>", ""), ("", "a"), ("</think>", ""), ("", "\nb"), ("<|user|>", "")), ("a", "b", True)),
        ((("", "a"), ("</think>", ""), ("", "\nb")), ("a", "b", True)),
        ((("<think>", ""), ("", "never closed")), ("never closed", "", True)),
        ((), ("", "", False)),
    ],
)
def test_split_reasoning_separates_thinking_and_answer_by_control_tokens(parts, expected):
    assert split_reasoning(parts) == expected


def test_quote_script_answers_a_chat_with_the_first_line_of_the_user():
    chat = Chat.of("\n  first line  \nsecond", system="Be brief.")
    (reply,) = ScriptedEngine().generate([Request(chat, "c", sampling=Sampling(64))])
    assert reply.text == "first line"


def test_scripted_engine_hands_out_text_and_control_tokens_in_order():
    parts: list[str] = []
    request = Request(Chat.of("word"), "c", sampling=Sampling(64), on_text=parts.append, on_control=parts.append)
    (reply,) = ScriptedEngine(oracle_script(answer="42", think="so")).generate([request])
    assert parts == ["<think>", "so", "</think>", "\n42", "<|user|>"]
    assert (reply.reasoning, reply.text) == ("so", "42")


def test_scripted_engine_fails_a_request_that_it_cannot_encode():
    thread = make_document(["a"], width_px=28_000, height_px=28).pages[0]
    prompt = Conversation((Turn(kind="prompt", text="?", pages=(1,)),), {1: thread})
    (reply,) = ScriptedEngine().generate([Request(prompt, "c")])
    assert reply.finish == "error" and not reply.retryable
