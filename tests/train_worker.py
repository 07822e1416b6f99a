"""The worker of tests/train/test_distributed.py, run by torchrun on two processes with gloo; pytest does not collect it.

torchrun --nproc-per-node 2 tests/train_worker.py OUT
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from train_fakes import config, trajectories

from train.config import TrainConfig
from train.evaluation import evaluate
from train.export import export, full_weights
from train.model.glm4v import PREFIX
from train.parallel import World, build_mesh, end_world, reduce_now, start_world
from train.run import Run, build_run
from train.step import agree, train_step

PICTURES, WORDS = trajectories(24), trajectories(24, False)


def make(world: World, out: Path, items: Any = PICTURES, **sections: Any) -> Run:
    settings: TrainConfig = config(out, **sections)
    if settings.parallel.replicas > 1:
        world = dataclasses.replace(world, mesh=build_mesh("cpu", world.ranks, settings.parallel.replicas))
    return build_run(settings, world, [items], [items[:5]])


def whole(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    gathered = {n: t.full_tensor() if hasattr(t, "full_tensor") else t for n, t in tensors.items()}
    return {n.removeprefix(PREFIX): t.detach().clone().contiguous() for n, t in gathered.items()}


def gradients(run: Run, step: int = 0) -> dict[str, torch.Tensor]:
    """The gradients of one step, before clipping."""
    data = run.loader.take(step)
    total, batches = agree(run, data)
    for number, batch in enumerate(batches, 1):
        last = number == len(batches)
        reduce_now(run.trainee, last or run.config.parallel.sync_every_micro_batch, last)
        (run.trainee(batch).total / total).backward()
    return whole({n: p.grad for n, p in run.trainee.named_parameters() if p.grad is not None})


def pictures_on_one_rank(world: World, out: Path) -> dict[str, Any]:
    """In every step, rank 0 has pictures and rank 1 has none."""
    mixed = [PICTURES[i] if i % 2 == 0 else WORDS[i] for i in range(8)]
    run = make(world, out, mixed, data={"shuffle": False}, batching={"global_batch": 4})
    records = [train_step(run, step, run.loader.take(step)) for step in range(2)]
    local = run.loader.prepare(0).batches
    seen = world.sum([float(any(b.num_vision_tokens for b in local))])
    return {"loss": records[-1]["loss"], "ranks_with_pictures": seen[0]}


def uneven(world: World, out: Path) -> float:
    """Three trajectories on two ranks, one per forward pass: the second rank has an idle batch in the last pass."""
    run = make(world, out, batching={"global_batch": 3, "packing": "single"})
    return train_step(run, 0, run.loader.take(0))["loss"]


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "mixed_bf16": {"parallel": {"precision": "mixed_bf16"}},
    "offload": {"parallel": {"cpu_offload": True}},
    "hsdp": {"parallel": {"replicas": 2}},
    "checkpointing": {"model": {"activation_checkpointing": True}},
    "frozen": {"model": {"freeze_vision": True, "freeze_merger": True, "activation_checkpointing": True}},
    "muon": {"optimizer": {"kind": "muon"}},
    "bf16_states": {"optimizer": {"kind": "adamw_bf16_states", "betas": (0.9, 0.95)}},
}


def main(out: Path) -> None:
    world = start_world(config(out).parallel)
    results: dict[str, Any] = {"ranks": world.ranks}
    for name, parallel in (
        ("True", {}),
        ("False", {"sync_every_micro_batch": False}),
        ("replicas", {"replicas": 2}),
    ):
        sections = {"batching": {"global_batch": 8, "packing": "single"}, "parallel": parallel}
        grads = gradients(make(world, out / "g", **sections))
        if world.is_main:
            save_file(grads, out / f"gradients-{name}.safetensors")
    results["pictures_on_one_rank"] = pictures_on_one_rank(world, out / "half")
    results["uneven"] = uneven(world, out / "uneven")
    for name, sections in VARIANTS.items():
        run = make(world, out / name, **sections)
        results[name] = [train_step(run, step, run.loader.take(step))["loss"] for step in range(2)]
        if name == "plain":
            results["evaluated"] = evaluate(run, 2)
            run.save(2)
            train_step(run, 2, run.loader.take(2))  # continues while the checkpoint is written
            run.checkpoints.finish()
            weights = full_weights(run.trainee)
            export(out / "exported", run.trainee, run.base, world)
            if world.is_main:
                save_file(weights, out / "after-3.safetensors")
            back = make(world, out / name, **sections)
            back.resume()
            results["resumed_at"] = back.start_step
            train_step(back, 2, back.loader.take(2))
            again = full_weights(back.trainee)
            results["resumed_equal"] = all(torch.equal(again[n], weights[n]) for n in weights)
            back.close()
        run.close()
    if world.is_main:
        (out / "results.json").write_text(json.dumps(results))
    dist.barrier()
    end_world()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
