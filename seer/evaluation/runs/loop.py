"""The loop of predicting, for any benchmark: every input gets one `Prediction`, failures included.

    summary = run_inputs(inputs, system, "runs/mine", manifest, LoopOptions(retry_rounds=3))

Inputs that the folder already holds are left out, so that the same command goes on with an interrupted run. What
fails is tried again once the others are done, as often as `retry_rounds` says, and only then recorded as failed.
The number of attempts stands in the cause. An input whose generation ended in the ordinary way but held no answer
is not tried again, since greedy decoding would say the same.
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
from seer.evaluation.files import NUM_INPUTS, RunFolder
from seer.evaluation.runs.versions import ANSWERING, library_versions
from seer.schema import Answer, Prediction, Status, Step

if TYPE_CHECKING:
    from seer.systems.base import System, Task

OnProgress = Callable[[int, int, int], None]
"""Called with the numbers of inputs recorded, of all inputs, and of failures among those recorded."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Input:
    """One question of a benchmark: how it is put to a system, and what its prediction keeps."""

    id: str
    task: str
    to_task: Callable[[], Task]
    """Called when its turn comes, so that documents are read one by one. What it raises is this input's failure."""
    answers: tuple[str, ...]
    all_classes: tuple[str, ...] | None = None
    length: int | None = None


@dataclass(frozen=True)
class LoopOptions:
    """How inputs are driven through a system; a run may be gone on with under others."""

    batch_size: int = 8
    """Inputs given to the system at once."""
    concurrency: int = 1
    """Batches in flight at once."""
    retry_rounds: int = 3
    """Further rounds over the inputs that failed; three is the paper's policy."""
    retry_failed: bool = False
    """Also try again what an earlier session recorded as failed."""

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("concurrency", 1), ("retry_rounds", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least {least}")


@dataclass(frozen=True)
class RunSummary:
    """How a session of predicting ended."""

    num_inputs: int
    num_already_done: int
    num_predicted: int
    num_failed: int
    """Of all inputs, those of earlier sessions included."""


def run_inputs(
    inputs: Sequence[Input],
    system: System,
    out_dir: str | Path,
    manifest: Mapping[str, Any],
    options: LoopOptions,
    on_progress: OnProgress | None = None,
) -> RunSummary:
    """Append a prediction for each input to `<out_dir>/<task>.jsonl`.

    `manifest` tells what makes this run what it is; a run can only be gone on with under the same.
    Raises InputError: another process at work there; ConfigError: another run is there.
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
            # Batches come back as they finish; the next round keeps the benchmark's order.
            pending = [one for one in pending if (one.task, one.id) in again]
    return RunSummary(len(inputs), num_already_done, tally.num_done - num_already_done, tally.num_failed)


def count_inputs(inputs: Sequence[Input]) -> dict[str, Any]:
    """The manifest's counts by task. Raises InputError for no inputs, or an id that stands twice."""
    if not inputs:
        raise InputError("there are no inputs to predict; check the data, --tasks and --limit")
    for (task, identifier), number in Counter((one.task, one.id) for one in inputs).items():
        if number > 1:
            raise InputError(f"the id '{identifier}' stands twice among the inputs of '{task}'; ids must differ")
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


# ── Asking ───────────────────────────────────────────────────────────────────────────────────────


def _answers(
    inputs: Sequence[Input], system: System, options: LoopOptions
) -> Iterator[tuple[Sequence[Input], list[Answer]]]:
    """Answers by batch, as the batches finish. At most `concurrency` are in flight, and no more are prepared."""

    def ask(batch: Sequence[Input]) -> list[Answer]:
        tasks: dict[int, Task] = {}
        answers: dict[int, Answer] = {}
        for index, one in enumerate(batch):
            try:
                tasks[index] = one.to_task()
            except Exception as error:
                answers[index] = _failure(error, system, one.id)
        answers |= dict(zip(tasks, answer_every(list(tasks.values()), system), strict=True))
        return [answers[index] for index in range(len(batch))]

    batches = iter([inputs[first : first + options.batch_size] for first in range(0, len(inputs), options.batch_size)])
    if options.concurrency == 1:
        for batch in batches:
            yield batch, ask(batch)
        return
    with ThreadPoolExecutor(options.concurrency) as pool:
        running: dict[Future[list[Answer]], Sequence[Input]] = {}
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
    """False for what succeeded, for what is too long, and where the model spoke to the end or to its limit and yet gave no
    answer."""
    if answer.status is not Status.FAILED:
        return False
    if answer.failure is not None:
        return answer.failure.kind not in ("too_long", "refused", "protocol", "input")
    return not (answer.trace and answer.trace[-1].finish in ("stop", "length"))


# ── Recording ────────────────────────────────────────────────────────────────────────────────────


def to_prediction(asked: Input, answer: Answer, system: str, attempt: int = 1) -> Prediction:
    """What is kept of an answer. The prompt's own text is not: with text baselines it is the whole document."""
    failed = answer.status is Status.FAILED
    cause = f"{answer.cause} (after {attempt} attempts)" if failed and attempt > 1 else answer.cause
    return Prediction(
        id=asked.id,
        task=asked.task,
        pred=answer.text,
        answers=asked.answers,
        all_classes=asked.all_classes,
        length=asked.length,
        status=answer.status,
        cause=cause,
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
        "versions": library_versions(ANSWERING),
        "batch_size": options.batch_size,
        "concurrency": options.concurrency,
        "retry_rounds": options.retry_rounds,
    }
