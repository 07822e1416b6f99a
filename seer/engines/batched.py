"""Single requests for an engine that takes batches: requests that wait at the same time form one batch.

A server uses it with the transformers engine. The engine runs in one thread, one batch at a time. `forget` waits for the
running batch, so that no session is dropped while it is in use.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from seer.engines.base import Engine, Generation, Request
from seer.errors import EngineError, SeerError

_log = logging.getLogger(__name__)


class BatchedEngine:
    """Wraps an engine. It belongs to the event loop that first awaits it."""

    def __init__(self, engine: Engine, max_batch: int = 8) -> None:
        self.engine, self.max_batch = engine, max_batch
        self.name, self.encoder = engine.name, engine.encoder
        self.constrains, self.max_positions = engine.constrains, engine.max_positions
        self._waiting: list[tuple[Request, asyncio.Future[Generation]]] = []
        self._worker: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="seer-engine")

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        return self._thread.submit(self.engine.generate, requests).result()

    async def generate_one(self, request: Request) -> Generation:
        answered: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answered))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await answered

    def forget(self, session: str) -> None:
        with contextlib.suppress(RuntimeError):  # the thread has ended, and the sessions with it
            self._thread.submit(self.engine.forget, session)

    def trouble(self) -> str:
        """Always "": an engine in this process is available."""
        return ""

    def close(self) -> None:
        """Cancel waiting batches and end the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            # a cancelled request is not worth computing
            self._waiting = [item for item in self._waiting if not item[1].done()]
            batch, self._waiting = self._waiting[: self.max_batch], self._waiting[self.max_batch :]
            if not batch:
                continue
            requests = [request for request, _ in batch]
            try:
                said = await loop.run_in_executor(self._thread, self.engine.generate, requests)
            except Exception as error:  # the boundary to the engine: its failure fails this batch and no other
                if not isinstance(error, SeerError):
                    reason = f"the engine failed: {type(error).__name__}"
                    # the traceback without the message, which may hold text of the document
                    _log.error("%s in\n%s", reason, "".join(traceback.format_tb(error.__traceback__)))
                    error = EngineError(reason)
                said = [Generation.failed(error)] * len(batch)
            for (_, answered), generation in zip(batch, said, strict=True):
                if not answered.done():
                    answered.set_result(generation)
