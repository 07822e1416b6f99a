"""Build trajectory sets from question sets.

    report = build(config)

    OUT/
      config.toml            the resolved configuration
      train/                 a shard set (seer.shards.reader); its manifest is written last
      validation/            only if `validation_share` is above 0
      iso_control/train/     only if `assemble.forms` lists this form
      stats.json             the outcome of every record, counted by source, stage and reason
      README.md              the dataset card
      ledger.jsonl           every finished teacher call; a rerun reuses them

A build can be killed at any moment and run again. The bytes it writes depend only on the configuration, the sources and
the teachers' replies: an interrupted build and an uninterrupted one give the same sets.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal

from data_pipeline.collect import STATISTICS_NAME, BuildReport, Collector, output_folders
from data_pipeline.records import Outcome, Sample
from data_pipeline.settings import BuildConfig
from data_pipeline.steps.paging import Paginate
from data_pipeline.steps.prepare import Item, Preparation
from data_pipeline.steps.process import Process, Tools, outcome_of
from data_pipeline.tally import Tally
from seer.config import write_config
from seer.errors import InputError
from seer.shards.reader import MANIFEST_NAME, read_shard_manifest
from seer.storage import folder_lock
from seer.teaching.ledger import BudgetReached, Spending

OnProgress = Callable[[Tally, int, Spending | None], None]
"""Called after every outcome with the counts so far, the source rows read and the teachers' spending."""
LOCK_NAME = "build.lock"
MAX_SAMPLES_AT_ONCE = 512
SAMPLES_PER_CALL_AT_ONCE = 2
"""Two samples for each concurrent call keep every teacher busy. More would leave more samples unfinished when a budget
is reached."""
MAX_CHARS_AT_ONCE = 64 << 20
"""Context characters of all samples in flight."""


