"""Driving conversations: failures stay with their question, and cancelled conversations are closed."""

from __future__ import annotations

import asyncio
import threading

import pytest
from reading_fakes import DOCUMENT, reader

from seer.engines.base import Request
from seer.engines.scripted import oracle_script
from seer.errors import EngineError
from seer.reading.conversation import ReadingLoop
from seer.reading.reader import read_one
from seer.schema import Status


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
