"""Back-pressure: a limited number of requests run, a limited number wait, further ones are refused at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from seer.errors import EngineBusy


class Admission:
    """Admits requests of one event loop. `under_way` counts those that run or wait."""

    def __init__(self, max_concurrent: int, max_waiting: int) -> None:
        self.max_concurrent, self.max_waiting = max_concurrent, max_waiting
        self.under_way = 0
        self._room = asyncio.Semaphore(max_concurrent)

    @property
    def waiting(self) -> int:
        """Requests that wait for others to end."""
        return max(0, self.under_way - self.max_concurrent)

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[None]:
        """Raises EngineBusy if as many requests wait as are allowed."""
        if self.under_way >= self.max_concurrent + self.max_waiting:
            raise EngineBusy(
                f"{self.under_way} requests are running or waiting, as many as are allowed; try again later"
            )
        self.under_way += 1
        try:
            async with self._room:
                yield
        finally:
            self.under_way -= 1
