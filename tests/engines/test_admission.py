"""The limit of requests that run and wait, from one event loop and from several."""

from __future__ import annotations

import asyncio

import pytest

from seer.engines.admission import Admission
from seer.errors import EngineBusy


def test_requests_enter_in_the_order_of_their_arrival():
    entered: list[int] = []

    async def work(admission: Admission, number: int) -> None:
        async with admission.enter():
            entered.append(number)
            await asyncio.sleep(0)

    async def run() -> None:
        admission = Admission(2, 10)
        await asyncio.gather(*(work(admission, number) for number in range(8)))
        assert (admission.under_way, admission.waiting) == (0, 0)

    asyncio.run(run())
    assert entered == list(range(8))


def test_request_beyond_those_that_may_wait_is_refused():
    async def run() -> None:
        admission = Admission(1, 1)
        async with admission.enter():
            waiting = asyncio.create_task(admission.enter().__aenter__())
            await asyncio.sleep(0)
            assert (admission.under_way, admission.waiting) == (2, 1)
            with pytest.raises(EngineBusy, match="2 requests are running or waiting"):
                await admission.enter().__aenter__()
            waiting.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("granted", [False, True], ids=["while it waits", "in the moment of its turn"])
def test_cancelled_request_gives_its_place_to_the_next(granted):
    async def enter(admission: Admission) -> str:
        async with admission.enter():
            return "entered"

    async def run() -> None:
        admission = Admission(1, 10)
        first = admission.enter()
        await first.__aenter__()
        cancelled, other = asyncio.create_task(enter(admission)), asyncio.create_task(enter(admission))
        await asyncio.sleep(0)
        if not granted:
            cancelled.cancel()
        await first.__aexit__(None, None, None)
        if granted:
            # the turn is granted in the next round of the loop, just before the task would resume
            asyncio.get_running_loop().call_soon(cancelled.cancel)
        assert await asyncio.wait_for(other, 10) == "entered"
        assert cancelled.cancelled()
        assert admission.under_way == 0
        async with asyncio.timeout(10), admission.enter():  # the place was not lost
            pass

    asyncio.run(run())


def test_request_of_a_closed_loop_does_not_keep_its_place():
    admission = Admission(1, 10)

    async def hold_and_wait() -> None:
        await admission.enter().__aenter__()
        asyncio.create_task(admission.enter().__aenter__())  # noqa: RUF006
        await asyncio.sleep(0)

    asyncio.run(hold_and_wait())  # cancels the one that waits; the first is never left
    admission._pass_on()

    async def enter() -> None:
        async with asyncio.timeout(10), admission.enter():
            pass

    asyncio.run(enter())
