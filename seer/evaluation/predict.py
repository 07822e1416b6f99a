"""Predict: every input of a benchmark gets one `Prediction`, failures included.

    summary = predict(records, system, "runs/mine", retry_rounds=3)

Inputs that the folder already holds are left out, so that the same command goes on with an interrupted run. What
fails is tried again once the others are done, as often as `retry_rounds` says, and only then recorded as failed.
The number of attempts stands in the cause. An input whose generation ended in the ordinary way but held no answer
is not tried again, since greedy decoding would say the same.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seer.errors import InputError, SeerError
from seer.evaluation.benchmarks import to_manifest
from seer.evaluation.longbench import LongBenchRecord
from seer.evaluation.runfiles import NUM_INPUTS, RunFolder
from seer.evaluation.tasks import LONGBENCH, Benchmark, build_context, build_question
from seer.evaluation.versions import ANSWERING, library_versions
from seer.schema import Answer, Prediction, Status, Step

if TYPE_CHECKING:
    from seer.systems.base import System, Task

OnProgress = Callable[[int, int, int], None]
"""Called with the numbers of inputs recorded, of all inputs, and of failures among those recorded."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PredictOptions:
    """How inputs are put to a system. All of it but the first four is written into the run's manifest."""

    batch_size: int = 8
    """Inputs given to the system at once."""
    concurrency: int = 1
    """Batches in flight at once."""
    retry_rounds: int = 3
    """Further rounds over the inputs that failed; three is the paper's policy."""
    retry_failed: bool = False
    """Also try again what an earlier session recorded as failed."""
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
        for name, least in (("batch_size", 1), ("concurrency", 1), ("retry_rounds", 0), ("reasoning_tokens", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if self.max_context_tokens is not None and self.max_context_tokens < 2:
            raise InputError(f"max_context_tokens is {self.max_context_tokens}; it must be at least 2")


@dataclass(frozen=True)
class RunSummary:
    """How a session of predicting ended."""

    num_inputs: int
    num_already_done: int
    num_predicted: int
    num_failed: int
    """Of all inputs, those of earlier sessions included."""


def predict(
    records: Sequence[LongBenchRecord],
    system: System,
    out_dir: str | Path,
    options: PredictOptions | None = None,
    *,
    describe: Mapping[str, Any] | None = None,
    count_tokens: Callable[[str], int] | None = None,
    on_progress: OnProgress | None = None,
) -> RunSummary:
    """Append a prediction for each record to `<out_dir>/<task>.jsonl`.

    `describe` tells what else makes this run what it is (data, model, engine); a run can only be gone on with under
    the same description. `count_tokens` is needed with `max_context_tokens`.
    Raises InputError: no records, an id twice, another process at work there; ConfigError: another run is there.
    """
    options = options or PredictOptions()
    _check(records, options, count_tokens)
    with RunFolder(out_dir) as run:
        run.open_manifest(_manifest(records, system, options, describe or {}), _session(options))
        done: dict[tuple[str, str], Status] = {}
        for name in sorted({record.task for record in records}):
            finished = run.finished(name, drop_failed=options.retry_failed)
            done |= {(name, identifier): status for identifier, status in finished.items()}
        pending = [record for record in records if (record.task, record.id) not in done]
        failed = sum(done.get((record.task, record.id)) is Status.FAILED for record in records)
        tally = _Tally(len(records), len(records) - len(pending), failed, on_progress)
        num_already_done = tally.num_done
        for attempt in range(1, options.retry_rounds + 2):
            is_last = attempt > options.retry_rounds
            again: set[tuple[str, str]] = set()
            for batch, answers in _answers(pending, system, options, count_tokens):
                settled = []
                for record, answer in zip(batch, answers, strict=True):
                    if not is_last and is_worth_retrying(answer):
                        again.add((record.task, record.id))
                    else:
                        settled.append(to_prediction(record, answer, system.name, attempt))
                run.append(settled)
                tally.add(settled)
            # Batches come back as they finish; the next round keeps the benchmark's order.
            pending = [record for record in pending if (record.task, record.id) in again]
    return RunSummary(len(records), num_already_done, tally.num_done - num_already_done, tally.num_failed)


@dataclass
class _Tally:
    num_inputs: int
    num_done: int
    num_failed: int
    on_progress: OnProgress | None

    def add(self, predictions: Sequence[Prediction]) -> None:
        self.num_done += len(predictions)
        self.num_failed += sum(prediction.status is Status.FAILED for prediction in predictions)
        if self.on_progress:
            self.on_progress(self.num_done, self.num_inputs, self.num_failed)


# ── Asking ───────────────────────────────────────────────────────────────────────────────────────


def _answers(
    records: Sequence[LongBenchRecord],
    system: System,
    options: PredictOptions,
    count_tokens: Callable[[str], int] | None,
) -> Iterator[tuple[Sequence[LongBenchRecord], list[Answer]]]:
    """Answers by batch, as the batches finish. At most `concurrency` are in flight, and no more are prepared."""

    def ask(batch: Sequence[LongBenchRecord]) -> list[Answer]:
        tasks: dict[int, Task] = {}
        answers: dict[int, Answer] = {}
        for index, record in enumerate(batch):
            try:
                tasks[index] = to_task(record, options, count_tokens)
            except Exception as error:
                answers[index] = _failure(error, system, record.id)
        answers |= dict(zip(tasks, answer_every(list(tasks.values()), system), strict=True))
        return [answers[index] for index in range(len(batch))]

    batches = iter(
        [records[first : first + options.batch_size] for first in range(0, len(records), options.batch_size)]
    )
    if options.concurrency == 1:
        for batch in batches:
            yield batch, ask(batch)
        return
    with ThreadPoolExecutor(options.concurrency) as pool:
        running: dict[Future[list[Answer]], Sequence[LongBenchRecord]] = {}
        try:
            while True:
                for batch in islice(batches, options.concurrency - len(running)):
                    running[pool.submit(ask, batch)] = batch
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            for future in running:
                future.cancel()


def answer_every(tasks: Sequence[Task], system: System) -> list[Answer]:
    """One answer for every task, whatever the system raises.

    Where a batch raises, its tasks are asked one by one, so that one bad input can't take the others with it.
    """
    if not tasks:
        return []
    try:
        answers = system.answer_batch(tasks)
        if len(answers) != len(tasks):
            raise SeerError(f"system '{system.name}' gave {len(answers)} answers to {len(tasks)} questions")
        return list(answers)
    except Exception as error:
        if len(tasks) > 1:
            return [answer for task in tasks for answer in answer_every([task], system)]
        return [_failure(error, system, tasks[0].id)]


def _failure(error: Exception, system: System, identifier: str) -> Answer:
    """What went wrong as an answer; what nobody foresaw is logged with its traceback."""
    if not isinstance(error, SeerError):
        _log.error("system '%s' failed on input '%s'", system.name, identifier, exc_info=error)
    return Answer(text="", status=Status.FAILED, cause=f"{type(error).__name__}: {error}")


def is_worth_retrying(answer: Answer) -> bool:
    """False for what succeeded, and where the model spoke to the end or to its limit and yet gave no answer."""
    if answer.status is not Status.FAILED:
        return False
    return not (answer.trace and answer.trace[-1].finish in ("stop", "length"))


def to_task(record: LongBenchRecord, options: PredictOptions, count_tokens: Callable[[str], int] | None) -> Task:
    from seer.evaluation.truncation import cut_middle
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
    )


# ── Recording ────────────────────────────────────────────────────────────────────────────────────


def to_prediction(record: LongBenchRecord, answer: Answer, system: str, attempt: int = 1) -> Prediction:
    """What is kept of an answer. The prompt's own text is not: with text baselines it is the whole document."""
    failed = answer.status is Status.FAILED
    cause = f"{answer.cause} (after {attempt} attempts)" if failed and attempt > 1 else answer.cause
    return Prediction(
        id=record.id,
        task=record.task,
        pred=answer.text,
        answers=record.answers,
        all_classes=record.all_classes,
        length=record.length,
        status=answer.status,
        cause=cause,
        pages=max((page for step in answer.trace if step.turn.kind == "prompt" for page in step.turn.pages), default=0),
        selected_pages=answer.selected_pages,
        usage=answer.usage,
        seconds=answer.seconds,
        system=system,
        trace=tuple(_without_prompt_text(step) for step in answer.trace),
    )


def _without_prompt_text(step: Step) -> Step:
    if step.turn.kind != "prompt" or not step.turn.excerpts:
        return step
    return step.model_copy(update={"turn": step.turn.model_copy(update={"excerpts": ()})})


def _check(
    records: Sequence[LongBenchRecord], options: PredictOptions, count_tokens: Callable[[str], int] | None
) -> None:
    """What would fail every input is refused before the first is asked."""
    if not records:
        raise InputError("there are no inputs to predict; check the data folder, --tasks and --limit")
    if options.max_context_tokens is not None and count_tokens is None:
        raise InputError("max_context_tokens needs a tokenizer to count with; give --model or leave the limit out")
    for name in {record.task for record in records}:
        build_question(options.benchmark.find(name), "", options.templates)
    seen: set[tuple[str, str]] = set()
    for record in records:
        if (record.task, record.id) in seen:
            raise InputError(f"the id '{record.id}' stands twice among the inputs of '{record.task}'; ids must differ")
        seen.add((record.task, record.id))


def _manifest(
    records: Sequence[LongBenchRecord], system: System, options: PredictOptions, describe: Mapping[str, Any]
) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for record in records:
        counts[record.task] = counts.get(record.task, 0) + 1
    return {
        **to_manifest(options.benchmark),
        "system": system.name,
        "prompts": prompts_name(options.templates),
        "reasoning_tokens": options.reasoning_tokens,
        "max_context_tokens": options.max_context_tokens,
        "gold_pages": len(options.gold_pages),
        "page_budgets": len(options.page_budgets),
        **describe,
        NUM_INPUTS: counts,
    }


def prompts_name(templates: Mapping[str, str] | None) -> str:
    """`seer` for our own prompts, else `file:` and a digest of the templates."""
    if templates is None:
        return "seer"
    content = "\0".join(f"{name}\0{templates[name]}" for name in sorted(templates))
    return f"file:{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def _session(options: PredictOptions) -> dict[str, Any]:
    return {
        "versions": library_versions(ANSWERING),
        "batch_size": options.batch_size,
        "concurrency": options.concurrency,
        "retry_rounds": options.retry_rounds,
    }
