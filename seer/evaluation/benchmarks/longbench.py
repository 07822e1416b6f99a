"""Reader for LongBench's records, and for custom benchmarks in the same format.

records, benchmark = read_data(Path("data/longbench"), tasks=["hotpotqa"], limit=20)
records = read_records("data/hotpotqa.jsonl", LONGBENCH.find("hotpotqa"))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from seer.errors import InputError
from seer.evaluation.benchmarks.custom import load_benchmark
from seer.evaluation.benchmarks.tasks import Benchmark, BenchmarkTask
from seer.evaluation.jsonlines import read_json_lines


@dataclass(frozen=True)
class LongBenchRecord:
    """One input of the benchmark. `length` is the benchmark's own count of words or characters."""

    id: str
    task: str
    input: str
    context: str
    answers: tuple[str, ...]
    length: int | None
    language: str
    all_classes: tuple[str, ...] | None


def read_records(path: str | Path, task: BenchmarkTask) -> Iterator[LongBenchRecord]:
    """Yield the records of a task's JSONL file.

    Accepts `question` for `input` and `id` for `_id`. A record without an id gets one from the task and its row number.
    Raises InputError if the file cannot be read or a record lacks a field.
    """
    for row, (place, fields) in enumerate(read_json_lines(path)):
        text = fields.get("input", fields.get("question"))
        if not isinstance(text, str) or not isinstance(fields.get("context"), str):
            has = ", ".join(f"{key} ({type(value).__name__})" for key, value in sorted(fields.items()))
            raise InputError(f"{place}: 'input' (or 'question') and 'context' must be texts; the record has {has}")
        # A file with a subset of the records keeps each record's row in the full set as `_index`.
        index = fields["_index"] if isinstance(fields.get("_index"), int) else row
        length = fields.get("length")
        yield LongBenchRecord(
            id=str(fields.get("_id") or fields.get("id") or f"{task.name}-{index:04d}"),
            task=task.name,
            input=text,
            context=fields["context"],
            answers=to_texts(fields.get("answers"), place, "answers"),
            length=length if isinstance(length, int) else None,
            language=str(fields.get("language") or ("zh" if task.metric.value.endswith("_zh") else "en")),
            all_classes=to_classes(fields.get("all_classes"), place),
        )


def read_data(
    folder: Path, tasks: Sequence[str] | None = None, limit: int | None = None
) -> tuple[list[LongBenchRecord], Benchmark]:
    """Read the records of a data folder, or of its subfolder `data`, in the benchmark's order.

    `tasks` selects tasks by name, `limit` the first records of each. Returns the records and the benchmark.
    Raises InputError if the limit is below 1, or the folder or the file of a task is missing.
    """
    check_limit(limit)
    if not folder.is_dir():
        raise InputError(f"no folder at '{folder}'; give a folder of <task>.jsonl files")
    benchmark = load_benchmark(folder)
    wanted = [benchmark.find(name.strip()).name for name in tasks] if tasks else list(benchmark.tasks)
    for place in (folder, folder / "data"):
        files = {name: place / f"{name}.jsonl" for name in wanted if (place / f"{name}.jsonl").is_file()}
        if files:
            break
    missing = [name for name in tasks or () if name.strip() not in files]
    if missing or not files:
        raise InputError(
            f"'{folder}' has no {', '.join(missing) or '<task>'}.jsonl; give a folder with the records of {benchmark.name}, "
            "one file per task"
        )
    records = [
        record for name, file in files.items() for record in islice(read_records(file, benchmark.tasks[name]), limit)
    ]
    return records, benchmark


def check_limit(limit: int | None) -> None:
    """Raise InputError if a limit on records per task is below 1."""
    if limit is not None and limit < 1:
        raise InputError(f"--limit is {limit}; give at least 1 input per task")


def to_texts(value: Any, place: str, key: str) -> tuple[str, ...]:
    """Return a list of strings as a tuple. Raises InputError, naming `place` and `key`, if the value is anything else."""
    if isinstance(value, list | tuple) and all(isinstance(text, str) for text in value):
        return tuple(value)
    raise InputError(f"{place}: '{key}' must be a list of texts, not {value!r}")


def to_classes(value: Any, place: str) -> tuple[str, ...] | None:
    """Return the field `all_classes` of a record, which only classification tasks have."""
    return None if value is None else to_texts(value, place, "all_classes")
