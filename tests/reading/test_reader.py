"""Driving conversations: failures stay with their question, and cancelled conversations are closed."""

from __future__ import annotations

import asyncio
import threading

import pytest
from fakes import small_encoder
from reading_fakes import DOCUMENT, calls, reader

from seer.engines.base import Request
from seer.engines.scripted import ScriptedEngine, oracle_script
from seer.errors import EngineError
from seer.reading.conversation import ReadingLoop, converse
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import Reader, read_batch, read_one
from seer.schema import Answer, Status


def test_failing_request_fails_only_its_own_question():
    def script(request: Request) -> str:
        if "bad" in request.prompt.turns[0].text:
            raise EngineError("the server hung up")
        return oracle_script(answer="fine")(request)

    good, bad, also_good = reader(script).ask_many([(DOCUMENT, "good"), (DOCUMENT, "bad"), (DOCUMENT, "fine")])
    assert (good.text, also_good.text) == ("fine", "fine")
    assert bad.status is Status.FAILED
    assert bad.cause == "the server hung up"


def test_read_one_closes_a_conversation_that_is_cancelled_repeatedly():
    may_end = threading.Event()

    def slow() -> ReadingLoop:
        try:
            may_end.wait(20)
            yield []
        finally:
            closed.append(True)

    async def leave() -> None:
        reading = asyncio.create_task(read_one(slow(), None, in_thread=True))
        for _ in range(3):
            await asyncio.sleep(0.02)
            reading.cancel()
        await asyncio.sleep(0.02)
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await reading

    closed: list[bool] = []
    asyncio.run(leave())
    assert closed == [True]


def test_engine_that_fails_as_a_whole_fails_every_question():
    class Broken(ScriptedEngine):
        def generate(self, requests):
            raise EngineError("the process ended", retryable=True)

    answers = Reader(Broken(encoder=small_encoder())).ask_many([(DOCUMENT, "one?"), (DOCUMENT, "two?")])
    assert [(answer.status, answer.cause) for answer in answers] == [(Status.FAILED, "the process ended")] * 2
    assert all(answer.failure.retryable for answer in answers)


def test_read_batch_keeps_the_order_of_a_conversation_that_ends_without_a_request():
    def ends_at_once():
        return Answer(text="at once", status=Status.ANSWERED)
        yield

    asked = reader(calls())
    long = converse(DOCUMENT, "one?", asked.engine, asked.selector, asked.policy)
    texts = [answer.text for answer in read_batch([long, ends_at_once()], asked.engine)]
    assert texts == ["forty-two", "at once"]


def test_from_checkpoint_reads_with_the_checkpoint(small_checkpoint_dir):
    asked = Reader.from_checkpoint(small_checkpoint_dir, policy=ReadingPolicy(max_new_tokens=4), device="cpu")
    answer = asked.ask(DOCUMENT, "What costs 449.99?")
    assert asked.engine.name == "hf"
    assert answer.usage.prompt > 0 and answer.usage.completion > 0
