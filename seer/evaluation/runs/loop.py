"""The prediction loop of every benchmark: each input gets one `Prediction`, failed inputs included.

    summary = run_inputs(inputs, system, "runs/mine", manifest, LoopOptions(retry_rounds=3))

Inputs with a prediction in the folder are skipped, so the same command resumes an interrupted run. Failed inputs are
retried after all others, up to `retry_rounds` times, before they are recorded as failed; the recorded cause includes the
number of attempts. An input whose generation ended normally but contains no answer is not retried, because greedy
decoding would produce the same text.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seer.errors import InputError, SeerError
from seer.evaluation.files import NUM_INPUTS, RunFolder, library_versions
from seer.schema import Answer, Failure, Prediction, Status, Step

if TYPE_CHECKING:
    from seer.systems.base import System, Task

OnProgress = Callable[[int, int, int], None]
"""Called with the numbers of recorded inputs, of all inputs, and of failed inputs among the recorded ones."""
ANSWERING_LIBRARIES = ("seer-vlm", "torch", "transformers", "vllm", "xgrammar", "bm25s", "pillow")
"""Packages whose versions can change an answer."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BenchmarkInput:
    """One input of a benchmark: a function that makes the system's task, and the fields that its prediction keeps."""

    id: str
    task: str
    to_task: Callable[[], Task]
    """Called when the input is predicted, so that documents are read one by one. An exception fails only this input."""
    answers: tuple[str, ...]
    all_classes: tuple[str, ...] | None = None
    length: int | None = None