def build(
    config: BuildConfig,
    *,
    force: bool = False,
    runner: Literal["local", "ray"] = "local",
    workers: int = 2,
    paginate: Paginate | None = None,
    on_progress: OnProgress | None = None,
) -> BuildReport:
    """Run a build, or return the report of the finished one in `config.out`.

    Args:
        config: What to build; `config.out` is the output folder.
        force: Build again over a finished build.
        runner: `local` runs in this process, `ray` in `workers` Ray processes. Both write the same bytes.
        workers: Number of Ray processes.
        paginate: Replaces the layout of the configured page style, for measurements without a layout.
        on_progress: Called after every outcome.

    Raises ConfigError if a source or a split is invalid; InputError if a source cannot be read, no record was kept, or
    `out` holds a finished build of another configuration; BuildStopped if there are too many faults or a teacher is
    unusable; BudgetReached if the budget ends and `budget.then` is `stop`.
    """
    out = Path(config.out)
    digest = config_digest(config)
    finished = _finished(out, digest, force)
    if finished is not None:
        return finished
    preparation = Preparation(config)
    out.mkdir(parents=True, exist_ok=True)
    with locked(out), Collector(config) as collector:
        write_config(config, out / "config.toml")
        preparation.finished = collector.finished
        if runner == "ray":
            from data_pipeline.ray_runner import run_ray

            for outcome in run_ray(preparation, config, workers, paginate):
                if collector.add(outcome):
                    preparation.count(outcome)
                if on_progress:
                    on_progress(collector.tally, preparation.rows_read, None)
        else:
            with asyncio.Runner(loop_factory=_loop_factory()) as loop:
                loop.run(_collect(preparation, collector, paginate, on_progress))
        return collector.finish(digest, preparation.report())


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of an output folder; the operating system releases it if the process dies.

    Raises InputError if another build holds the lock.
    """
    with folder_lock(folder, LOCK_NAME):
        yield


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory if uvloop is installed: it spends less time on many short calls."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _collect(
    preparation: Preparation, collector: Collector, paginate: Paginate | None, on_progress: OnProgress | None
) -> None:
    tools = Tools(collector.config)
    try:
        async for outcome in run_local(preparation, tools.process(paginate), collector.finished):
            if collector.add(outcome):
                preparation.count(outcome)
            if on_progress:
                on_progress(collector.tally, preparation.rows_read, tools.ledger.spent if tools.ledger else None)
    finally:
        await tools.close()


async def run_local(
    items: Iterable[Item], process: Process, finished: Collection[str] = frozenset()
) -> AsyncIterator[Outcome]:
    """Process samples concurrently in this process and yield the outcomes in the order of the items.

    The samples in flight are bounded in number and in characters, which bounds memory. `finished` names the sources that
    need no more outcomes; the caller adds to it. Their samples in flight are cancelled. Raises what `process` raises.
    """
    running: deque[tuple[asyncio.Task[Outcome], Item]] = deque()
    max_running = samples_at_once(process.config)
    if max_running == 1:
        for item in items:
            if item.source not in finished:
                yield await outcome_of(item, process)
        return
    open_chars = cancelled_sources = 0
    try:
        for item in items:
            running.append((asyncio.ensure_future(outcome_of(item, process)), item))
            open_chars += _size(item)
            # Only the oldest task is awaited, so outcomes keep the order of the items.
            while len(running) >= max_running or open_chars > MAX_CHARS_AT_ONCE:
                open_chars -= _size(running[0][1])
                if (outcome := await _oldest(running, finished)) is not None:
                    yield outcome
                if len(finished) > cancelled_sources:
                    cancelled_sources = len(finished)
                    _cancel(task for task, other in running if other.source in finished)
        while running:
            if (outcome := await _oldest(running, finished)) is not None:
                yield outcome
    except BudgetReached:
        # No new call starts. The calls in flight are already paid for, so wait until the ledger has their replies.
        await asyncio.gather(*(task for task, _ in running), return_exceptions=True)
        raise
    finally:
        _cancel(task for task, _ in running)


async def _oldest(running: deque[tuple[asyncio.Task[Outcome], Item]], finished: Collection[str]) -> Outcome | None:
    """Remove the oldest task and return its outcome, or None if its source needs no more outcomes."""
    task, item = running.popleft()
    if item.source not in finished:
        return await task
    _cancel([task])
    # Wait until the calls of the task have ended, so that its replies are in the ledger or its connections are closed.
    await asyncio.gather(task, return_exceptions=True)
    return None


def _cancel(tasks: Iterable[asyncio.Task[Outcome]]) -> None:
    for task in tasks:
        task.cancel()


def _size(item: Item) -> int:
    return len(item.context) if isinstance(item, Sample) else 0


def samples_at_once(config: BuildConfig) -> int:
    """Return how many samples to keep in flight: twice the highest teacher concurrency, or 1 without teachers."""
    phases = (config.judge, config.reason)
    limits = [phase.teacher.concurrency for phase in phases if phase.kind == "teacher" and phase.teacher is not None]
    return min(MAX_SAMPLES_AT_ONCE, SAMPLES_PER_CALL_AT_ONCE * max(limits)) if limits else 1


def config_digest(config: BuildConfig) -> str:
    """Hash every setting except the output folder and the servers; builds with equal digests write equal bytes."""
    return hashlib.sha256(config.model_dump_json(exclude={"out", "serve"}).encode()).hexdigest()[:16]


def _finished(out: Path, digest: str, force: bool) -> BuildReport | None:
    """Return the report of a finished build with this digest in `out`; None if it must be built.

    Raises InputError if `out` holds a finished build of another configuration.
    """
    folders = [folder for folder in output_folders(out) if (folder / MANIFEST_NAME).exists()]
    if not folders or force:
        return None
    sets = {str(folder.relative_to(out)): read_shard_manifest(folder) for folder in folders}
    if any(manifest.meta.get("config_digest") != digest for manifest in sets.values()):
        raise InputError(
            f"'{out}' holds a finished build of another configuration; choose another `out`, or pass --force"
        )
    try:
        body = (out / STATISTICS_NAME).read_bytes()
        statistics = json.loads(body)
    except (OSError, ValueError):
        return None
    # Manifests are written one after another, after the statistics that list the sets: a crash in between leaves
    # some of the sets without a manifest.
    complete = statistics.get("sets") == sorted(sets)
    unchanged = all(m.meta.get("stats_sha256") == hashlib.sha256(body).hexdigest() for m in sets.values())
    return BuildReport(out, sets, statistics, "", already_built=True) if complete and unchanged else None
