"""An event loop in a thread of its own: engines that await things, usable from any thread and any other event loop.

loop = BackgroundLoop("vllm")
loop.run(work())            # from a plain thread: waits
await loop.call(work())     # from any event loop: cancelling it cancels the work
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class BackgroundLoop:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"seer-{name}", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Wait for `work`. An interrupt while waiting cancels it."""
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("the loop is closed; nothing runs in it any more")
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
        if threading.current_thread() is self._thread:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        """Cancel what still runs and end the thread. May be called twice."""
        if self._loop.is_closed():
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
