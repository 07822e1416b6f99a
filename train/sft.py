"""Supervised fine-tuning: one loop for one process or many.

    seer-train run configs/seer-9b.toml
    torchrun --nproc-per-node 2 -m train.sft configs/seer-9b.toml --set optimizer.lr=1e-6

Interrupt it anywhere; run it again and it continues.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from train.config import TrainConfig
from train.evaluation import evaluate, generate
from train.export import export
from train.interrupt import Interrupts, good_enough
from train.metrics import read_metrics
from train.parallel import end_world, start_world
from train.run import Run, Sources, build_run, open_folder
from train.step import train_step


@dataclass(frozen=True)
class Summary:
    """How a run ended."""

    steps: int
    """Updates made, those of earlier, interrupted runs included."""
    reason: str
    """`steps`, `metric`, `time` or `signal`."""
    seconds: float
    last: dict[str, Any]
    """The last step's record."""
    evaluation: dict[str, Any]


def fit(config: TrainConfig, *, sources: Sources | None = None, held_out: Sources | None = None) -> Summary:
    """Train as configured and export the result to `<out>/model`. `sources` stand in for the configured data sets."""
    with Interrupts(config.stop) as interrupts:
        world = start_world(config.parallel)
        try:
            run = build_run(config, world, sources, held_out)
            if config.checkpoint.resume:
                run.resume()
            else:
                run.checkpoints.set_aside()
            open_folder(run)
            try:
                summary = loop(run, interrupts)
                if config.checkpoint.export and summary.reason != "signal":
                    summary = finish(run, summary)
                return summary
            finally:
                run.close()
        finally:
            end_world()


def loop(run: Run, interrupts: Interrupts) -> Summary:
    """Every step from where the run stands to where it ends; the state at the end is always saved."""
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
        if done < config.steps and is_due(done, config.checkpoint.every_steps):
            run.save(done)
    if done > run.start_step:
        run.save(done)
    run.checkpoints.finish()
    return Summary(done, reason, time.perf_counter() - started, record, evaluation)


def ended_before(run: Run) -> bool:
    """Whether the run came back to a step at which a figure was good enough: it had ended, and must not go on."""
    if run.config.stop.metric is None:
        return False
    records = read_metrics(run.folder / "metrics.jsonl") if run.world.leads else []
    mine = any(good_enough(run.config.stop, record) for record in records if record["step"] == run.start_step)
    (agreed,) = run.world.largest([mine])
    return bool(agreed)


def finish(run: Run, summary: Summary) -> Summary:
    """Export the model, and read held-out questions with it where that is asked for."""
    folder = run.folder / "model"
    export(folder, run.trainee, run.base, run.world, card(run, summary.steps))
    if run.config.evaluation.generate_samples and run.held_out:
        if run.world.leads:
            run.write(generated := generate(run, folder, summary.steps))
            summary = dataclasses.replace(summary, evaluation=summary.evaluation | generated)
            (folder / "README.md").write_text(card(run, summary.steps), encoding="utf-8")
        run.world.wait()
    return summary


def card(run: Run, steps: int) -> str:
    """The model card, from the log: a run that only had its export left knows its figures too."""
    if not run.world.leads:
        return ""
    records = read_metrics(run.folder / "metrics.jsonl")
    last: dict[str, Any] = next((record for record in reversed(records) if "kind" not in record), {})
    figures = {name: value for name, value in last.items() if name.startswith("loss")}
    for record in records:
        if "kind" in record:
            figures |= {name: value for name, value in record.items() if name not in ("kind", "step")}
    return run.card(steps, figures)


def is_due(done: int, every: int | None) -> bool:
    return every is not None and done % every == 0


def main(arguments: Sequence[str] | None = None) -> None:
    """For torchrun: the same as `seer-train run`."""
    from seer.cli.command import run as run_command
    from train.cli import app

    sys.argv[1:] = ["run", *(sys.argv[1:] if arguments is None else arguments)]
    run_command(app, "seer-train")


if __name__ == "__main__":
    main()
