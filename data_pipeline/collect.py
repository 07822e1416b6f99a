"""The last part of a build: outcomes in order become shards, statistics and the data set card."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data_pipeline.card import dataset_card
from data_pipeline.records import Outcome
from data_pipeline.settings import BuildConfig
from data_pipeline.tally import Tally
from seer.errors import InputError
from seer.schema import Trajectory
from seer.shards.reader import MANIFEST_NAME, Embed, Manifest, ShardWriter
from seer.storage import write_bytes, write_text

STATISTICS_NAME = "stats.json"
CARD_NAME = "README.md"


@dataclass(frozen=True)
class BuildReport:
    """What a build wrote."""

    out: Path
    sets: dict[str, Manifest]
    """By folder, relative to `out`: train, validation, iso_control/train, ..."""
    statistics: dict[str, Any]
    table: str
    already_built: bool = False


class Collector:
    """Takes outcomes in order, writes what is kept, counts the rest."""

    def __init__(self, config: BuildConfig) -> None:
        # what writes the shards takes its time to load: now, and not while teachers wait for their next calls
        import pyarrow.parquet  # noqa: F401

        self.config, self.tally = config, Tally(config.max_fault_share)
        self._out = Path(config.out)
        self._writers: dict[str, ShardWriter] = {}
        self._stack = ExitStack()
        self._reserves = 0
        self._tokens = TokenHistograms(config.count_tokens_of)
        for stale in set_folders(self._out):
            (stale / MANIFEST_NAME).unlink(missing_ok=True)

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, outcome: Outcome) -> None:
        """Take one outcome. Raises BuildStopped where faults pass their share."""
        if outcome.instead_of is not None and not self._admits_reserve():
            outcome = replace(outcome, rejection=outcome.instead_of, trajectories={})
        written = outcome.rejection is None
        if written:
            for form, trajectory in outcome.trajectories.items():
                self._writer(form, outcome.split).add(trajectory)
            self._tokens.add(next(iter(outcome.trajectories.values())), outcome.vision_tokens)
        self.tally.add(outcome, written)

    def finish(self, config_digest: str, guard: dict[str, Any] | None) -> BuildReport:
        """Write statistics and card, then the manifests. Raises InputError where nothing was kept."""
        self.tally.check_faults()
        table = self.tally.table()
        if not self.tally.written:
            raise InputError(f"no record of {self.tally.records} was kept; see why below\n{table}")
        statistics = {
            **self.tally.statistics(),
            "sets": sorted(self._writers),
            "guard": guard,
            "tokens": self._tokens.summary(),
        }
        body = json.dumps(statistics, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        write_bytes(self._out / STATISTICS_NAME, body)
        write_text(self._out / CARD_NAME, dataset_card(self.config, statistics))
        meta = {"config_digest": config_digest, "stats_sha256": hashlib.sha256(body).hexdigest()}
        sets = {name: writer.finish(meta) for name, writer in sorted(self._writers.items())}
        return BuildReport(self._out, sets, statistics, table)

    def _admits_reserve(self) -> bool:
        """Whether one more record told by the template stays within its share of what was written before."""
        admitted = self._reserves + 1 <= self.config.assemble.distributed_share * (self.tally.written + 1)
        self._reserves += admitted
        return admitted

    def _writer(self, form: str, split: str) -> ShardWriter:
        name = split if form == "select" else f"{form}/{split}"
        if name not in self._writers:
            embed: Embed | None = draw_pages if self.config.embed_pages else None
            writer = ShardWriter(self._out / name, self.config.rows_per_shard, embed=embed, overwrite=True)
            self._writers[name] = self._stack.enter_context(writer)
        return self._writers[name]


def draw_pages(trajectory: Trajectory) -> list[bytes]:
    """The pages of a trajectory as PNG."""
    from seer.rendering import png_bytes, render_text

    return [png_bytes(page.image()) for page in render_text(trajectory.source, trajectory.style).pages]


def set_folders(out: Path) -> Iterator[Path]:
    """Where a build keeps its sets."""
    for pattern in ("train", "validation", "*/train", "*/validation"):
        yield from sorted(path for path in out.glob(pattern) if path.is_dir())


class TokenHistograms:
    """Text tokens and vision tokens of the first records written, in powers of two."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.counted = 0
        self._totals = {"text": 0, "vision": 0}
        self._histograms: dict[str, Counter[int]] = {"text": Counter(), "vision": Counter()}

    def add(self, trajectory: Trajectory, vision_tokens: int) -> None:
        if self.counted >= self._limit:
            return
        from seer.models.counting import load_counter

        self.counted += 1
        for name, tokens in (("text", load_counter(None).count(trajectory.source)), ("vision", vision_tokens)):
            self._totals[name] += tokens
            self._histograms[name][tokens.bit_length()] += 1

    def summary(self) -> dict[str, Any] | None:
        """Totals and histograms, each bin named by its upper edge; None where nothing was counted."""
        if not self.counted:
            return None
        from seer.models.counting import load_counter

        histograms = {
            name: {f"<{1 << bits}": counts[bits] for bits in sorted(counts)}
            for name, counts in self._histograms.items()
        }
        return {"records": self.counted, "tokenizer": load_counter(None).name, "total": self._totals, **histograms}
