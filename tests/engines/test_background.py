"""The background event loop: called from threads and from other loops, cancelled and closed cleanly."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from seer.engines.background import BackgroundLoop

WAIT_S = 30


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop("test")
    yield loop
    loop.close()


class Stuck:
    """Work that never ends by itself and records that it started and was cancelled."""

    def __init__(self) -> None:
        self.begun, self.cancelled = threading.Event(), threading.Event()

    async def work(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


async def where() -> str:
    return threading.current_thread().name


async def failing() -> None:
    raise ValueError("in the loop")


def test_run_returns_the_result_and_raises_the_error_of_the_work(loop):
    async def ask() -> None:
        assert await loop.call(where()) == "seer-test"
        with pytest.raises(ValueError, match="in the loop"):
            await loop.call(failing())

    assert loop.run(where()) == "seer-test"
    with pytest.raises(ValueError, match="in the loop"):
        loop.run(failing())
    asyncio.run(ask())


def test_run_cancels_the_work_on_interrupt(loop, monkeypatch):
    stuck = Stuck()
    submit = asyncio.run_coroutine_threadsafe

    def interrupted(work, running):
        future = submit(work, running)

        def result(*_: object) -> None:
            assert stuck.begun.wait(WAIT_S)
            raise KeyboardInterrupt

        future.result = result
        return future

    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loop.run(stuck.work())
    assert stuck.cancelled.wait(WAIT_S)


def test_closed_loop_refuses_work_without_leaking_coroutines(loop, recwarn):
    loop.close()
    with pytest.raises(RuntimeError, match="the loop is closed"):
        loop.run(where())
    with pytest.raises(RuntimeError, match="the loop is closed"):
        asyncio.run(loop.call(where()))
    assert not [str(one.message) for one in recwarn if "never awaited" in str(one.message)]


def test_call_cancelled_by_its_caller_cancels_the_work(loop):
    stuck = Stuck()

    async def ask() -> None:
        task = asyncio.create_task(loop.call(stuck.work()))
        await asyncio.to_thread(stuck.begun.wait, WAIT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())
    assert stuck.cancelled.wait(WAIT_S)


def test_close_cancels_running_work_and_ends_the_thread():
    loop, stuck = BackgroundLoop("closing"), Stuck()
    future = asyncio.run_coroutine_threadsafe(stuck.work(), loop._loop)
    assert stuck.begun.wait(WAIT_S)
    loop.close()
    loop.close()
    assert stuck.cancelled.is_set() and future.cancelled()
    assert loop.closed and not loop._thread.is_alive()
    with pytest.raises(RuntimeError, match="the loop is closed"):
        loop.run(where())
