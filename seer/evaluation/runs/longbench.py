"""Predict a benchmark in LongBench's form: its records become inputs, and `seer.evaluation.runs.loop` drives them.

summary = predict(records, system, "runs/mine", PredictOptions(retry_rounds=3))
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seer.errors import InputError
from seer.evaluation.benchmarks.custom import to_manifest
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.benchmarks.tasks import LONGBENCH, Benchmark, build_context, build_question
from seer.evaluation.runs.loop import Input, LoopOptions, OnProgress, RunSummary, count_inputs, run_inputs

if TYPE_CHECKING:
    from seer.systems.base import System, Task

Count = Callable[[str], int]


@dataclass(frozen=True)
class PredictOptions(LoopOptions):
    """How records are put to a system. What is new here is written into the run's manifest."""

    reasoning_tokens: int = 0
    """Completion tokens granted on top of each task's own limit, which knows only of the answer."""
    max_context_tokens: int | None = None
    """Text baselines: longer documents lose their middle."""
    templates: Mapping[str, str] | None = None
    """Prompts in the benchmark's dataset2prompt form, in place of our own."""
    gold_pages: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Relevant pages by id, for the oracle selector."""
    page_budgets: Mapping[str, int] = field(default_factory=dict)
    """Page budget by id, for selectors matched to another run."""
    benchmark: Benchmark = LONGBENCH

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reasoning_tokens < 0:
            raise InputError(f"reasoning_tokens is {self.reasoning_tokens}; it must be at least 0")
        if self.max_context_tokens is not None and self.max_context_tokens < 2:
            raise InputError(f"max_context_tokens is {self.max_context_tokens}; it must be at least 2")


def predict(
    records: Sequence[LongBenchRecord],
    system: System,
    out_dir: str | Path,
    options: PredictOptions | None = None,
    *,
    describe: Mapping[str, Any] | None = None,
    count_tokens: Count | None = None,
    on_progress: OnProgress | None = None,
) -> RunSummary:
    """Append a prediction for each record to `<out_dir>/<task>.jsonl`.

    `describe` tells what else makes this run what it is (data, model, engine); a run can only be gone on with under
    the same description. `count_tokens` is needed with `max_context_tokens`.
    Raises InputError: no records, an id twice, another process at work there; ConfigError: another run is there.
    """
    options = options or PredictOptions()
    inputs, manifest = plan_run(records, system.name, options, describe, count_tokens)
    return run_inputs(inputs, system, out_dir, manifest, options, on_progress)


def plan_run(
    records: Sequence[LongBenchRecord],
    system_name: str,
    options: PredictOptions,
    describe: Mapping[str, Any] | None = None,
    count_tokens: Count | None = None,
) -> tuple[list[Input], dict[str, Any]]:
    """The inputs of a run and its manifest: all that can be known, and refused, before a model is loaded."""
    if options.max_context_tokens is not None and count_tokens is None:
        raise InputError("max_context_tokens needs a tokenizer to count with; give --model or leave the limit out")
    inputs = [to_input(record, options, count_tokens) for record in records]
    counts = count_inputs(inputs)
    for name in {record.task for record in records}:
        build_question(options.benchmark.find(name), "", options.templates)
    manifest = {
        **to_manifest(options.benchmark),
        "system": system_name,
        "prompts": prompts_name(options.templates),
        "reasoning_tokens": options.reasoning_tokens,
        "max_context_tokens": options.max_context_tokens,
        "gold_pages": len(options.gold_pages),
        "page_budgets": len(options.page_budgets),
        **(describe or {}),
        **counts,
    }
    return inputs, manifest


def to_input(record: LongBenchRecord, options: PredictOptions, count_tokens: Count | None = None) -> Input:
    make = partial(to_task, record, options, count_tokens)
    return Input(record.id, record.task, make, record.answers, record.all_classes, record.length)


def to_task(record: LongBenchRecord, options: PredictOptions, count_tokens: Count | None) -> Task:
    from seer.evaluation.runs.truncation import cut_middle
    from seer.systems.base import Task

    task = options.benchmark.find(record.task)
    context = build_context(task, record.input, record.context)
    if options.max_context_tokens is not None and count_tokens is not None:
        context = cut_middle(context, options.max_context_tokens, count_tokens)
    return Task(
        id=record.id,
        context=context,
        question=build_question(task, record.input, options.templates),
        max_new_tokens=task.max_new_tokens + options.reasoning_tokens,
        gold_pages=options.gold_pages.get(record.id, ()),
        query=record.input,
        selector_pages=options.page_budgets.get(record.id),
        chat=task.chat,
    )


def prompts_name(templates: Mapping[str, str] | None) -> str:
    """`seer` for our own prompts, else `file:` and a digest of the templates."""
    if templates is None:
        return "seer"
    content = "\0".join(f"{name}\0{templates[name]}" for name in sorted(templates))
    return f"file:{hashlib.sha256(content.encode()).hexdigest()[:12]}"
