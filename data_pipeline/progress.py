"""What a running build says of itself: records, rates, cost, time left. One line, a few times a minute."""

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
    """Writes a line every few seconds. On a terminal it replaces the one before."""

    def __init__(
        self,
        total_rows: int | None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        every_s: float = EVERY_S,
    ) -> None:
        self._total_rows, self._stream, self._clock, self._every_s = total_rows, stream or sys.stderr, clock, every_s
        self._started = self._last = clock()
        self._unfinished = False

    def __call__(self, tally: Tally, rows_read: int, spent: Spending | None) -> None:
        now = self._clock()
        if now - self._last < self._every_s:
            return
        self._last = now
        line = describe(tally, rows_read, self._total_rows, spent, now - self._started)
        terminal = self._stream.isatty()
        self._stream.write(f"\r\x1b[K{line}" if terminal else f"{line}\n")
        self._stream.flush()
        self._unfinished = terminal

    def close(self) -> None:
        """End the line, so that what follows stands below it."""
        if self._unfinished:
            self._stream.write("\n")
            self._unfinished = False


def describe(tally: Tally, rows_read: int, total_rows: int | None, spent: Spending | None, elapsed_s: float) -> str:
    """One line: records, kept, rate, teachers' calls and cost, time left where the rows are known."""
    rate = tally.records / elapsed_s if elapsed_s else 0.0
    parts = [f"{tally.records:,} records", f"{tally.written:,} kept", f"{rate:,.1f}/s"]
    if spent is not None and spent.calls:
        parts.append(f"{spent.calls:,} calls, {spent.tokens:,} tokens, ${spent.usd:.2f}")
    if total_rows and rows_read:
        left_s = elapsed_s * max(0, total_rows - rows_read) / rows_read
        parts.append(f"{rows_read / total_rows:.0%} of the rows read, about {_duration(left_s)} left")
    return " · ".join(parts)


def _duration(seconds: float) -> str:
    minutes = int(seconds // 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min {int(seconds % 60):02d} s"


def total_rows(sources: Sequence[SourceSpec]) -> int | None:
    """Rows of all sources, where counting them is cheap; None where any is not."""
    counts = [_rows_of(source) for source in sources]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _rows_of(source: SourceSpec) -> int | None:
    path = Path(source.path)
    if source.limit is not None or not path.is_file():
        return None  # samples are limited, not rows; folders and hubs are not counted
    if path.suffix in (".jsonl", ".ndjson"):
        with path.open("rb") as file:
            return sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b"")) or 1
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return int(pq.read_metadata(path).num_rows)
    return None
