"""Single requests into an engine that takes batches: what waits goes together, who has gone is left out, faults stay apart."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest
from fakes import error_text

from seer.engines.base import Conversation, Generation, Request
from seer.engines.batched import BatchedEngine
from seer.engines.scripted import ScriptedEngine
from seer.errors import EngineError
from seer.schema import Turn

WAIT_S = 30


def request(name: str) -> Request:
    return Request(Conversation((Turn(kind="prompt", text="?"),)), name)


class Noting(ScriptedEngine):
    """Notes its batches. The first waits until it is let go, or does what it is told."""

    def __init__(self, first: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.batches: list[list[str]] = []
        self.begun, self.go = threading.Event(), threading.Event()
        self._first = first or (lambda: self.go.wait(WAIT_S))

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        self.batches.append([one.session for one in requests])
        self.begun.set()
        if len(self.batches) == 1:
            self._first()
        return [Generation(parts=(("", one.session),)) for one in requests]


def test_what_waits_together_goes_together_and_whoever_has_gone_is_not_computed():
    inner = Noting()
    engine = BatchedEngine(inner, max_batch=3)

    async def run() -> list[str]:
        tasks = {name: asyncio.create_task(engine.generate_one(request(name))) for name in "a"}
        await asyncio.to_thread(inner.begun.wait, WAIT_S)
        tasks |= {name: asyncio.create_task(engine.generate_one(request(name))) for name in "bcdef"}
        await asyncio.sleep(0)  # they have asked
        tasks.pop("c").cancel()
        await asyncio.sleep(0)
        inner.go.set()
        return [said.raw for said in await asyncio.gather(*tasks.values())]

    assert asyncio.run(run()) == ["a", "b", "d", "e", "f"]
    assert inner.batches == [["a"], ["b", "d", "e"], ["f"]]
    engine.close()


def test_where_everybody_has_gone_nothing_is_computed_and_the_next_request_is_served():
    inner = Noting()
    engine = BatchedEngine(inner)

    async def run() -> str:
        first = asyncio.create_task(engine.generate_one(request("a")))
        await asyncio.to_thread(inner.begun.wait, WAIT_S)
        gone = asyncio.create_task(engine.generate_one(request("b")))
        await asyncio.sleep(0)
        gone.cancel()
        first.cancel()
        inner.go.set()
        await asyncio.gather(first, gone, return_exceptions=True)
        return (await engine.generate_one(request("c"))).raw

    assert asyncio.run(run()) == "c"
    assert inner.batches == [["a"], ["c"]]
    engine.close()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (EngineError("the prompt is too long"), "the prompt is too long"),
        (ZeroDivisionError("secret"), "the engine failed: ZeroDivisionError"),
    ],
)
def test_a_batch_that_fails_fails_alone(error, said):
    def fail() -> None:
        raise error

    engine = BatchedEngine(Noting(fail))

    async def run() -> list[Generation]:
        return [await engine.generate_one(request(name)) for name in "ab"]

    failed, fine = asyncio.run(run())
    assert (failed.finish, error_text(failed), fine.raw) == ("error", said, "b")
    engine.close()


def test_after_its_end_there_is_nothing_to_forget():
    engine = BatchedEngine(Noting(lambda: None))
    assert [said.raw for said in engine.generate([request("a")])] == ["a"]
    engine.close()
    engine.close()
    engine.forget("a")
    assert engine.trouble() == ""
