"""The progress line of a build: what it shows and when it is written."""

from __future__ import annotations

import io
from pathlib import Path

from fixtures.data.builds import configure

from data_pipeline.progress import ProgressLine, progress_text, total_rows, total_target
from data_pipeline.settings import SourceSpec
from data_pipeline.tally import Tally
from seer.teaching.ledger import Spending


def test_progress_text_shows_rate_cost_and_time_left() -> None:
    tally = Tally()
    tally.records, tally.written = 500, 400
    spent = Spending(calls=30, prompt_tokens=1000, completion_tokens=200, usd=1.5)
    assert progress_text(tally, 500, 2000, spent, 50.0) == (
        "500 records · 400 kept · 10.0/s · 30 calls, 1,200 tokens, $1.50 · 25% of the rows read, about 2 min 30 s left"
    )
    assert progress_text(tally, 500, None, None, 50.0) == "500 records · 400 kept · 10.0/s"
    assert "1 h 00 min left" in progress_text(tally, 10, 730, None, 50.0)
    # With a target the number of rows says nothing: reading stops before their end.
    assert progress_text(tally, 500, 2000, None, 50.0, 1000) == (
        "500 records · 400 kept · 10.0/s · 40% of the target, about 1 min 15 s left"
    )


def test_total_target_counts_included_sources_and_needs_a_target_of_each() -> None:
    one, two = SourceSpec(path="a", name="one", target=3), SourceSpec(path="b", name="two", target=4)
    assert total_target([one, two]) == 7
    assert total_target([one, two.model_copy(update={"include": False, "target": None})]) == 3
    assert total_target([one, two.model_copy(update={"target": None})]) is None


def test_progress_line_writes_every_few_seconds(tmp_path: Path) -> None:
    times = iter(range(100))
    stream = io.StringIO()
    line = ProgressLine(None, stream, clock=lambda: float(next(times)), every_s=5.0)
    for _ in range(11):
        line(Tally(), 0, None)
    assert stream.getvalue().count("records") == 2
    config = configure(tmp_path, count=7)
    assert total_rows(config.sources) == 7
    assert total_rows([config.sources[0].model_copy(update={"limit": 3})]) is None


def test_progress_line_on_terminal_replaces_itself_and_ends() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    times = iter(range(100))
    line = ProgressLine(None, stream := Terminal(), clock=lambda: float(next(times)), every_s=1.0)
    for _ in range(3):
        line(Tally(), 0, None)
    line.close()
    line.close()
    assert stream.getvalue().count("\r") == 3 and stream.getvalue().count("\n") == 1


def test_total_rows_counts_parquet_but_not_json(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"question": ["a", "b", "c"]}), tmp_path / "train.parquet")
    (tmp_path / "train.json").write_text("[]")
    parquet, plain = (SourceSpec(path=str(tmp_path / f"train.{ending}")) for ending in ("parquet", "json"))
    assert total_rows([parquet, parquet]) == 6
    assert total_rows([parquet, plain]) is None
