"""The same step under `accelerate launch`: DeepSpeed ZeRO-2 or 3, accelerate's FSDP2, or plain data parallelism.

    accelerate launch --use_deepspeed --zero_stage 3 --mixed_precision bf16 -m train.adapters.accelerate configs/seer-9b.toml

For people whose machines are set up around accelerate. Data, loss, weights and figures are the trainer's own; sharding and
the update are accelerate's. At the end the model is exported as always. Checkpoints to resume from, held-out figures and
early stops belong to `seer-train`.

Those engines average gradients over ranks, and ours are shares of a global sum, so the loss is multiplied by the ranks.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch

from seer.config import load_config
from seer.errors import ConfigError, SeerError
from train.config import TrainConfig
from train.export import write_export
from train.metrics import ClassTotals
from train.model.glm4v import PREFIX
from train.optimizer import learning_rate, set_learning_rate
from train.parallel import World
from train.run import Run, Sources, build_run, open_folder
from train.step import NonFiniteError, agree, save_batches, step_record


def start(config: TrainConfig) -> Any:
    """An Accelerator for this launch. Raises ConfigError where it would not do what was asked for."""
    from accelerate import Accelerator
    from accelerate.utils import DistributedType, InitProcessGroupKwargs

    if config.parallel.replicas > 1 or config.parallel.cpu_offload:
        raise ConfigError(
            "parallel.replicas and parallel.cpu_offload belong to seer-train; set them in accelerate's own file"
        )
    # on a CPU accelerate leaves DeepSpeed's backend open and then takes every process for the only one
    alone = not torch.cuda.is_available() and os.environ.get("ACCELERATE_USE_DEEPSPEED", "false").lower() == "true"
    accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")] if alone else [])
    for name, kind in (("FSDP", DistributedType.FSDP), ("DEEPSPEED", DistributedType.DEEPSPEED)):
        asked = os.environ.get(f"ACCELERATE_USE_{name}", "false").lower() in ("true", "1")
        if asked and accelerator.distributed_type != kind:
            raise ConfigError(
                f"{name} was asked for, but accelerate gives {accelerator.distributed_type.value} on {accelerator.device.type} "
                "without a word: with a CPU it drops FSDP, and DeepSpeed too where `--cpu` is given. Use `torchrun -m "
                "train.sft`, which shards on a CPU, or DeepSpeed with DS_ACCELERATOR=cpu and without `--cpu`"
            )
    if config.parallel.precision == "mixed_bf16" and accelerator.mixed_precision != "bf16":
        raise ConfigError(
            'parallel.precision = "mixed_bf16" is accelerate\'s to do, and its mixed precision is '
            f"'{accelerator.mixed_precision}': launch with `--mixed_precision bf16`, or set parallel.precision to \"float32\""
        )
    plugin = accelerator.state.deepspeed_plugin if accelerator.distributed_type == DistributedType.DEEPSPEED else None
    if plugin is not None:
        # there is no data loader to take these from; the number of passes a step is ours to decide
        plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = 1
        plugin.deepspeed_config["train_batch_size"] = accelerator.num_processes
        plugin.deepspeed_config["gradient_accumulation_steps"] = 1
        plugin.deepspeed_config["gradient_clipping"] = config.optimizer.clip_norm
        plugin.deepspeed_config["zero_allow_untested_optimizer"] = True
        plugin.deepspeed_config.get("zero_optimization", {})["stage3_gather_16bit_weights_on_model_save"] = True
    return accelerator


def prepare_run(config: TrainConfig, accelerator: Any, sources: Sources | None = None) -> Run:
    """A run whose model and optimiser are accelerate's."""
    world = World(accelerator.process_index, accelerator.num_processes, accelerator.device, None)
    run = build_run(config, world, sources)
    run.trainee.always_see = world.ranks > 1
    run.trainee, run.optimizer = accelerator.prepare(run.trainee, run.optimizer)
    return run


