"""One training step: sum the weight over ranks, accumulate gradients over micro-batches, clip, check, update.

The loss of a step is (sum of weight · nll) / (sum of weight). Both sums are over all micro-batches of all ranks, so the loss
does not depend on how the trajectories of the step are packed or distributed.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from seer.errors import SeerError
from train.data.collate import Batch, idle_batch
from train.data.loader import StepData
from train.metrics import ClassTotals, class_figures, peak_memory_bytes
from train.optimizer import learning_rate, set_learning_rate
from train.parallel import clip_gradients, reduce_now
from train.planning.flops import peak_flops

if TYPE_CHECKING:
    from train.run import Run


class NonFiniteError(SeerError, ArithmeticError):
    """A loss or gradient norm is not finite. The update was not made."""

    exit_code = 1


def train_step(run: Run, step: int, data: StepData) -> dict[str, Any]:
    """Run step number `step`, counted from 0, and return its record for the log. A collective.

    Raises NonFiniteError before the update if the loss or the gradient norm is not finite.
    """
    started = time.perf_counter()
    config, world = run.config, run.world
    total_weight, batches = agree(run, data)
    totals = ClassTotals(world.device)
    run.optimizer.zero_grad(set_to_none=True)
    for number, batch in enumerate(batches, 1):
        last = number == len(batches)
        reduce_now(run.trainee, last or config.parallel.sync_every_micro_batch, last)
        on_device = batch.to(world.device)
        figures = run.trainee(on_device)
        (figures.total / total_weight).backward()
        totals.add(on_device, figures)
    norm = clip_gradients(run.trainee, config.optimizer.clip_norm)
    record = step_record(run, data, totals, total_weight)
    record |= {"step": step + 1, "lr": learning_rate(config.optimizer, step, config.steps), "grad_norm": norm}
    if not (math.isfinite(norm) and math.isfinite(record.get("loss", 0.0))):
        raise non_finite(run, step, data, record)
    set_learning_rate(run.optimizer, record["lr"])
    run.optimizer.step()
    return record | speed(run, record, time.perf_counter() - started, data.wait_s)


def agree(run: Run, data: StepData) -> tuple[float, list[Batch]]:
    """The weight of the step over all ranks, and this rank's micro-batches, filled up with idle ones. A collective."""
    (total_weight,) = run.world.sum([data.weight_sum])
    return total_weight, fill_up(run, data.batches)


def fill_up(run: Run, batches: list[Batch]) -> list[Batch]:
    """Add idle micro-batches until this rank has as many as the rank with most, since sharded passes are collectives."""
    (passes,) = run.world.largest([len(batches)])
    pixels = run.base.encoder.geometry.patch_px**2
    return [*batches, *[idle_batch(run.base.encoder.stop_ids[-1], pixels)] * (int(passes) - len(batches))]


def step_record(run: Run, data: StepData, totals: ClassTotals, total_weight: float) -> dict[str, Any]:
    """The figures of a step, summed over all ranks. A collective."""
    tokens = sum(batch.num_tokens for batch in data.batches)
    vision = sum(batch.num_vision_tokens for batch in data.batches)
    samples = sum(len(batch.sample_ids) for batch in data.batches)
    flops = sum(run.flops.of_batch(batch) for batch in data.batches)
    # One exchange for all figures of the step.
    class_sums = totals.values()
    sums = run.world.sum([*class_sums, tokens, vision, samples, data.rejected, flops])
    all_tokens, all_vision, all_samples, rejected, all_flops = sums[len(class_sums) :]
    record: dict[str, Any] = class_figures(sums[: len(class_sums)], total_weight)
    supervised = sum(value for name, value in record.items() if name.startswith("tokens/"))
    return record | {
        "weight_sum": total_weight,
        "supervised_share": supervised / all_tokens if all_tokens else 0.0,
        "text_tokens": all_tokens - all_vision,
        "vision_tokens": all_vision,
        "samples": all_samples,
        "rejected": rejected,
        "micro_batches": len(data.batches),
        "flops": all_flops,
        "peak_memory_gib": peak_memory_bytes(run.world.device) / 2**30,
    }


def speed(run: Run, record: dict[str, Any], busy_s: float, wait_s: float) -> dict[str, float]:
    """Times, tokens per second over all ranks and, on a known GPU, model FLOPs utilisation with vision included."""
    seconds = busy_s + wait_s
    tokens = record["text_tokens"] + record["vision_tokens"]
    figures = {"step_s": seconds, "data_wait_s": wait_s, "tokens_per_s": tokens / seconds}
    if run.world.device.type == "cuda" and (peak := peak_flops(torch.cuda.get_device_name(run.world.device))):
        figures["mfu"] = record["flops"] / (seconds * peak * run.world.ranks)
    return figures


def non_finite(run: Run, step: int, data: StepData, record: dict[str, Any]) -> NonFiniteError:
    """Save the batches of the step in the run folder for inspection, and build the error."""
    folder = run.folder / f"non_finite-step-{step + 1:06d}-rank-{run.world.rank}"
    save_batches(folder, data.batches, record)
    return NonFiniteError(
        f"step {step + 1}: loss {record.get('loss')}, gradient norm {record['grad_norm']}; the update was not made and the "
        f"batch is kept in '{folder}'. Lower optimizer.lr or optimizer.clip_norm, or inspect the samples there"
    )


def save_batches(folder: Path, batches: list[Batch], record: dict[str, Any]) -> None:
    """Write micro-batches as safetensors, with a JSON file of sample ids and figures."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    for number, batch in enumerate(batches):
        tensors = {n: t.contiguous() for n, t in vars(batch).items() if isinstance(t, torch.Tensor)}
        save_file(tensors, folder / f"micro_batch-{number}.safetensors")
    about = {"samples": [batch.sample_ids for batch in batches], "record": {k: repr(v) for k, v in record.items()}}
    (folder / "about.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
