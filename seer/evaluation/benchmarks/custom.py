"""Custom benchmarks in LongBench's record format, described by a file `benchmark.toml` next to the records.

    name = "miniature"

    [tasks.find_digits]
    category = "lookup"
    metric = "qa_f1"
    max_new_tokens = 8
    num_records = 200
    question = "{input}"

A folder without that file is read as LongBench. A run stores its benchmark in its manifest, so that it can be scored
without the data.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from seer.config import build_config
from seer.errors import ConfigError
from seer.evaluation.benchmarks.tasks import LONGBENCH, Benchmark, BenchmarkTask
from seer.evaluation.scoring.scorers import Metric
from seer.schema import NewlineMode, Record

FILE_NAME = "benchmark.toml"


class TaskSpec(Record):
    """A task in `benchmark.toml`, with the fields of `BenchmarkTask`."""

    category: str = Field(min_length=1)
    metric: Metric
    max_new_tokens: int = Field(ge=1)
    num_records: int = Field(ge=1)
    instruction: str = ""
    question: str = "{input}"
    chat: bool = True
    first_line: bool = False
    input_ends_document: bool = False
    newline: NewlineMode | None = None

    @field_validator("question")
    @classmethod
    def _has_a_place_for_the_input(cls, question: str) -> str:
        if "{input}" not in question:
            raise ValueError("a question needs {input}, where the record's input goes")
        return question


class BenchmarkSpec(Record):
    """The content of `benchmark.toml`."""

    name: str = Field(min_length=1)
    tasks: dict[str, TaskSpec] = Field(min_length=1)

    @field_validator("tasks")
    @classmethod
    def _names_are_file_names(cls, tasks: dict[str, TaskSpec]) -> dict[str, TaskSpec]:
        # Names of tasks become names of files in the folder of a run, so they must not contain a path.
        for name in tasks:
            if not name or not all(character.isalnum() or character in "-_." for character in name) or name[0] == ".":
                raise ValueError(f"'{name}' can't be a file's name; use letters, digits, '-', '_' and '.'")
        return tasks


def load_benchmark(folder: Path) -> Benchmark:
    """Return the benchmark of a data folder. Raises ConfigError if its `benchmark.toml` is invalid."""
    path = folder / FILE_NAME
    if not path.is_file():
        return LONGBENCH
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"'{path}' cannot be read as TOML: {error}; correct its syntax") from None
    return _to_benchmark(values, str(path))


def to_manifest(benchmark: Benchmark) -> dict[str, Any]:
    """Return the manifest entries for a benchmark: LongBench by name, any other with all of its tasks."""
    if benchmark is LONGBENCH:
        return {"benchmark": benchmark.name}
    return {
        "benchmark": benchmark.name,
        "tasks": {
            # An unset newline mode is left out, as in manifests that were written before tasks had one.
            name: {field: value for field in TaskSpec.model_fields if (value := getattr(task, field)) is not None}
            for name, task in benchmark.tasks.items()
        },
    }


def from_manifest(manifest: Mapping[str, Any], where: str) -> Benchmark:
    """Return the benchmark of a run from its manifest; LongBench for runs made by other programs.

    `where` names the manifest in the ConfigError that is raised for invalid tasks.
    """
    if "tasks" not in manifest:
        return LONGBENCH
    return _to_benchmark({"name": manifest.get("benchmark"), "tasks": manifest["tasks"]}, where)


def _to_benchmark(values: Mapping[str, Any], where: str) -> Benchmark:
    spec = build_config(BenchmarkSpec, values, where=where)
    fields = tuple(TaskSpec.model_fields)
    tasks = {
        name: BenchmarkTask(name=name, **{field: getattr(one, field) for field in fields})
        for name, one in spec.tasks.items()
    }
    return Benchmark(spec.name, tasks)
