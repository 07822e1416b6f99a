"""Supervised fine-tuning: one loop for one process or many.

    seer-train run configs/seer-9b.toml
    torchrun --nproc-per-node 2 -m train.sft configs/seer-9b.toml --set optimizer.lr=1e-6

Interrupt it anywhere; run it again and it continues.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from train.config import TrainConfig
from train.export import export
from train.parallel import end_world, start_world
from train.run import Run, Sources, build_run, open_folder
from train.step import train_step


@dataclass(frozen=True)
class Summary:
    """How a run ended."""

    steps: int
    reason: str
    seconds: float
    last: dict[str, Any]


def fit(config: TrainConfig, *, sources: Sources | None = None, held_out: Sources | None = None) -> Summary:
    """Train as configured and export the result to `<out>/model`. `sources` stand in for the configured data sets."""
    world = start_world(config.parallel)
    try:
        run = build_run(config, world, sources, held_out)
        open_folder(run)
        try:
            summary = loop(run)
            if config.checkpoint.export:
                export(run.folder / "model", run.trainee, run.base, world)
            return summary
        finally:
            run.close()
    finally:
        end_world()


def loop(run: Run) -> Summary:
    """Every step from where the run stands to where it ends."""
    config, started = run.config, time.perf_counter()
    record: dict[str, Any] = {}
    for step in range(run.start_step, config.steps):
        data = run.loader.take(step)
        record = train_step(run, step, data)
        if (step + 1) % config.log.every_steps == 0 or step + 1 == config.steps:
            run.write(record)
    return Summary(config.steps, "steps", time.perf_counter() - started, record)


def main(arguments: Sequence[str] | None = None) -> None:
    """For torchrun: the same as `seer-train run`."""
    from train.cli import app

    app(["run", *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    main()
