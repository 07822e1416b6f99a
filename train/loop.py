"""Supervised fine-tuning: one loop for one process or many.

    summary = fit(config)

A run may be interrupted at any moment. The same call then resumes it from its newest checkpoint.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from train.config import TrainConfig
from train.evaluation import evaluate, generate
from train.export import export
from train.interrupt import Interrupts, good_enough
from train.metrics import read_metrics
from train.parallel import World, end_world, start_world
from train.run import Run, Sources, build_run, open_folder
from train.step import train_step


@dataclass(frozen=True)
class Summary:
    """The outcome of a run."""

    steps: int
    """Updates made, including those before an interruption."""
    reason: str
    """Why the run ended: `steps`, `metric`, `time` or `signal`."""
    seconds: float
    """Time in the loop since the last start."""
    last: dict[str, Any]
    """Record of the last step."""
    evaluation: dict[str, Any]
    """Record of the last evaluation; empty if there was none."""


def fit(config: TrainConfig, *, sources: Sources | None = None, held_out: Sources | None = None) -> Summary:
    """Train as configured and export the model to `<out>/model`.

    `sources` and `held_out` replace the configured data sets by trajectories in memory, in the same order.

    Raises ConfigError if the configuration cannot run on this machine or does not match the run that it would resume,
    InputError for unusable data, CheckpointError if a checkpoint cannot be written, and NonFiniteError if training diverges.
    """
    config = config.resolved(cuda=torch.cuda.is_available())
    with Interrupts(config.stop) as interrupts:
        world = start_world(config.parallel)
        with leaving(world):
            run = build_run(config, world, sources, held_out)
            if config.checkpoint.resume:
                run.resume()
            else:
                run.checkpoints.set_aside()
            open_folder(run)
            with contextlib.closing(run), reporting(world):
                summary = loop(run, interrupts)
                if config.checkpoint.export and summary.reason != "signal":
                    summary = finish(run, summary)
            return summary


@contextlib.contextmanager
def leaving(world: World) -> Iterator[None]:
    """Leave the process group at the end of a successful run, and at any end of a single process.

    A rank that fails among others must not leave it: destroying an NCCL group waits for peers, which wait for this rank, and
    the run would hang without a message. The process ends instead, and the launcher ends the others.
    """
    try:
        with reporting(world):
            yield
    except BaseException:
        if world.ranks == 1:
            end_world()
        raise
    end_world()


@contextlib.contextmanager
def reporting(world: World) -> Iterator[None]:
    """Print an exception of one of several ranks at once, before anything that may wait for its peers."""
    try:
        yield
    except Exception as error:
        if world.ranks > 1 and not hasattr(error, "reported"):
            print(f"rank {world.rank} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            error.reported = True  # type: ignore[attr-defined]
        raise


def loop(run: Run, interrupts: Interrupts) -> Summary:
    """Train from the current step to the end of the run. The final state is always saved."""
    config, started = run.config, time.perf_counter()
    record: dict[str, Any] = {}
    evaluation: dict[str, Any] = {}
    done, reason = run.start_step, "metric" if ended_before(run) else "steps"
    while reason == "steps" and done < config.steps:
        record = train_step(run, done, run.loader.take(done))
        done += 1
        if done % config.log.every_steps == 0 or done == config.steps:
            run.write(record)
        if run.held_out and (done == config.steps or is_due(done, config.evaluation.every_steps)):
            run.write(evaluation := evaluate(run, done))
            if good_enough(config.stop, evaluation):
                reason = "metric"
                break
        if stop := interrupts.reason(run.world):
            reason = stop
            break
        # The last step is saved below, so a checkpoint that is due at the last step is not written twice.
        if done < config.steps and is_due(done, config.checkpoint.every_steps):
            run.save(done)
    if done > run.start_step:
        run.save(done)
    run.checkpoints.finish()
    return Summary(done, reason, time.perf_counter() - started, record, evaluation)


def ended_before(run: Run) -> bool:
    """Whether the resumed run had already ended because a metric was good enough at this step. A collective."""
    if run.config.stop.metric is None:
        return False
    records = read_metrics(run.folder / "metrics.jsonl") if run.world.is_main else []
    mine = any(good_enough(run.config.stop, record) for record in records if record["step"] == run.start_step)
    (agreed,) = run.world.largest([mine])
    return bool(agreed)


def finish(run: Run, summary: Summary) -> Summary:
    """Export the model and, if configured, answer held-out questions with it."""
    folder = run.folder / "model"
    export(folder, run.trainee, run.base, run.world, card(run, summary.steps))
    if run.config.evaluation.generate_samples and run.held_out:
        # Generation loads the exported model and may take longer than a collective's time limit. The ranks part here, and
        # the trained model gives up its memory.
        run.world.wait()
        release(run)
        end_world()
        if run.world.is_main:
            run.write(generated := generate(run, folder, summary.steps))
            summary = dataclasses.replace(summary, evaluation=summary.evaluation | generated)
            (folder / "README.md").write_text(card(run, summary.steps), encoding="utf-8")
    return summary


def release(run: Run) -> None:
    """Free the memory of the weights, gradients and optimiser state of a run that has been exported."""
    run.optimizer.state.clear()
    run.optimizer.param_groups.clear()
    run.trainee.to_empty(device=torch.device("meta"))
    if run.world.device.type == "cuda":
        torch.cuda.empty_cache()


def card(run: Run, steps: int) -> str:
    """The model card, with figures from the log, so that a run that resumes after its last step has them as well."""
    if not run.world.is_main:
        return ""
    records = read_metrics(run.folder / "metrics.jsonl")
    last: dict[str, Any] = next((record for record in reversed(records) if "kind" not in record), {})
    figures = {name: value for name, value in last.items() if name.startswith("loss")}
    for record in records:
        if "kind" in record:
            figures |= {name: value for name, value in record.items() if name not in ("kind", "step")}
    return run.card(steps, figures)


def is_due(done: int, every: int | None) -> bool:
    """Whether an action of period `every` is due after `done` steps; never if `every` is None."""
    return every is not None and done % every == 0
