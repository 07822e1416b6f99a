"""The cache of replies: equal requests share a reply, and everything that could change a reply makes a request new."""

from __future__ import annotations

import pytest
from fakes import make_document, small_encoder

from seer.engines.base import Chat, Conversation, Generation, JsonSchema, Request, Sampling
from seer.engines.recalling import RecallingEngine
from seer.engines.scripted import ScriptedEngine
from seer.errors import EngineError
from seer.schema import Turn

BASE = {"prompt": Chat.of("Which code?"), "session": "a", "sampling": Sampling(16)}


def recalling(*failures: int) -> tuple[RecallingEngine, ScriptedEngine]:
    """A cache over an engine whose calls of these numbers fail."""
    calls = iter(range(100))

    def script(request: Request) -> str:
        if (number := next(calls)) in failures:
            raise EngineError("busy", retryable=True)
        return f"reply {number}<|user|>"

    engine = ScriptedEngine(script, small_encoder())
    return RecallingEngine(engine), engine


def ask(engine: RecallingEngine, **changes: object) -> Generation:
    (reply,) = engine.generate([Request(**(BASE | changes))])
    return reply


def test_equal_requests_share_a_reply_across_sessions():
    cache, engine = recalling()
    assert ask(cache).text == ask(cache, session="b").text == "reply 0"
    assert (len(engine.requests), cache.num_recalled) == (1, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": Chat.of("Which code!")},
        {"constraint": JsonSchema('{"type": "object"}')},
        {"sampling": Sampling(16, seed=1)},
        {"n": 2},
        {"on_text": lambda text: None},
        {"on_control": lambda name: None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_request_that_differs_is_sent(change):
    cache, _ = recalling()
    assert ask(cache).text == "reply 0"
    assert ask(cache, **change).text == "reply 1"
    assert cache.num_recalled == 0


def test_failed_reply_is_not_kept():
    cache, _ = recalling(0)
    assert ask(cache).finish == "error"
    assert ask(cache).text == "reply 1"


def test_request_that_cannot_be_encoded_fails_each_time():
    cache, engine = recalling()
    thread = make_document(["a"], width_px=28_000, height_px=28).pages[0]
    prompt = Conversation((Turn(kind="prompt", text="?", pages=(1,)),), {1: thread})
    assert [ask(cache, prompt=prompt).finish for _ in range(2)] == ["error", "error"]
    assert (cache.num_recalled, len(engine.requests)) == (0, 2)


def test_requests_with_different_pages_differ():
    cache, _ = recalling()
    turns = (Turn(kind="prompt", text="?", pages=(1,)),)
    first, other = (make_document([text]).pages[0] for text in ("a", "b"))
    replies = [ask(cache, prompt=Conversation(turns, {1: page})).text for page in (first, other, first)]
    assert replies == ["reply 0", "reply 1", "reply 0"]


def test_forget_reaches_the_engine():
    cache, engine = recalling()
    cache.forget("a")
    assert engine.forgotten == ["a"]
