"""Several servers of one model as one engine: a session stays with the replica that holds its cache.

The first stage goes to the least busy replica, the second stage to the same one. A replica that fails gets no new
sessions for a while; its session moves to another replica, which computes the first stage again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from seer.engines.base import BoundedEngine, ConcurrentEngine, Engine, Generation, Request, generate_all
from seer.schema import Page

_Result = TypeVar("_Result")
REST_S = 10.0
"""How long a replica that failed gets no new session."""


class Replica(Engine, ConcurrentEngine, BoundedEngine, Protocol):
    """What a replica must offer."""

    def close(self) -> None:
        """Release what the engine holds."""
        ...


class ReplicatedEngine:
    """Distributes sessions over engines of one model."""

    name = "openai"

    def __init__(self, replicas: Sequence[Replica], clock: Callable[[], float] = time.monotonic) -> None:
        assert replicas
        self.replicas = list(replicas)
        self.encoder = self.replicas[0].encoder
        self.constrains = all(replica.constrains for replica in self.replicas)
        self.max_positions = min(replica.max_positions for replica in self.replicas)
        self.max_concurrent = sum(replica.max_concurrent for replica in self.replicas)
        self._clock = clock
        self._home: dict[str, int] = {}
        self._under_way = [0] * len(self.replicas)
        self._resting_until = [0.0] * len(self.replicas)

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        return self.run(generate_all(self, requests))

    async def generate_one(self, request: Request) -> Generation:
        """Ask the replica of the session; if it fails and another is available, ask that one once."""
        first = self._place(request.session)
        reply = await self._ask(first, request)
        if not reply.retryable:
            return reply
        self._resting_until[first] = self._clock() + REST_S
        if request.on_text is not None:  # streamed text cannot be taken back
            return reply
        self._home.pop(request.session, None)
        second = self._place(request.session)
        return reply if second == first else await self._ask(second, request)

    @property
    def max_picture_bytes(self) -> int:
        return min(replica.max_picture_bytes for replica in self.replicas)

    def picture_bytes(self, session: str, pages: Sequence[Page]) -> list[int]:
        return self.replicas[0].picture_bytes(session, pages)

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return self.replicas[0].run(work)

    def forget(self, session: str) -> None:
        self._home.pop(session, None)
        for replica in self.replicas:
            replica.forget(session)

    def trouble(self) -> str:
        """The reason why no request can be served; "" if a replica is available."""
        resting = sum(until > self._clock() for until in self._resting_until)
        return "every replica failed within the last seconds" if resting == len(self.replicas) else ""

    def close(self) -> None:
        for replica in self.replicas:
            replica.close()

    def _place(self, session: str) -> int:
        """The replica of the session, else the least busy one; one that failed recently only if all did."""
        if session not in self._home:
            now = self._clock()
            self._home[session] = min(
                range(len(self.replicas)), key=lambda k: (self._resting_until[k] > now, self._under_way[k], k)
            )
        return self._home[session]

    async def _ask(self, place: int, request: Request) -> Generation:
        self._under_way[place] += 1
        try:
            return await self.replicas[place].generate_one(request)
        finally:
            self._under_way[place] -= 1
