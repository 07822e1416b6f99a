"""Progress of a running build on one line: records, rate, cost and time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from data_pipeline.settings import SourceSpec
from data_pipeline.tally import Tally
from seer.teaching.ledger import Spending

EVERY_S = 5.0


class ProgressLine:
    """Writes a progress line every few seconds. On a terminal each line replaces the previous one."""

    def __init__(
        self,
        total_rows: int | None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        every_s: float = EVERY_S,
        target: int | None = None,
    ) -> None:
        """Create a line.

        Args:
            total_rows: Rows of all sources; None if the number is unknown.
            stream: Defaults to standard error.
            clock: Returns seconds.
            every_s: Seconds between two lines.
            target: Records that will be written; None if a source has no target.
        """
        self._target = target
        self._total_rows, self._stream, self._clock, self._every_s = total_rows, stream or sys.stderr, clock, every_s
        self._started = self._last = clock()
        self._unfinished = False

    def __call__(self, tally: Tally, rows_read: int, spent: Spending | None) -> None:
        now = self._clock()
        if now - self._last < self._every_s:
            return
        self._last = now
        line = progress_text(tally, rows_read, self._total_rows, spent, now - self._started, self._target)
        terminal = self._stream.isatty()
        self._stream.write(f"\r\x1b[K{line}" if terminal else f"{line}\n")
        self._stream.flush()
        self._unfinished = terminal

    def close(self) -> None:
        """End the line on a terminal, so that later output starts on a new line."""
        if self._unfinished:
            self._stream.write("\n")
            self._unfinished = False


def progress_text(
    tally: Tally,
    rows_read: int,
    total_rows: int | None,
    spent: Spending | None,
    elapsed_s: float,
    target: int | None = None,
) -> str:
    """Return records read and kept, the rate, teacher calls and cost, and the time left if the end is known.

    `target` is the number of records that will be written; without it, `total_rows` decides.
    """
    rate = tally.records / elapsed_s if elapsed_s else 0.0
    parts = [f"{tally.records:,} records", f"{tally.written:,} kept", f"{rate:,.1f}/s"]
    if spent is not None and spent.calls:
        parts.append(f"{spent.calls:,} calls, {spent.tokens:,} tokens, ${spent.usd:.2f}")
    if target and tally.written:
        left_s = elapsed_s * max(0, target - tally.written) / tally.written
        parts.append(f"{tally.written / target:.0%} of the target, about {_duration(left_s)} left")
    elif total_rows and rows_read:
        left_s = elapsed_s * max(0, total_rows - rows_read) / rows_read
        parts.append(f"{rows_read / total_rows:.0%} of the rows read, about {_duration(left_s)} left")
    return " · ".join(parts)


def _duration(seconds: float) -> str:
    minutes = int(seconds // 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min {int(seconds % 60):02d} s"


def total_rows(sources: Sequence[SourceSpec]) -> int | None:
    """Return the number of rows of all sources, or None if counting any of them would be expensive."""
    # A limit counts samples and a target kept records, not rows.
    counts = [None if source.limit or source.target else rows_of(source) for source in sources]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def total_target(sources: Sequence[SourceSpec]) -> int | None:
    """Return the number of records that a build will write if every source reaches its target, or None without targets."""
    targets = [source.target for source in sources if source.include]
    return sum(filter(None, targets)) if targets and all(targets) else None


def rows_of(source: SourceSpec) -> int | None:
    """Return the number of rows of a source, or None if counting them would be expensive."""
    path = Path(source.path)
    if not path.is_file():
        # Folders and hub datasets would have to be read to be counted.
        return None
    if path.suffix in (".jsonl", ".ndjson"):
        with path.open("rb") as file:
            return sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b"")) or 1
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return int(pq.read_metadata(path).num_rows)
    return None
