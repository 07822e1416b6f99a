"""The worker of tests/train/test_distributed.py, run by torchrun with gloo; pytest does not collect it.

torchrun --nproc-per-node 2 tests/train_faults_worker.py replicas OUT
torchrun --nproc-per-node 4 tests/train_faults_worker.py failure OUT
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from train_fakes import config, trajectories

import train.step
from seer.errors import InputError
from train.loop import fit
from train.parallel import build_mesh, end_world, start_world
from train.run import Run, build_run
from train.state import state_tensors
from train.step import train_step


def digest_of(run: Run) -> list[float]:
    """A position-dependent sum of every local shard."""
    shards = (p.to_local() if hasattr(p, "to_local") else p for p in run.trainee.parameters())
    return [float((s.detach().double().flatten() * torch.arange(s.numel()).cos()).sum()) for s in shards]


def replicas(out: Path) -> None:
    """Three steps with stochastic rounding on two replicas, then two more after resuming a checkpoint of the first step."""
    settings = config(
        out / "run",
        optimizer={"kind": "adamw_stochastic", "lr": 1e-3},
        parallel={"replicas": 2, "precision": "bf16"},
        checkpoint={"background": False},
    )
    world = start_world(settings.parallel)
    world = dataclasses.replace(world, mesh=build_mesh("cpu", 2, 2))
    results = []
    for resumes in (False, True):
        run = build_run(settings, world, [trajectories(24)])
        if resumes:
            run.resume()
        for step in range(run.start_step, 3):
            train_step(run, step, run.loader.take(step))
            if step == 0:
                run.save(1)
        gathered: list[list[float]] = [[], []]
        dist.all_gather_object(gathered, digest_of(run))
        results.append({"start": run.start_step, "digests": gathered})
        run.close()
    if world.is_main:
        (out / "results.json").write_text(json.dumps(results))
    dist.barrier()
    end_world()


def eight_bit(out: Path) -> None:
    """Resume a checkpoint of one process on two, train a step, and save it for one process. The moments are 8-bit."""
    settings = config(out / "run", optimizer={"kind": "adamw_8bit"}, checkpoint={"background": False})
    world = start_world(settings.parallel)
    run = build_run(settings, world, [trajectories(24)])
    run.resume()
    moments = {name: value for name, value in state_tensors(run.trainee, run.optimizer).items() if "exp_avg" in name}
    whole = {name: value.full_tensor() if hasattr(value, "full_tensor") else value for name, value in moments.items()}
    train_step(run, run.start_step, run.loader.take(run.start_step))
    run.save(run.start_step + 1)
    run.close()
    if world.is_main:
        save_file({name: value.clone().contiguous() for name, value in whole.items()}, out / "moments.safetensors")
    dist.barrier()
    end_world()


def failure(out: Path) -> None:
    """Rank 1 fails in its second step."""
    clip, calls = train.step.clip_gradients, []

    def failing(*arguments: object) -> float:
        calls.append(1)
        if os.environ["RANK"] == "1" and len(calls) == 2:
            raise InputError("page 7 of 'x.pdf' is damaged; remove it")
        return clip(*arguments)  # type: ignore[arg-type]

    train.step.clip_gradients = failing
    fit(config(out, steps=6), sources=[trajectories(24)])


if __name__ == "__main__":
    {"replicas": replicas, "eight_bit": eight_bit, "failure": failure}[sys.argv[1]](Path(sys.argv[2]))
