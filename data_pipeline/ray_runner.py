"""The build's middle part over Ray: the same steps, spread over processes or machines; the same bytes out.

Preparation runs here, in order, and hands its items on in batches; `Worker`s, which keep teachers and event loop between
batches, process them; their outcomes come back in the items' order and go to the same collector as ever. A batch is
prepared while others are processed. Over several machines, the build's folder must be one that all of them see.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_pipeline.records import Outcome, Sample
from data_pipeline.settings import BudgetSpec, BuildConfig
from data_pipeline.steps.paging import Paginate
from data_pipeline.steps.prepare import Item, batches
from data_pipeline.steps.process import LEDGER_NAME, Tools, outcome_of
from data_pipeline.tally import BuildStopped
from seer.errors import InputError
from seer.teaching.ledger import BudgetReached, Ledger
from seer.teaching.settings import TeacherSpec

_BATCH_ITEMS, _BATCH_CHARS = 256, 1 << 20
_BATCHES_PER_WORKER = 2
"""One in work, one at hand."""
_BATCHES_AHEAD = 4
"""How many batches for each worker may be done before an earlier one; more would only take memory."""
STOPPED = (BuildStopped, BudgetReached)
"""What ends a build early, and goes back from a worker in the place of an outcome."""


def run_ray(items: Iterable[Item], config: BuildConfig, workers: int, paginate: Paginate | None) -> Iterator[Outcome]:
    """Outcomes of all items, in order. Starts a local Ray where none runs. Raises BuildStopped as the local runner does."""
    # the lock is held here for the whole run; workers append to the same file
    ledger = Ledger(Path(config.out) / LEDGER_NAME) if _asks_teachers(config) else None
    try:
        _start_ray(workers)
        mine = _share_of_worker(config, workers, ledger)
        with Crew(workers, mine.model_dump_json(), paginate) as crew:
            for outcome in crew.map(batches(items, _BATCH_ITEMS, _BATCH_CHARS)):
                if isinstance(outcome, BaseException):
                    raise outcome
                yield outcome
    finally:
        if ledger is not None:
            ledger.close()


class Crew:
    """The workers of one run; they end with it."""

    def __init__(self, workers: int, *arguments: Any) -> None:
        import ray

        self._ray = ray
        start = ray.remote(Worker).options(num_cpus=1)
        self._load: dict[Any, int] = {start.remote(*arguments): 0 for _ in range(workers)}
        """How many batches each worker has not finished, as far as is known."""
        self._open: dict[Any, Any] = {}
        """Which worker has which batch."""

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._load:
            self._ray.kill(worker)

    def map(self, batches: Iterable[Sequence[Item]]) -> Iterator[Outcome | BaseException]:
        """What becomes of each item, in order. A batch is prepared, and taken in, while others are processed."""
        ahead = _BATCHES_AHEAD * len(self._load)
        waiting: deque[tuple[Any, Sequence[Item]]] = deque()
        for batch in batches:
            worker = self._next_worker()
            told = worker.process.remote(batch)
            self._load[worker] += 1
            self._open[told] = worker
            waiting.append((told, batch))
            while waiting and (len(waiting) >= ahead or waiting[0][0] not in self._open):
                yield from self._take(*waiting.popleft())
        while waiting:
            yield from self._take(*waiting.popleft())

    def _next_worker(self) -> Any:
        """The worker with least to do, once it has room."""
        worker = min(self._load, key=lambda one: self._load[one])
        while self._load[worker] >= _BATCHES_PER_WORKER:
            (done,), _ = self._ray.wait(list(self._open))
            worker = self._open.pop(done)
            self._load[worker] -= 1
        return worker

    def _take(self, told: Any, batch: Sequence[Item]) -> Iterator[Outcome | BaseException]:
        for item, outcome in zip(batch, self._ray.get(told), strict=True):
            yield with_source(outcome, item.context) if isinstance(item, Sample) else outcome


def _asks_teachers(config: BuildConfig) -> bool:
    return "teacher" in (config.judge.kind, config.reason.kind)


def _start_ray(workers: int) -> None:
    """Join the Ray that runs, or start one here. Raises InputError where it has too few CPUs."""
    import ray

    if not ray.is_initialized():
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    cpus = int(ray.cluster_resources().get("CPU", 0))
    if cpus < workers:
        raise InputError(
            f"Ray has {cpus} CPUs for {workers} workers; ask for fewer workers, or start Ray with more CPUs"
        )


def _share_of_worker(config: BuildConfig, workers: int, ledger: Ledger | None) -> BuildConfig:
    """The configuration of one worker: its share of the concurrency and of what is left of the budget."""

    def teacher(spec: TeacherSpec | None) -> TeacherSpec | None:
        return spec and spec.model_copy(update={"concurrency": max(1, spec.concurrency // workers)})

    def share(limit: float, spent: float) -> float:
        # a worker counts what the ledger holds already, then what it spends itself
        return limit and spent + max(0.0, limit - spent) / workers

    budget = config.budget
    if ledger is not None:
        spent = ledger.spent
        budget = BudgetSpec(
            # at least 1, since 0 means no limit; a spent budget stays spent
            max_calls=budget.max_calls and max(1, int(share(budget.max_calls, spent.calls))),
            max_tokens=budget.max_tokens and max(1, int(share(budget.max_tokens, spent.tokens))),
            max_usd=share(budget.max_usd, spent.usd),
            then=budget.then,
        )
    return config.model_copy(
        update={
            "budget": budget,
            "judge": config.judge.model_copy(update={"teacher": teacher(config.judge.teacher)}),
            "reason": config.reason.model_copy(update={"teacher": teacher(config.reason.teacher)}),
        }
    )


class Worker:
    """Processes batches of items in one of Ray's processes."""

    def __init__(self, config_json: str, paginate: Paginate | None) -> None:
        self._tools = Tools(BuildConfig.model_validate_json(config_json), shared_ledger=True)
        self._process = self._tools.process(paginate)
        self._loop = asyncio.new_event_loop()

    def process(self, items: Sequence[Item]) -> list[Outcome | BaseException]:
        """What becomes of each item, without the text that it came with; what ends the build stands in its place."""

        async def run() -> list[Outcome | BaseException]:
            return await asyncio.gather(*(outcome_of(item, self._process) for item in items), return_exceptions=True)

        outcomes = self._loop.run_until_complete(run())
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, STOPPED):
                raise outcome
        return [with_source(outcome, "") for outcome in outcomes]


def with_source(outcome: Outcome | BaseException, source: str) -> Outcome | BaseException:
    """The outcome with the document's text in its trajectories, or without. Who sent a long text to a worker has it, and
    need not be sent it back."""
    if isinstance(outcome, BaseException) or not outcome.trajectories:
        return outcome
    told = {form: one.model_copy(update={"source": source}) for form, one in outcome.trajectories.items()}
    return replace(outcome, trajectories=told)
