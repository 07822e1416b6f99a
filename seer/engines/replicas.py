"""Several addresses as one engine: a conversation stays where its cache is, and moves on when that place fails.

The first stage goes to the least busy replica, the second to the same one. A replica that failed is left alone for a
while; the conversation is sent elsewhere, where its first stage is simply computed again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from seer.engines.base import BoundedEngine, ConcurrentEngine, Engine, Generation, Request, generate_all
from seer.schema import Page

_Result = TypeVar("_Result")
REST_S = 10.0
"""How long a replica that failed gets no new conversation."""


class Replica(Engine, ConcurrentEngine, BoundedEngine, Protocol):
    def close(self) -> None: ...


class ReplicatedEngine:
    """Engines of one model at several addresses."""

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
        """Ask the conversation's replica; where it fails and another is up, ask that one once."""
        first = self._place(request.session)
        said = await self._ask(first, request)
        if not said.retryable:
            return said
        self._resting_until[first] = self._clock() + REST_S
        if request.on_text is not None:  # streamed text cannot be taken back
            return said
        self._home.pop(request.session, None)
        second = self._place(request.session)
        return said if second == first else await self._ask(second, request)

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
        resting = sum(until > self._clock() for until in self._resting_until)
        return "every replica failed a moment ago" if resting == len(self.replicas) else ""

    def close(self) -> None:
        for replica in self.replicas:
            replica.close()

    def _place(self, conversation: str) -> int:
        """Where the conversation is at home; else the least busy replica, one that rests only where all do."""
        if conversation not in self._home:
            now = self._clock()
            self._home[conversation] = min(
                range(len(self.replicas)), key=lambda k: (self._resting_until[k] > now, self._under_way[k], k)
            )
        return self._home[conversation]

    async def _ask(self, place: int, request: Request) -> Generation:
        self._under_way[place] += 1
        try:
            return await self.replicas[place].generate_one(request)
        finally:
            self._under_way[place] -= 1
