"""The scripted engine, and the split of output into thinking and answer."""

from __future__ import annotations

import pytest
from reading_fakes import DOCUMENT, reader

from seer.engines.base import split_reasoning
from seer.engines.scripted import oracle_script


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
