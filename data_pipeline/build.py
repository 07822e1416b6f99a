"""A build: sources in, finished sets of trajectories out.

    report = build(config)

    OUT/
      config.toml            the resolved configuration
      train/                 a shard set (seer.shards); its manifest is written last
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
import hashlib
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_pipeline.paging import Paginate
from data_pipeline.prepare import Item, prepare
from data_pipeline.process import Process, make_process
from data_pipeline.records import Outcome, Rejection, Sample
from data_pipeline.settings import BuildConfig
from data_pipeline.tally import BuildStopped, Tally
from seer.config import write_config
from seer.errors import InputError
from seer.shards import MANIFEST_NAME, Manifest, ShardWriter, read_manifest, write_whole

OnProgress = Callable[[Tally], None]


@dataclass(frozen=True)
class BuildReport:
    """What a build wrote."""

    out: Path
    sets: dict[str, Manifest]
    """By folder, relative to `out`: train, validation, iso_control/train, ..."""
    statistics: dict[str, Any]
    table: str
    already_built: bool = False


def build(
    config: BuildConfig,
    *,
    force: bool = False,
    paginate: Paginate | None = None,
    on_progress: OnProgress | None = None,
) -> BuildReport:
    """Run a build to its end, or find that it already ended.

    Raises ConfigError, InputError (nothing to read, nothing kept, a finished build of another configuration in `out`),
    BuildStopped (too many faults, or the budget).
    """
    out = Path(config.out)
    digest = config_digest(config)
    finished = _finished(out, digest, force)
    if finished is not None:
        return finished
    out.mkdir(parents=True, exist_ok=True)
    write_config(config, out / "config.toml")
    tally = Tally(config.max_fault_share)
    process = make_process(config, paginate)
    outcomes = run_local(prepare(config), process)
    with Collector(config, tally) as collector:
        asyncio.run(_collect(outcomes, collector, on_progress))
        return collector.finish(digest)


async def _collect(outcomes: AsyncIterator[Outcome], collector: Collector, on_progress: OnProgress | None) -> None:
    async for outcome in outcomes:
        collector.add(outcome)
        if on_progress:
            on_progress(collector.tally)


async def run_local(items: Iterable[Item], process: Process, window: int = 512) -> AsyncIterator[Outcome]:
    """Process up to `window` samples at once in this process; outcomes come in the order of the items."""
    running: deque[asyncio.Task[Outcome] | Outcome] = deque()
    try:
        for item in items:
            running.append(asyncio.ensure_future(process(item)) if isinstance(item, Sample) else _rejected(item))
            while len(running) >= window:
                yield await _done(running.popleft())
        while running:
            yield await _done(running.popleft())
    finally:
        for task in running:
            if isinstance(task, asyncio.Task):
                task.cancel()


async def _done(item: asyncio.Task[Outcome] | Outcome) -> Outcome:
    return item if isinstance(item, Outcome) else await item


def _rejected(rejection: Rejection) -> Outcome:
    return Outcome(rejection.source, rejection.id, rejection)


class Collector:
    """Takes outcomes in order, writes what is kept, counts the rest."""

    def __init__(self, config: BuildConfig, tally: Tally) -> None:
        self.config, self.tally = config, tally
        self._out = Path(config.out)
        self._writers: dict[str, ShardWriter] = {}
        self._stack = ExitStack()
        self._reserves = 0
        for stale in _set_folders(self._out):
            (stale / MANIFEST_NAME).unlink(missing_ok=True)

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, outcome: Outcome) -> None:
        written = outcome.rejection is None and self._admits(outcome)
        if written:
            for form, trajectory in outcome.trajectories.items():
                self._writer(form, outcome.split).add(trajectory)
        self.tally.add(outcome, written)

    def finish(self, digest: str) -> BuildReport:
        """Write statistics and card, then the manifests. Raises InputError where nothing was kept."""
        self.tally.check_faults()
        table = self.tally.table()
        if not self.tally.written:
            raise InputError(f"no record of {self.tally.records} was kept; see why below\n{table}")
        statistics = self.tally.statistics()
        body = json.dumps(statistics, indent=2, ensure_ascii=False).encode() + b"\n"
        write_whole(self._out / "stats.json", body)
        meta = {"config_digest": digest, "stats_sha256": hashlib.sha256(body).hexdigest()}
        sets = {name: writer.finish(meta) for name, writer in sorted(self._writers.items())}
        return BuildReport(self._out, sets, statistics, table)

    def _admits(self, outcome: Outcome) -> bool:
        """Reserves are admitted up to their share of what was written before them."""
        if not outcome.reserve:
            return True
        share = self.config.assemble.distributed_share
        admitted = self._reserves + 1 <= share * (self.tally.written + 1)
        self._reserves += admitted
        return admitted

    def _writer(self, form: str, split: str) -> ShardWriter:
        name = split if form == "select" else f"{form}/{split}"
        if name not in self._writers:
            writer = ShardWriter(self._out / name, self.config.rows_per_shard, overwrite=True)
            self._writers[name] = self._stack.enter_context(writer)
        return self._writers[name]


def config_digest(config: BuildConfig) -> str:
    """Identifies what a build would write: every setting but the place it is written to."""
    return hashlib.sha256(config.model_dump_json(exclude={"out"}).encode()).hexdigest()[:16]


def _set_folders(out: Path) -> Iterator[Path]:
    for pattern in ("train", "validation", "*/train", "*/validation"):
        yield from sorted(out.glob(pattern))


def _finished(out: Path, digest: str, force: bool) -> BuildReport | None:
    """The report of a build that ended here before, where it is the same build."""
    folders = [folder for folder in _set_folders(out) if (folder / MANIFEST_NAME).exists()]
    if not folders or force:
        return None
    sets = {str(folder.relative_to(out)): read_manifest(folder) for folder in folders}
    if any(manifest.meta.get("config_digest") != digest for manifest in sets.values()):
        raise InputError(
            f"'{out}' holds a finished build of another configuration; choose another `out`, or use --force"
        )
    try:
        statistics = json.loads((out / "stats.json").read_bytes())
    except (OSError, ValueError):
        return None
    return BuildReport(out, sets, statistics, "", already_built=True)


__all__ = ["BuildReport", "BuildStopped", "build", "config_digest"]