@dataclass(frozen=True)
class LoopOptions:
    """Batching and retries. These options are not part of a run's identity and may change when it is resumed."""

    batch_size: int = 8
    """Inputs per call of the system."""
    concurrency: int = 1
    """Calls of the system that run at the same time."""
    retry_rounds: int = 3
    """Additional rounds over failed inputs; the paper uses three."""
    retry_failed: bool = False
    """Also retry inputs that an earlier session recorded as failed."""

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("concurrency", 1), ("retry_rounds", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least {least}")


@dataclass(frozen=True)
class RunSummary:
    """Counts at the end of a session."""

    num_inputs: int
    num_already_done: int
    num_predicted: int
    num_failed: int
    """Failed inputs of this and earlier sessions."""


def run_inputs(
    inputs: Sequence[BenchmarkInput],
    system: System,
    out_dir: str | Path,
    manifest: Mapping[str, Any],
    options: LoopOptions,
    on_progress: OnProgress | None = None,
) -> RunSummary:
    """Append a prediction for each input to `<out_dir>/<task>.jsonl`.

    `manifest` holds the settings of the run; a run can be resumed only with identical settings.
    Raises InputError if another process writes to the folder, and ConfigError if the folder holds another run.
    """
    with RunFolder(out_dir) as run:
        run.open_manifest(manifest, _session(options))
        done: dict[tuple[str, str], Status] = {}
        for name in sorted({one.task for one in inputs}):
            finished = run.finished(name, drop_failed=options.retry_failed)
            done |= {(name, identifier): status for identifier, status in finished.items()}
        pending = [one for one in inputs if (one.task, one.id) not in done]
        failed = sum(done.get((one.task, one.id)) is Status.FAILED for one in inputs)
        tally = _Tally(len(inputs), len(inputs) - len(pending), failed, on_progress)
        num_already_done = tally.num_done
        for attempt in range(1, options.retry_rounds + 2):
            is_last = attempt > options.retry_rounds
            again: set[tuple[str, str]] = set()
            for batch, answers in _answers(pending, system, options):
                settled = []
                for one, answer in zip(batch, answers, strict=True):
                    if not is_last and is_worth_retrying(answer):
                        again.add((one.task, one.id))
                    else:
                        settled.append(to_prediction(one, answer, system.name, attempt))
                run.append(settled)
                tally.add(settled)
            # Batches finish in any order; rebuild the next round in the benchmark's order.
            pending = [one for one in pending if (one.task, one.id) in again]
    return RunSummary(len(inputs), num_already_done, tally.num_done - num_already_done, tally.num_failed)


def count_inputs(inputs: Sequence[BenchmarkInput]) -> dict[str, Any]:
    """Return the manifest entry with the number of inputs by task.

    Raises InputError if there are no inputs, or an id occurs twice in a task.
    """
    if not inputs:
        raise InputError("there are no inputs to predict; check the data, --tasks and --limit")
    for (task, identifier), number in Counter((one.task, one.id) for one in inputs).items():
        if number > 1:
            raise InputError(f"the id '{identifier}' occurs twice among the inputs of '{task}'; ids must differ")
    return {NUM_INPUTS: dict(Counter(one.task for one in inputs))}


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


# ── Answering ────────────────────────────────────────────────────────────────────────────────────


def _answers(
    inputs: Sequence[BenchmarkInput], system: System, options: LoopOptions
) -> Iterator[tuple[Sequence[BenchmarkInput], list[Answer]]]:
    """Yield batches with their answers as they finish. At most `concurrency` batches are prepared or running."""

    def answer(batch: Sequence[BenchmarkInput]) -> list[Answer]:
        tasks: dict[int, Task] = {}
        answers: dict[int, Answer] = {}
        for index, one in enumerate(batch):
            try:
                tasks[index] = one.to_task()
            except Exception as error:  # A document that cannot be read must fail only its own input.
                answers[index] = _failure(error, system, one.id)
        answers |= dict(zip(tasks, answer_every(list(tasks.values()), system), strict=True))
        return [answers[index] for index in range(len(batch))]

    batches = iter([inputs[first : first + options.batch_size] for first in range(0, len(inputs), options.batch_size)])
    if options.concurrency == 1:
        for batch in batches:
            yield batch, answer(batch)
        return
    with ThreadPoolExecutor(options.concurrency) as pool:
        running: dict[Future[list[Answer]], Sequence[BenchmarkInput]] = {}
        try:
            while True:
                # Submit only as many batches as may run, so that documents of later batches are not loaded yet.
                for batch in islice(batches, options.concurrency - len(running)):
                    running[pool.submit(answer, batch)] = batch
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            # An interrupt must not start the batches that still wait for a thread.
            for future in running:
                future.cancel()


def answer_every(tasks: Sequence[Task], system: System) -> list[Answer]:
    """Return one answer per task; an exception of the system becomes a failed answer.

    If a batch raises, its tasks are answered one by one, so that one bad input does not affect the others.
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
    """Convert an exception into a failed answer. Logs the traceback of exceptions other than Seer's own."""
    if not isinstance(error, SeerError):
        _log.error("system '%s' failed on input '%s'", system.name, identifier, exc_info=error)
    failure = Failure.of(error) if isinstance(error, SeerError) else None
    return Answer(text="", status=Status.FAILED, cause=f"{type(error).__name__}: {error}", failure=failure)


def is_worth_retrying(answer: Answer) -> bool:
    """Return whether another attempt at a failed answer can succeed.

    False for successful answers, for failures that are not retryable (a prompt that is too long, a refused request, a
    wrong key, an unreadable document), and for generations that ended normally or at their token limit without an answer.
    """
    if answer.status is not Status.FAILED:
        return False
    if answer.failure is not None:
        # An engine error without further detail, e.g. of memory, may depend on the other requests of its batch.
        return answer.failure.retryable or answer.failure.kind == "engine"
    return not (answer.trace and answer.trace[-1].finish in ("stop", "length"))


# ── Recording ────────────────────────────────────────────────────────────────────────────────────


def to_prediction(source: BenchmarkInput, answer: Answer, system: str, attempt: int = 1) -> Prediction:
    """Return the record of an answer. Omits the text of the prompt, which holds the whole document for text baselines."""
    failed = answer.status is Status.FAILED
    cause = f"{answer.cause} (after {attempt} attempts)" if failed and attempt > 1 else answer.cause
    return Prediction(
        id=source.id,
        task=source.task,
        pred=answer.text,
        answers=source.answers,
        all_classes=source.all_classes,
        length=source.length,
        status=answer.status,
        cause=cause,
        failure=answer.failure,
        pages=max((page for step in answer.trace if step.name == "look" for page in step.pages), default=0),
        selected_pages=answer.selected_pages,
        usage=answer.usage,
        seconds=answer.seconds,
        system=system,
        trace=tuple(_without_shown_text(step) for step in answer.trace),
    )


def _without_shown_text(step: Step) -> Step:
    if step.name != "look" or "text" not in step.inputs:
        return step
    return step.model_copy(update={"inputs": {name: step.inputs[name] for name in step.inputs if name != "text"}})


def _session(options: LoopOptions) -> dict[str, Any]:
    return {
        "versions": library_versions(ANSWERING_LIBRARIES),
        "batch_size": options.batch_size,
        "concurrency": options.concurrency,
        "retry_rounds": options.retry_rounds,
    }
