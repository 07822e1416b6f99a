"""An event loop in a thread of its own: engines that await things, usable from any thread and any other event loop.

loop = BackgroundLoop("vllm")
loop.run(work())            # from a plain thread: waits
await loop.call(work())     # from any event loop: cancelling it cancels the work
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
    """What engines whose requests are awaited have in common: one loop for them all, and the pages drawn for each."""

    name: str
    max_concurrent: int

    def __init__(self, size: Callable[[Picture], int]) -> None:
        """`size`: the bytes that a picture takes."""
        self._loop = BackgroundLoop(self.name)
        self._drawn: DrawnPages[Picture] = DrawnPages(size)

    @abstractmethod
    async def _generate_one(self, request: Request) -> Generation:
        """Runs in the loop. Whatever fails is a Generation of finish "error"; cancelling takes the request back."""

    @abstractmethod
    async def _end(self) -> None:
        """Runs in the loop, last."""

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        return self.run(generate_all(self, requests))

    async def generate_one(self, request: Request) -> Generation:
        return await self._loop.call(self._generate_one(request))

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run(work)

    def forget(self, session: str) -> None:
        self._drawn.forget(session)

    def close(self) -> None:
        """End what the engine holds, and its thread. May be called twice."""
        if self._loop.closed:
            return
        try:
            self._loop.run(self._end())
        finally:
            self._loop.close()


class BackgroundLoop:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"seer-{name}", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Wait for `work`. An interrupt while waiting cancels it."""
        self._refuse_if_closed(work)
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("run() waits and was called from the loop it would wait for; await the work instead")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        self._refuse_if_closed(work)
        if threading.current_thread() is self._thread:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _refuse_if_closed(self, work: Coroutine[Any, Any, Any]) -> None:
        if self.closed:
            work.close()
            raise RuntimeError("the loop is closed; nothing runs in it any more")

    def close(self) -> None:
        """Cancel what still runs and end the thread. May be called twice."""
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
