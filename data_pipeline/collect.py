"""The last stage of a build: turn outcomes, in order, into shards, statistics and the dataset card."""

from __future__ import annotations

import hashlib
import json
import math
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
    """The result of a build."""

    out: Path
    sets: dict[str, Manifest]
    """Manifests by folder relative to `out`: train, validation, iso_control/train, ..."""
    statistics: dict[str, Any]
    """The content of stats.json."""
    table: str
    """Retention and rejections as plain text; empty if the build already existed."""
    already_built: bool = False


class Collector:
    """Writes the kept trajectories to shards and counts every outcome.

    with Collector(config) as collector:
        collector.add(outcome)
        report = collector.finish(digest, guard_report)
    """

    def __init__(self, config: BuildConfig) -> None:
        """Remove the manifests of an earlier build in `config.out`: its sets are no longer complete."""
        # pyarrow takes long to import. Import it now rather than during the first write, when teachers would wait.
        import pyarrow.parquet  # noqa: F401

        self.config, self.tally = config, Tally(config.max_fault_share)
        self._out = Path(config.out)
        self._writers: dict[str, ShardWriter] = {}
        self._stack = ExitStack()
        self._template_records = 0
        self._excluded = {source.label for source in config.sources if not source.include}
        self._kept: Counter[str] = Counter()
        self._targets = {source.label: source.target for source in config.sources if source.target is not None}
        self.finished: set[str] = set()
        """Names of the sources that have reached their target; their further outcomes do not count."""
        self._tokens = TokenHistograms(config.count_tokens_of)
        for stale in output_folders(self._out):
            (stale / MANIFEST_NAME).unlink(missing_ok=True)

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, outcome: Outcome) -> bool:
        """Write or count one outcome, and return whether it counts.

        An outcome behind its source's target does not count: how many of them there are depends on how far the runner
        reads ahead. Raises BuildStopped if the fraction of faults exceeds `max_fault_share`.
        """
        if outcome.source in self.finished:
            return False
        # Outcomes arrive in order, so the decision about a template record does not depend on timing.
        if outcome.instead_of is not None and not self._admits_template_record():
            outcome = replace(outcome, rejection=outcome.instead_of, trajectories={})
        kept = outcome.rejection is None
        written = kept and outcome.source not in self._excluded
        if written:
            for form, trajectory in outcome.trajectories.items():
                self._writer(form, outcome.split).add(trajectory)
            self._tokens.add(next(iter(outcome.trajectories.values())), outcome.vision_tokens)
        self.tally.add(outcome, written)
        self._kept[outcome.source] += kept
        if self._kept[outcome.source] >= self._targets.get(outcome.source, math.inf):
            self.finished.add(outcome.source)
        return True

    def finish(self, config_digest: str, guard: dict[str, Any] | None) -> BuildReport:
        """Write the statistics and the card, then the manifests, which mark the sets as complete.

        `guard` is the report of the leakage guard. Raises InputError if no record was kept, BuildStopped if there are
        too many faults.
        """
        self.tally.check_faults()
        table = self.tally.table()
        if not self.tally.written:
            raise InputError(f"no record of {self.tally.records} was kept; the table lists the reasons\n{table}")
        statistics = {
            **self.tally.statistics(),
            "sets": sorted(self._writers),
            "guard": guard,
            **({"targets": self._targets} if self._targets else {}),
            "tokens": self._tokens.summary(),
        }
        # Each manifest holds the hash of the statistics, which ties the sets of one build together.
        body = json.dumps(statistics, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        write_bytes(self._out / STATISTICS_NAME, body)
        write_text(self._out / CARD_NAME, dataset_card(self.config, statistics))
        meta = {"config_digest": config_digest, "stats_sha256": hashlib.sha256(body).hexdigest()}
        sets = {name: writer.finish(meta) for name, writer in sorted(self._writers.items())}
        return BuildReport(self._out, sets, statistics, table)

    def _admits_template_record(self) -> bool:
        """Return whether one more template record stays within `distributed_share` of the records written so far."""
        admitted = self._template_records + 1 <= self.config.assemble.distributed_share * (self.tally.written + 1)
        self._template_records += admitted
        return admitted

    def _writer(self, form: str, split: str) -> ShardWriter:
        name = split if form == "select" else f"{form}/{split}"
        if name not in self._writers:
            embed: Embed | None = draw_pages if self.config.embed_pages else None
            writer = ShardWriter(self._out / name, self.config.rows_per_shard, embed=embed, overwrite=True)
            self._writers[name] = self._stack.enter_context(writer)
        return self._writers[name]


def draw_pages(trajectory: Trajectory) -> list[bytes]:
    """Draw the pages of a trajectory and return them as PNG files, in page order."""
    from seer.rendering import png_bytes, render_text

    return [png_bytes(page.image()) for page in render_text(trajectory.source, trajectory.style).pages]


def output_folders(out: Path) -> Iterator[Path]:
    """Yield the existing folders in which a build keeps its sets, finished or not."""
    for pattern in ("train", "validation", "*/train", "*/validation"):
        yield from sorted(path for path in out.glob(pattern) if path.is_dir())


class TokenHistograms:
    """Histograms of text and vision tokens of the first records written, with bins in powers of two."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.counted = 0
        self._totals = {"text": 0, "vision": 0}
        self._histograms: dict[str, Counter[int]] = {"text": Counter(), "vision": Counter()}

    def add(self, trajectory: Trajectory, vision_tokens: int) -> None:
        """Count one record, unless the limit is reached."""
        if self.counted >= self._limit:
            return
        from seer.models.counting import load_counter

        self.counted += 1
        for name, tokens in (("text", load_counter(None).count(trajectory.source)), ("vision", vision_tokens)):
            self._totals[name] += tokens
            self._histograms[name][tokens.bit_length()] += 1

    def summary(self) -> dict[str, Any] | None:
        """Return totals and histograms, each bin named by its upper edge; None if no record was counted."""
        if not self.counted:
            return None
        from seer.models.counting import load_counter

        histograms = {
            name: {f"<{1 << bits}": counts[bits] for bits in sorted(counts)}
            for name, counts in self._histograms.items()
        }
        return {"records": self.counted, "tokenizer": load_counter(None).name, "total": self._totals, **histograms}
