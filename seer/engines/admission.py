"""Back-pressure: a number of requests run, a number more wait, further ones are refused at once."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from seer.errors import EngineBusy


class Admission:
    """The limit of one engine. Requests of any event loop may enter; they are admitted in the order of their arrival."""

    def __init__(self, max_concurrent: int, max_waiting: int) -> None:
        self.max_concurrent, self.max_waiting = max_concurrent, max_waiting
        self.under_way = 0
        """Requests that run or wait."""
        self._num_free = max_concurrent
        self._queue: deque[asyncio.Future[None]] = deque()
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """Requests that wait for another one to end."""
        return max(0, self.under_way - self.max_concurrent)

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[None]:
        """Run the block once there is room. Raises EngineBusy if as many requests wait as are allowed."""
        turn = self._arrive()
        try:
            if turn is not None:
                await self._wait(turn)
            try:
                yield
            finally:
                self._pass_on()
        finally:
            with self._lock:
                self.under_way -= 1

    def _arrive(self) -> asyncio.Future[None] | None:
        """Take a free place and return None, or return the future that is set when a place becomes free."""
        with self._lock:
            if self.under_way >= self.max_concurrent + self.max_waiting:
                raise EngineBusy(
                    f"{self.under_way} requests are running or waiting, as many as are allowed; try again later"
                )
            self.under_way += 1
            if self._num_free:
                self._num_free -= 1
                return None
            turn = asyncio.get_running_loop().create_future()
            self._queue.append(turn)
            return turn

    async def _wait(self, turn: asyncio.Future[None]) -> None:
        try:
            await turn
        except asyncio.CancelledError:
            # The place may have been granted in the same moment; then the next one gets it.
            if turn.done() and not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give a place that became free to the first request that still waits."""
        with self._lock:
            while self._queue:
                turn = self._queue.popleft()
                with suppress(RuntimeError):  # its loop was closed, so nothing waits there
                    turn.get_loop().call_soon_threadsafe(self._grant, turn)
                    return
            self._num_free += 1

    def _grant(self, turn: asyncio.Future[None]) -> None:
        """Runs in the loop of the request that waits."""
        if turn.done():  # cancelled meanwhile
            self._pass_on()
        else:
            turn.set_result(None)
