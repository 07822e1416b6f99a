"""Back-pressure: a number of requests run, a number more wait, further ones are refused at once."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress

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

    def enter(self) -> Place:
        """A context for one request: its block runs once there is room. Entering it raises EngineBusy if as many
        requests wait as are allowed.
        """
        return Place(self)

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

    def _leave(self) -> None:
        with self._lock:
            self.under_way -= 1


class Place:
    """One request's place. A class, because an asynchronous generator costs several times as much for each request."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    async def __aenter__(self) -> None:
        turn = self._admission._arrive()
        if turn is None:
            return
        try:
            await self._admission._wait(turn)
        except BaseException:
            self._admission._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._admission._pass_on()
        self._admission._leave()
