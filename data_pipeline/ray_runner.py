"""The build's middle part over Ray Data: the same steps, spread over processes or machines; the same bytes out.

Preparation (in order, in one process) writes its items to Parquet; Ray maps the files through `Worker`s, which keep
teachers and event loop between files; outcomes come back in the items' order and go to the same collector as ever. Items
and outcomes travel pickled: only this build's own processes write and read them. Over several machines, the build's
folder must be one that all of them see.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_pipeline.paging import Paginate
from data_pipeline.prepare import Item
from data_pipeline.process import LEDGER_NAME, Tools
from data_pipeline.records import Outcome
from data_pipeline.settings import BudgetSpec, BuildConfig
from data_pipeline.tally import BuildStopped
from seer.errors import InputError
from seer.teaching.ledger import BudgetReached, Ledger
from seer.teaching.settings import TeacherSpec

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_ITEMS_PER_FILE = 256
_BYTES_PER_FILE = 2 << 20
_WORK_FOLDER = "work"
STOPPED = (BuildStopped, BudgetReached)
"""What ends a build early, and goes back from a worker in the place of an outcome."""


def run_ray(items: Iterable[Item], config: BuildConfig, workers: int, paginate: Paginate | None) -> Iterator[Outcome]:
    """Outcomes of all items, in order. Starts a local Ray where none runs. Raises BuildStopped as the local runner does."""
    import ray

    work = Path(config.out).resolve() / _WORK_FOLDER
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    # the lock is held here for the whole run; workers append to the same file
    ledger = Ledger(Path(config.out) / LEDGER_NAME) if _asks_teachers(config) else None
    try:
        files = _write_items(items, work)
        if not files:
            return
        _start_ray(workers)
        context = ray.data.DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        mine = _share_of_worker(config, workers, ledger)
        # a block for each file, so that files spread over the workers; a worker reads its file itself
        paths = [{"path": str(path)} for path in files]
        dataset = ray.data.from_items(paths, override_num_blocks=len(paths)).map_batches(
            Worker,
            fn_constructor_args=(mine.model_dump_json(), paginate),
            batch_size=1,
            batch_format="numpy",
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_cpus=1,
        )
        tables: Iterable[Any] = dataset.iter_batches(batch_size=None, batch_format="pyarrow")
        expected = 0
        for table in tables:
            for index, told in zip(table["index"].to_pylist(), table["outcome"].to_pylist(), strict=True):
                assert index == expected, f"item {index} came where {expected} was due"
                expected += 1
                outcome = pickle.loads(told)
                if isinstance(outcome, STOPPED):
                    raise outcome
                yield outcome
    finally:
        if ledger is not None:
            ledger.close()
        shutil.rmtree(work, ignore_errors=True)


def _asks_teachers(config: BuildConfig) -> bool:
    return "teacher" in (config.judge.kind, config.reason.kind)


def _write_items(items: Iterable[Item], work: Path) -> list[Path]:
    """Write the items, many files of moderate size, since a file is what goes to a worker; returns the files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("index", pa.int64()), ("item", pa.large_binary())])
    index = size = 0
    files: list[Path] = []
    waiting: list[bytes] = []

    def flush() -> None:
        nonlocal size
        numbers = range(index - len(waiting), index)
        table = pa.table({"index": list(numbers), "item": waiting}, schema=schema)
        files.append(work / f"items-{len(files):08d}.parquet")
        # read once, on the same disk: neither pays for itself
        pq.write_table(table, files[-1], compression="none", use_dictionary=False)
        size = 0
        waiting.clear()

    for item in items:
        waiting.append(pickle.dumps(item))
        size += len(waiting[-1])
        index += 1
        if len(waiting) >= _ITEMS_PER_FILE or size >= _BYTES_PER_FILE:
            flush()
    if waiting:
        flush()
    return files


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

    def __call__(self, batch: dict[str, np.ndarray[Any, Any]]) -> pa.Table:
        """Process the items of the file named in `batch`; one row for each item comes back."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from data_pipeline.build import outcome_of

        (path,) = batch["path"]
        table = pq.read_table(str(path))
        items = [pickle.loads(item) for item in table["item"].to_pylist()]

        async def run() -> list[Outcome | BaseException]:
            return await asyncio.gather(*(outcome_of(item, self._process) for item in items), return_exceptions=True)

        outcomes = self._loop.run_until_complete(run())
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, STOPPED):
                raise outcome
        told = pa.array([pickle.dumps(outcome) for outcome in outcomes], pa.large_binary())
        # a table: out of lists Ray would make arrays in which each text takes the room of the longest
        return pa.table({"index": table["index"], "outcome": told})
