"""Further attempts of a request that failed: only if one may succeed, after growing, random waits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from seer.errors import EngineError

if TYPE_CHECKING:
    from tenacity import RetryCallState

_Result = TypeVar("_Result")
MAX_BACKOFF_S = 60.0


@dataclass(frozen=True)
class Retries:
    """The policy: at most `attempts` in all. The first wait is up to `backoff_s`, and the limit doubles with each."""

    attempts: int
    backoff_s: float

    async def run(self, work: Callable[[], Awaitable[_Result]]) -> _Result:
        """The result of `work`, attempted again after a retryable error. Raises the last attempt's EngineError.

        The wait that the server requests is added to the random one, so clients do not return all at once.
        """
        # The first attempt nearly always succeeds, and the overhead of tenacity is as large as that of a whole call.
        try:
            return await work()
        except EngineError as error:
            if not error.retryable or self.attempts <= 1:
                raise
            first = error
        await asyncio.sleep(first.retry_after_s + self.backoff_s * random.random())
        return await self._further(work)

    async def _further(self, work: Callable[[], Awaitable[_Result]]) -> _Result:
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

        spread = wait_random_exponential(multiplier=2 * self.backoff_s, max=MAX_BACKOFF_S)

        def wait(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            return (error.retry_after_s if isinstance(error, EngineError) else 0.0) + spread(state)

        retrying = AsyncRetrying(
            stop=stop_after_attempt(self.attempts - 1),
            wait=wait,
            retry=retry_if_exception(lambda error: isinstance(error, EngineError) and error.retryable),
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                return await work()
        raise AssertionError("tenacity re-raises the last failure")
