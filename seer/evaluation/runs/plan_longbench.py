"""Plan and predict a benchmark in LongBench's format.

    summary = predict(records, system, "runs/mine", PredictOptions(retry_rounds=3))

Turns records into inputs; `seer.evaluation.runs.loop` sends them to the system and writes the predictions. Text baselines
with a limited window cut the middle of long documents, as LongBench does (`cut_middle`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seer.errors import InputError
from seer.evaluation.benchmarks.custom import from_manifest, to_manifest
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.benchmarks.tasks import (
    LONGBENCH,
    Benchmark,
    BenchmarkTask,
    build_context,
    build_question,
    fill_template,
)
from seer.evaluation.files import read_predictions, read_run_manifest
from seer.evaluation.runs.loop import BenchmarkInput, LoopOptions, OnProgress, RunSummary, count_inputs, run_inputs

if TYPE_CHECKING:
    from seer.systems.base import System, Task

Count = Callable[[str], int]


@dataclass(frozen=True)
class PredictOptions(LoopOptions):
    """How records become questions. The fields added to `LoopOptions` are part of the run's manifest."""

    reasoning_tokens: int = 0
    """Completion tokens in addition to each task's own limit, which covers only the answer."""
    thinks_bare: bool = True
    """False: tasks whose prompt is continued outside the chat template get no reasoning tokens. `plan_run` sets this for
    the system "text", where such a prompt is continued as it stands and nothing is thought."""
    max_context_tokens: int | None = None
    """For text baselines: the middle of longer documents is cut out."""
    templates: Mapping[str, str] | None = None
    """Prompts in the benchmark's dataset2prompt format that replace our own."""
    in_place: bool = False
    """For `seer.systems.prompted`: make the whole prompt, with the document in its place in the template. The middle of
    the prompt, not of the document, is then cut to `max_context_tokens`, as the benchmark does."""
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

    `describe` adds settings to the manifest, such as data, model and engine; a run can be resumed only with identical
    settings. `count_tokens` is required with `max_context_tokens`.
    Raises InputError if there are no records, an id occurs twice or another process writes to the folder, and
    ConfigError if the folder holds another run.
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
) -> tuple[list[BenchmarkInput], dict[str, Any]]:
    """Return the inputs of a run and its manifest, and check both before a model is loaded.

    Raises InputError if there are no records, an id occurs twice, a template is missing, or `max_context_tokens` is set
    without `count_tokens`.
    """
    if options.max_context_tokens is not None and count_tokens is None:
        raise InputError("max_context_tokens needs a tokenizer to count with; give --model or leave the limit out")
    if system_name == "text":
        options = replace(options, thinks_bare=False)
    inputs = [to_input(record, options, count_tokens) for record in records]
    counts = count_inputs(inputs)
    # Build one question per task now, so that a missing template is reported before the run starts.
    for name in {record.task for record in records}:
        build_question(options.benchmark.find(name), "", options.templates)
    manifest = {
        **to_manifest(options.benchmark),
        "system": system_name,
        "prompts": prompts_name(options.templates),
        **({"in_place": True} if options.in_place else {}),
        "reasoning_tokens": options.reasoning_tokens,
        "max_context_tokens": options.max_context_tokens,
        "gold_pages": len(options.gold_pages),
        "page_budgets": len(options.page_budgets),
        **(describe or {}),
        **counts,
    }
    return inputs, manifest


def to_input(record: LongBenchRecord, options: PredictOptions, count_tokens: Count | None = None) -> BenchmarkInput:
    """Return the input of a record. The document is cut and the question built when the input is predicted."""
    make = partial(to_task, record, options, count_tokens)
    return BenchmarkInput(record.id, record.task, make, record.answers, record.all_classes, record.length)


def to_task(record: LongBenchRecord, options: PredictOptions, count_tokens: Count | None) -> Task:
    """Return the question of a record for the system, with its document cut to `max_context_tokens`."""
    from seer.systems.base import Task

    task = options.benchmark.find(record.task)
    if options.in_place:
        return _to_prompted_task(record, task, options, count_tokens)
    context = build_context(task, record.input, record.context)
    if options.max_context_tokens is not None and count_tokens is not None:
        context = cut_middle(context, options.max_context_tokens, count_tokens)
    return Task(
        id=record.id,
        context=context,
        question=build_question(task, record.input, options.templates),
        max_new_tokens=task.max_new_tokens + (options.reasoning_tokens if task.chat or options.thinks_bare else 0),
        gold_pages=options.gold_pages.get(record.id, ()),
        query=record.input,
        selector_pages=options.page_budgets.get(record.id),
        newline=task.newline,
        chat=task.chat,
        retrieve=task.retrieve,
    )


def _to_prompted_task(
    record: LongBenchRecord, task: BenchmarkTask, options: PredictOptions, count_tokens: Count | None
) -> Task:
    from seer.systems.base import Task

    if options.templates is None:
        document = build_context(task, record.input, record.context)
        prompt = f"{document}\n\n{build_question(task, record.input)}"
    else:
        prompt = fill_template(task, record.input, record.context, options.templates)
    if options.max_context_tokens is not None and count_tokens is not None:
        prompt = cut_middle(prompt, options.max_context_tokens, count_tokens)
    thinking = options.reasoning_tokens if task.chat else 0
    return Task(record.id, "", "", task.max_new_tokens + thinking, chat=task.chat, prompt=prompt)


def matched_budgets(run: str | Path, *, least: int = 1) -> dict[str, int]:
    """Return the page budget of each input: as many pages as the run selected there, and at least `least` (paper, A.9).

    Raises InputError if the run has no predictions, or an id occurs in two tasks.
    """
    folder = Path(run)
    tasks = from_manifest(read_run_manifest(folder), f"the manifest of '{run}'").tasks
    files = [folder / f"{name}.jsonl" for name in tasks if (folder / f"{name}.jsonl").is_file()]
    if not files:
        raise InputError(f"'{run}' holds no predictions to match; give the folder of a run")
    budgets: dict[str, int] = {}
    for file in files:
        for prediction in read_predictions(file):
            if prediction.id in budgets:
                raise InputError(
                    f"'{run}': the id '{prediction.id}' occurs in two tasks; budgets by id need unique ids"
                )
            budgets[prediction.id] = max(least, len(prediction.selected_pages))
    return budgets


def prompts_name(templates: Mapping[str, str] | None) -> str:
    """Return `seer` for our own prompts, or else `file:` and a digest of the templates."""
    if templates is None:
        return "seer"
    # NUL separates names and texts unambiguously, and sorting makes the digest independent of the file's order.
    content = "\0".join(f"{name}\0{templates[name]}" for name in sorted(templates))
    return f"file:{hashlib.sha256(content.encode()).hexdigest()[:12]}"


# ── Text baselines with a limited window ─────────────────────────────────────────────────────────


def cut_middle(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """Return `text` if it fits, or else its longest beginning and end of half of `max_tokens` each.

    The benchmark cuts between tokens. This function cuts between characters, because it requires nothing of the
    tokenizer but the count.
    """
    if count(text) <= max_tokens:
        return text
    head_tokens = max_tokens // 2
    # Bisect on the number of characters, since a longer text has more tokens, apart from merges at its end.
    head = text[: _longest(len(text), lambda size: count(text[:size]) <= head_tokens)]
    rest = text[len(head) :]
    tail_tokens = max_tokens - head_tokens
    size = _longest(len(rest), lambda size: count(rest[len(rest) - size :]) <= tail_tokens)
    return head + rest[len(rest) - size :]


def _longest(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest size up to `limit` that fits, by bisection; `fits` must be monotonic."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
