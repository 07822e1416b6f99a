"""A build: sources in, finished sets of trajectories out.

    report = build(config)

    OUT/
      config.toml            the resolved configuration
      train/                 a shard set (seer.shards.reader); its manifest is written last
      validation/            where a share of documents is set apart
      iso_control/train/     other forms, where asked for
      stats.json             what became of every record, by source, stage and reason
      README.md              the data set card
      ledger.jsonl           every finished teacher call, so that none is made twice

A build may be killed at any moment and run again. What is written depends on the configuration, the sources and the
teachers' replies alone: an undisturbed run gives the same bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from data_pipeline.collect import STATISTICS_NAME, BuildReport, Collector, set_folders
from data_pipeline.records import Outcome, Sample
from data_pipeline.settings import BuildConfig
from data_pipeline.steps.paging import Paginate
from data_pipeline.steps.prepare import Item, Preparation
from data_pipeline.steps.process import Process, Tools, outcome_of
from data_pipeline.tally import Tally
from seer.config import write_config
from seer.errors import InputError
from seer.shards.reader import MANIFEST_NAME, read_manifest
from seer.storage import folder_lock
from seer.teaching.ledger import BudgetReached, Spending

OnProgress = Callable[[Tally, int, Spending | None], None]
"""Told of every outcome: counts so far, source rows read, what teachers have cost."""
LOCK_NAME = "build.lock"
MAX_SAMPLES_AT_ONCE = 512
SAMPLES_PER_CALL_AT_ONCE = 2
"""Enough samples to keep every teacher busy; more would only leave more of them half done when a budget ends."""
MAX_CHARS_AT_ONCE = 64 << 20


def build(
    config: BuildConfig,
    *,
    force: bool = False,
    runner: Literal["local", "ray"] = "local",
    workers: int = 2,
    paginate: Paginate | None = None,
    on_progress: OnProgress | None = None,
) -> BuildReport:
    """Run a build to its end, or find that it already ended.

    `runner` ray spreads the steps over `workers` processes of Ray; the bytes written are the same. Raises ConfigError,
    InputError (nothing to read, nothing kept, a finished build of another configuration in `out`), BuildStopped (too
    many faults, a teacher that cannot be used), BudgetReached.
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
        if runner == "ray":
            from data_pipeline.ray_runner import run_ray

            for outcome in run_ray(preparation, config, workers, paginate):
                collector.add(outcome)
                if on_progress:
                    on_progress(collector.tally, preparation.rows_read, None)
        else:
            with asyncio.Runner(loop_factory=_loop_factory()) as loop:
                loop.run(_collect(preparation, collector, paginate, on_progress))
        return collector.finish(digest, preparation.report())


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other builds out of a folder; ends with the process at the latest, however it ends."""
    with folder_lock(folder, LOCK_NAME):
        yield


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed: many short calls cost less there."""
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
        async for outcome in run_local(preparation, tools.process(paginate)):
            collector.add(outcome)
            if on_progress:
                on_progress(collector.tally, preparation.rows_read, tools.ledger.spent if tools.ledger else None)
    finally:
        await tools.close()


async def run_local(items: Iterable[Item], process: Process) -> AsyncIterator[Outcome]:
    """Process many samples at once in this process; outcomes come in the order of the items.

    How many stand open at a time is bounded in number and in characters, so memory is too.
    """
    running: deque[tuple[asyncio.Task[Outcome], int]] = deque()
    most = samples_at_once(process.config)
    if most == 1:
        for item in items:
            yield await outcome_of(item, process)
        return
    open_chars = 0
    try:
        for item in items:
            size = len(item.context) if isinstance(item, Sample) else 0
            running.append((asyncio.ensure_future(outcome_of(item, process)), size))
            open_chars += size
            while len(running) >= most or open_chars > MAX_CHARS_AT_ONCE:
                task, size = running.popleft()
                open_chars -= size
                yield await task
        while running:
            yield await running.popleft()[0]
    except BudgetReached:
        # no new call is made any more; those on their way are paid for, so their replies are waited for and kept
        await asyncio.gather(*(task for task, _ in running), return_exceptions=True)
        raise
    finally:
        for task, _ in running:
            task.cancel()


def samples_at_once(config: BuildConfig) -> int:
    """How many samples to keep open: twice what the busiest teacher may be asked at once; one without teachers."""
    phases = (config.judge, config.reason)
    asked = [phase.teacher.concurrency for phase in phases if phase.kind == "teacher" and phase.teacher is not None]
    return min(MAX_SAMPLES_AT_ONCE, SAMPLES_PER_CALL_AT_ONCE * max(asked)) if asked else 1


def config_digest(config: BuildConfig) -> str:
    """Identifies what a build would write: every setting but the place it is written to."""
    return hashlib.sha256(config.model_dump_json(exclude={"out"}).encode()).hexdigest()[:16]


def _finished(out: Path, digest: str, force: bool) -> BuildReport | None:
    """The report of a build that ended here before, where it is the same build."""
    folders = [folder for folder in set_folders(out) if (folder / MANIFEST_NAME).exists()]
    if not folders or force:
        return None
    sets = {str(folder.relative_to(out)): read_manifest(folder) for folder in folders}
    if any(manifest.meta.get("config_digest") != digest for manifest in sets.values()):
        raise InputError(
            f"'{out}' holds a finished build of another configuration; choose another `out`, or use --force"
        )
    try:
        body = (out / STATISTICS_NAME).read_bytes()
        statistics = json.loads(body)
    except (OSError, ValueError):
        return None
    # manifests are written one after another, after the statistics that name them all
    whole = statistics.get("sets") == sorted(sets)
    unchanged = all(m.meta.get("stats_sha256") == hashlib.sha256(body).hexdigest() for m in sets.values())
    return BuildReport(out, sets, statistics, "", already_built=True) if whole and unchanged else None
