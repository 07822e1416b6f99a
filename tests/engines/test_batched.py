"""Single requests for an engine that takes batches: waiting requests are joined, cancelled ones skipped, errors contained."""

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
    """Records its batches. The first waits until it is released, or raises the given error."""

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


def test_batched_engine_joins_waiting_requests_and_skips_cancelled_ones():
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


def test_batched_engine_with_only_cancelled_requests_serves_the_next_one():
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
def test_batched_engine_failure_affects_one_batch_only(error, said):
    def fail() -> None:
        raise error

    engine = BatchedEngine(Noting(fail))

    async def run() -> list[Generation]:
        return [await engine.generate_one(request(name)) for name in "ab"]

    failed, fine = asyncio.run(run())
    assert (failed.finish, error_text(failed), fine.raw) == ("error", said, "b")
    engine.close()


def test_batched_engine_forget_after_close_does_nothing():
    engine = BatchedEngine(Noting(lambda: None))
    assert [said.raw for said in engine.generate([request("a")])] == ["a"]
    engine.close()
    engine.close()
    engine.forget("a")
    assert engine.trouble() == ""
