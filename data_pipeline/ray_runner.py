"""Run the processing steps of a build in Ray: the same steps as the local runner, in several processes or machines.

The driver prepares items in order and sends them in batches to `Worker` actors, which keep their teachers and event loop
between batches. Outcomes return in the order of the items and go to the same collector as in a local build, so both
runners write the same bytes. The driver prepares a batch while workers process others. On several machines, the output
folder must be shared, because all workers append to the ledger in it.
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
"""One batch in progress and one queued, so that a worker never waits for the driver."""
_BATCHES_AHEAD = 4
"""Batches per worker that may finish before the oldest one; their outcomes wait in memory."""
STOPPED = (BuildStopped, BudgetReached)
"""Errors that end a build. A worker returns them in place of an outcome."""


def run_ray(items: Iterable[Item], config: BuildConfig, workers: int, paginate: Paginate | None) -> Iterator[Outcome]:
    """Process items in `workers` Ray actors and yield their outcomes in order.

    Starts a local Ray if none is running. Raises InputError if Ray has fewer CPUs than workers, and BuildStopped and
    BudgetReached in the same cases as the local runner.
    """
    # The driver holds the ledger's lock for the whole run; the workers open the same file as shared.
    ledger = Ledger(Path(config.out) / LEDGER_NAME) if _uses_teachers(config) else None
    try:
        _start_ray(workers)
        worker_config = _config_per_worker(config, workers, ledger)
        with Crew(workers, worker_config.model_dump_json(), paginate) as crew:
            for outcome in crew.map(batches(items, _BATCH_ITEMS, _BATCH_CHARS)):
                if isinstance(outcome, BaseException):
                    raise outcome
                yield outcome
    finally:
        if ledger is not None:
            ledger.close()


class Crew:
    """The Ray actors of one run; leaving the context kills them."""

    def __init__(self, workers: int, *arguments: Any) -> None:
        """Start `workers` actors of `Worker(*arguments)`."""
        import ray

        self._ray = ray
        start = ray.remote(Worker).options(num_cpus=1)
        self._load: dict[Any, int] = {start.remote(*arguments): 0 for _ in range(workers)}
        """Number of batches that each worker has not finished, as far as the driver knows."""
        self._open: dict[Any, Any] = {}
        """The worker of each unfinished batch, by the batch's result reference."""

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._load:
            self._ray.kill(worker)

    def map(self, batches: Iterable[Sequence[Item]]) -> Iterator[Outcome | BaseException]:
        """Yield the outcome of each item in order, or the error in `STOPPED` that it caused.

        Batches are drawn one at a time, whenever a worker has room.
        """
        max_waiting = _BATCHES_AHEAD * len(self._load)
        waiting: deque[tuple[Any, Sequence[Item]]] = deque()
        for batch in batches:
            worker = self._next_worker()
            reference = worker.process.remote(batch)
            self._load[worker] += 1
            self._open[reference] = worker
            waiting.append((reference, batch))
            # Yield finished batches from the front. An unfinished front batch blocks only if too many wait behind it.
            while waiting and (len(waiting) >= max_waiting or waiting[0][0] not in self._open):
                yield from self._outcomes(*waiting.popleft())
        while waiting:
            yield from self._outcomes(*waiting.popleft())

    def _next_worker(self) -> Any:
        """Return the least loaded worker, after waiting until a worker has room."""
        worker = min(self._load, key=lambda one: self._load[one])
        # If even the least loaded worker is full, the first worker to finish a batch has room next.
        while self._load[worker] >= _BATCHES_PER_WORKER:
            (done,), _ = self._ray.wait(list(self._open))
            worker = self._open.pop(done)
            self._load[worker] -= 1
        return worker

    def _outcomes(self, reference: Any, batch: Sequence[Item]) -> Iterator[Outcome | BaseException]:
        for item, outcome in zip(batch, self._ray.get(reference), strict=True):
            yield with_source(outcome, item.context) if isinstance(item, Sample) else outcome


def _uses_teachers(config: BuildConfig) -> bool:
    return "teacher" in (config.judge.kind, config.reason.kind)


def _start_ray(workers: int) -> None:
    """Connect to the running Ray, or start a local one. Raises InputError if it has fewer CPUs than workers."""
    import ray

    if not ray.is_initialized():
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    cpus = int(ray.cluster_resources().get("CPU", 0))
    if cpus < workers:
        raise InputError(f"Ray has {cpus} CPUs for {workers} workers; reduce --workers, or start Ray with more CPUs")


def _config_per_worker(config: BuildConfig, workers: int, ledger: Ledger | None) -> BuildConfig:
    """Return the configuration of one worker: 1/`workers` of the concurrency and of the remaining budget."""

    def per_worker(spec: TeacherSpec | None) -> TeacherSpec | None:
        return spec and spec.model_copy(update={"concurrency": max(1, spec.concurrency // workers)})

    def limit_per_worker(limit: float, spent: float) -> float:
        # A worker's spending starts at the ledger's total, so its limit is that total plus its part of the rest.
        return limit and spent + max(0.0, limit - spent) / workers

    budget = config.budget
    if ledger is not None:
        spent = ledger.spent
        budget = BudgetSpec(
            # At least 1, because 0 means no limit: an exhausted budget must stay exhausted.
            max_calls=budget.max_calls and max(1, int(limit_per_worker(budget.max_calls, spent.calls))),
            max_tokens=budget.max_tokens and max(1, int(limit_per_worker(budget.max_tokens, spent.tokens))),
            max_usd=limit_per_worker(budget.max_usd, spent.usd),
            then=budget.then,
        )
    return config.model_copy(
        update={
            "budget": budget,
            "judge": config.judge.model_copy(update={"teacher": per_worker(config.judge.teacher)}),
            "reason": config.reason.model_copy(update={"teacher": per_worker(config.reason.teacher)}),
        }
    )


class Worker:
    """Processes batches of items in a Ray process."""

    def __init__(self, config_json: str, paginate: Paginate | None) -> None:
        self._tools = Tools(BuildConfig.model_validate_json(config_json), shared_ledger=True)
        self._process = self._tools.process(paginate)
        self._loop = asyncio.new_event_loop()

    def process(self, items: Sequence[Item]) -> list[Outcome | BaseException]:
        """Return the outcome of each item, without the document text, or the error in `STOPPED` that it caused.

        Raises any other exception of an item, after the whole batch has ended.
        """

        async def run() -> list[Outcome | BaseException]:
            # With return_exceptions, the remaining items of the batch finish and their replies reach the ledger.
            return await asyncio.gather(*(outcome_of(item, self._process) for item in items), return_exceptions=True)

        outcomes = self._loop.run_until_complete(run())
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, STOPPED):
                raise outcome
        return [with_source(outcome, "") for outcome in outcomes]


def with_source(outcome: Outcome | BaseException, source: str) -> Outcome | BaseException:
    """Replace the document text in the trajectories of an outcome.

    A worker removes the text before it returns an outcome, and the driver, which has the item, puts it back: a long
    document crosses the process boundary only once.
    """
    if isinstance(outcome, BaseException) or not outcome.trajectories:
        return outcome
    trajectories = {form: one.model_copy(update={"source": source}) for form, one in outcome.trajectories.items()}
    return replace(outcome, trajectories=trajectories)
