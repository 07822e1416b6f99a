"""An event loop in its own thread, so that asynchronous engines can be used from any thread and any event loop.

loop = BackgroundLoop("vllm")
loop.run(work())            # from a plain thread: waits
await loop.call(work())     # from any event loop; cancelling it cancels the work
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from seer.engines.base import Generation, Request, generate_all
from seer.engines.drawn import DrawnPages, Picture

Result = TypeVar("Result")


class BackgroundEngine(ABC, Generic[Picture]):
    """Base class of asynchronous engines: one event loop for all requests, and the images drawn for each session."""

    name: str
    max_concurrent: int
    bound_to_loop = True
    """False if requests may run in any event loop: `generate_one` then runs in its caller's loop and thread."""

    def __init__(self, size: Callable[[Picture], int]) -> None:
        """`size`: returns the bytes that an image takes in memory."""
        self._loop = BackgroundLoop(self.name)
        self._drawn: DrawnPages[Picture] = DrawnPages(size)

    @abstractmethod
    async def _generate_one(self, request: Request) -> Generation:
        """Answer one request. A failure becomes a failed Generation; cancelling it cancels the request."""

    @abstractmethod
    async def _end(self) -> None:
        """Release the engine's resources. Runs last, in the loop."""

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        return self.run(generate_all(self, requests))

    async def generate_one(self, request: Request) -> Generation:
        if self.bound_to_loop:
            return await self._loop.call(self._generate_one(request))
        self._loop.check_open()
        return await self._generate_one(request)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run(work)

    def forget(self, session: str) -> None:
        self._drawn.forget(session)

    def close(self) -> None:
        """Release the engine's resources and end its thread. May be called twice."""
        if self._loop.closed:
            return
        try:
            self._loop.run(self._end())
        finally:
            self._loop.close()


class BackgroundLoop:
    """An event loop that runs in a daemon thread until `close`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"seer-{name}", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run `work` in the loop and wait for its result. An interrupt while waiting cancels it.

        Raises RuntimeError if the loop is closed, or if it is called from the loop itself.
        """
        self._refuse_if_closed(work)
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("run() blocks and was called from the loop that it would block; await the work instead")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run `work` in the loop and await its result from any event loop. Raises RuntimeError if the loop is closed."""
        self._refuse_if_closed(work)
        if threading.current_thread() is self._thread:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def check_open(self) -> None:
        """Raises RuntimeError if the loop is closed."""
        if self.closed:
            raise RuntimeError("the loop is closed; create a new engine")

    def _refuse_if_closed(self, work: Coroutine[Any, Any, Any]) -> None:
        if self.closed:
            work.close()  # otherwise Python warns that it was never awaited
        self.check_open()

    def close(self) -> None:
        """Cancel running work and end the thread. May be called twice."""
        if self.closed:
            return
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result(timeout=30)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=30)
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