def step(run: Run, accelerator: Any, number: int) -> dict[str, Any]:
    """The trainer's step with accelerate's backward pass and update."""
    config, world = run.config, run.world
    data = run.loader.take(number)
    total_weight, batches = agree(run, data)
    totals = ClassTotals(world.device)
    lr = learning_rate(config.optimizer, number, config.steps)
    set_learning_rate(run.optimizer, lr)
    for index, batch in enumerate(batches, 1):
        on_device = batch.to(world.device)
        figures = run.trainee(on_device)
        loss = figures.total * (world.ranks / (total_weight or 1.0))
        if not math.isfinite(world.sum([float(loss.detach())])[0]):
            folder = run.folder / f"non_finite-step-{number + 1:06d}-rank-{world.rank}"
            save_batches(folder, data.batches, {"loss": float(loss.detach())})
            raise NonFiniteError(f"step {number + 1}: the loss is not finite; the batch is kept in '{folder}'")
        backward(run, accelerator, loss, last=index == len(batches))
        totals.add(on_device, figures)
    norm = update(run, accelerator)
    return step_record(run, data, totals, total_weight) | {"step": number + 1, "lr": lr, "grad_norm": norm}


def backward(run: Run, accelerator: Any, loss: torch.Tensor, *, last: bool) -> None:
    """One pass; gradients are exchanged, and with DeepSpeed the update is made, on the last."""
    if is_deepspeed(accelerator):
        accelerator.deepspeed_engine_wrapped.backward(loss, sync_gradients=last)
    elif last:
        accelerator.backward(loss)
    else:
        with accelerator.no_sync(run.trainee):
            accelerator.backward(loss)


def update(run: Run, accelerator: Any) -> float:
    """Clip and update; returns the gradient norm. Raises NonFiniteError before the update where that is no number."""
    if is_deepspeed(accelerator):
        norm = accelerator.deepspeed_engine_wrapped.engine.get_global_grad_norm()
        return float(norm) if norm is not None else math.nan
    clipped = accelerator.clip_grad_norm_(run.trainee.parameters(), run.config.optimizer.clip_norm)
    norm = float(clipped.full_tensor() if hasattr(clipped, "full_tensor") else clipped)
    if not math.isfinite(norm):
        raise NonFiniteError(
            f"the gradient norm is {norm}; the update was not made. Lower optimizer.lr or optimizer.clip_norm"
        )
    run.optimizer.step()
    run.optimizer.zero_grad()
    return norm


def is_deepspeed(accelerator: Any) -> bool:
    return accelerator.distributed_type.value == "DEEPSPEED"


def whole_weights(run: Run, accelerator: Any) -> dict[str, torch.Tensor]:
    """Every weight under transformers' names, on the CPU. Every rank must call this."""
    state = accelerator.get_state_dict(run.trainee) or {}
    return {name.removeprefix(PREFIX): tensor.float().cpu() for name, tensor in state.items()}


def fit(config: TrainConfig, sources: Sources | None = None) -> dict[str, Any]:
    """Train under the launch that this process is part of; returns the last step's record."""
    accelerator = start(config)
    run = prepare_run(config, accelerator, sources)
    open_folder(run)
    record: dict[str, Any] = {}
    try:
        for number in range(config.steps):
            record = step(run, accelerator, number)
            run.write(record)
        weights = whole_weights(run, accelerator)
        if run.world.leads and config.checkpoint.export:
            write_export(run.folder / "model", weights, run.base, run.card(config.steps, record))
        run.world.wait()
    finally:
        run.close()
        accelerator.end_training()
    return record


def main(arguments: Sequence[str] | None = None) -> None:
    """CONFIG [key=value ...]"""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given:
        raise SystemExit("usage: accelerate launch ... -m train.adapters.accelerate CONFIG [key=value ...]")
    try:
        fit(load_config(TrainConfig, given[0], given[1:]))
    except SeerError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
