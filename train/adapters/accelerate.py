"""Training under `accelerate launch`: DeepSpeed ZeRO-2 or 3, the FSDP2 of accelerate, or plain data parallelism.

    accelerate launch --use_deepspeed --zero_stage 3 --mixed_precision bf16 -m train.adapters.accelerate configs/seer-9b.toml

For machines that are set up around accelerate. Data, loss, weights and figures are the trainer's; sharding and the update
are done by accelerate. At the end the model is exported as usual. Resuming, held-out evaluation and early stopping are
features of `seer-train` only.

accelerate averages gradients over ranks. Each rank's loss is already divided by the global sum of weights, so it is
multiplied by the number of ranks here.
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
    """Create the Accelerator of this launch.

    Raises ConfigError if the configuration has settings that accelerate decides, or if accelerate would silently ignore the
    requested sharding or precision.
    """
    from accelerate import Accelerator
    from accelerate.utils import DistributedType, InitProcessGroupKwargs

    if config.parallel.replicas > 1 or config.parallel.cpu_offload:
        raise ConfigError(
            "parallel.replicas and parallel.cpu_offload apply to seer-train only; set them in accelerate's configuration file"
        )
    # On a CPU, accelerate does not choose a backend for DeepSpeed and then treats every process as the only one.
    alone = not torch.cuda.is_available() and os.environ.get("ACCELERATE_USE_DEEPSPEED", "false").lower() == "true"
    accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")] if alone else [])
    for name, kind in (("FSDP", DistributedType.FSDP), ("DEEPSPEED", DistributedType.DEEPSPEED)):
        requested = os.environ.get(f"ACCELERATE_USE_{name}", "false").lower() in ("true", "1")
        if requested and accelerator.distributed_type != kind:
            raise ConfigError(
                f"{name} was requested, but accelerate chose {accelerator.distributed_type.value} on "
                f"{accelerator.device.type}: it ignores FSDP on a CPU, and DeepSpeed if `--cpu` is given. Use `torchrun -m "
                "train.sft`, which shards on a CPU, or DeepSpeed with DS_ACCELERATOR=cpu and without `--cpu`"
            )
    if config.parallel.precision == "mixed_bf16" and accelerator.mixed_precision != "bf16":
        raise ConfigError(
            'parallel.precision = "mixed_bf16" is applied by accelerate, whose mixed precision is '
            f"'{accelerator.mixed_precision}': launch with `--mixed_precision bf16`, or set parallel.precision to \"float32\""
        )
    plugin = accelerator.state.deepspeed_plugin if accelerator.distributed_type == DistributedType.DEEPSPEED else None
    if plugin is not None:
        # accelerate derives these from a data loader, and there is none. Accumulation over the micro-batches of a step is
        # done in `step`, so DeepSpeed's is 1.
        plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = 1
        plugin.deepspeed_config["train_batch_size"] = accelerator.num_processes
        plugin.deepspeed_config["gradient_accumulation_steps"] = 1
        plugin.deepspeed_config["gradient_clipping"] = config.optimizer.clip_norm
        plugin.deepspeed_config["zero_allow_untested_optimizer"] = True
        plugin.deepspeed_config.get("zero_optimization", {})["stage3_gather_16bit_weights_on_model_save"] = True
    return accelerator


def prepare_run(config: TrainConfig, accelerator: Any, sources: Sources | None = None) -> Run:
    """Build a run and wrap its model and optimiser with accelerate."""
    world = World(accelerator.process_index, accelerator.num_processes, accelerator.device, None)
    run = build_run(config, world, sources)
    run.trainee.always_run_vision = world.ranks > 1
    run.trainee, run.optimizer = accelerator.prepare(run.trainee, run.optimizer)
    return run


def step(run: Run, accelerator: Any, number: int) -> dict[str, Any]:
    """Run step `number`, counted from 0, with accelerate's backward pass and update; return its record for the log.

    Raises NonFiniteError if the loss or the gradient norm is not finite. The batch of a non-finite loss is saved.
    """
    config, world = run.config, run.world
    data = run.loader.take(number)
    total_weight, batches = agree(run, data)
    totals = ClassTotals(world.device)
    lr = learning_rate(config.optimizer, number, config.steps)
    set_learning_rate(run.optimizer, lr)
    for index, batch in enumerate(batches, 1):
        on_device = batch.to(world.device)
        figures = run.trainee(on_device)
        loss = figures.total * (world.ranks / total_weight)
        if not math.isfinite(world.sum([float(loss.detach())])[0]):
            folder = run.folder / f"non_finite-step-{number + 1:06d}-rank-{world.rank}"
            save_batches(folder, data.batches, {"loss": float(loss.detach())})
            raise NonFiniteError(f"step {number + 1}: the loss is not finite; the batch is kept in '{folder}'")
        backward(run, accelerator, loss, last=index == len(batches))
        totals.add(on_device, figures)
    norm = update(run, accelerator)
    return step_record(run, data, totals, total_weight) | {"step": number + 1, "lr": lr, "grad_norm": norm}


def backward(run: Run, accelerator: Any, loss: torch.Tensor, *, last: bool) -> None:
    """One backward pass. Gradients are reduced on the last pass of a step; DeepSpeed also makes the update there."""
    if is_deepspeed(accelerator):
        accelerator.deepspeed_engine_wrapped.backward(loss, sync_gradients=last)
    elif last:
        accelerator.backward(loss)
    else:
        with accelerator.no_sync(run.trainee):
            accelerator.backward(loss)


def update(run: Run, accelerator: Any) -> float:
    """Clip and update. Returns the gradient norm; raises NonFiniteError before the update if the norm is not finite."""
    if is_deepspeed(accelerator):  # its backward pass has made the update
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
    """Whether accelerate trains with DeepSpeed."""
    return accelerator.distributed_type.value == "DEEPSPEED"


def whole_weights(run: Run, accelerator: Any) -> dict[str, torch.Tensor]:
    """All weights, unsharded, in fp32 on the CPU, under the names of transformers. A collective: every rank must call it."""
    state = accelerator.get_state_dict(run.trainee) or {}
    return {name.removeprefix(PREFIX): tensor.float().cpu() for name, tensor in state.items()}


def fit(config: TrainConfig, sources: Sources | None = None) -> dict[str, Any]:
    """Train under the launch that this process belongs to. Returns the record of the last step."""
    config = config.resolved(cuda=False)  # accelerate applies mixed precision, so the weights are fp32
    accelerator = start(config)
    run = prepare_run(config, accelerator, sources)
    open_folder(run)
    record: dict[str, Any] = {}
    try:
        for number in range(config.steps):
            record = step(run, accelerator, number)
            run.write(record)
        weights = whole_weights(run, accelerator)
        if run.world.is_main and config.checkpoint.export:
            write_export(run.folder / "model", weights, run.base, run.card(config.steps, record))
        run.world.wait()
    finally:
        run.close()
        accelerator.end_training()
    return record


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: CONFIG [key=value ...]. Exits with the status of the error, if there is one."""
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
