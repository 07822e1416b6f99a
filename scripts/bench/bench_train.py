"""Measure speed, memory and exactness of training a small model on a CPU, compared with transformers.Trainer.

    python scripts/bench/bench_train.py [--quick]

Both trainers use the same trajectories in the same order and the same optimiser. The Trainer has a padding collator and
samples that are encoded and drawn in advance; ours draws its pages during training. The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch
from torch.nn import functional

from seer.config import build_config
from seer.models.checkpoint import load
from seer.models.small import build_small
from seer.rendering import render_text
from seer.schema import Excerpt, PageStyle, Trajectory, Turn
from train.config import TrainConfig
from train.data.dataset import TrainingSample
from train.model.loss import weighted_nll
from train.parallel import World, end_world, reduce_now, start_world
from train.run import Run, build_run
from train.step import agree, train_step

STYLE = PageStyle(
    page_width_px=168, page_height_px=168, margin_x_px=6, margin_y_px=6, font_size_pt=11, line_height_pt=13
)
LR, BATCH = 1e-3, 8


def trajectory(number: int) -> Trajectory:
    """Return a conversation about one line of a document of one to seven pages, so that lengths vary as in real data."""
    rng = random.Random(number)
    words = ("invoice", "laptop", "monitor", "paper", "total", "price", "street", "garden")
    lines = [f"{rng.choice(words)} {rng.choice(words)} {rng.randint(0, 99999)}" for _ in range(rng.randint(4, 80))]
    source = "\n".join(lines)
    document = render_text(source, STYLE)
    page = document.page(rng.randint(1, len(document.pages)))
    return Trajectory(
        id=f"bench-{number}",
        source=source,
        style=STYLE,
        turns=(
            Turn(kind="prompt", text="What is the price?", pages=tuple(range(1, len(document.pages) + 1))),
            Turn(kind="call", pages=(page.number,)),
            Turn(kind="observation", excerpts=(Excerpt(page=page.number, start=page.start, text=page.text),)),
            Turn(kind="think", text="It stands on that page."),
            Turn(kind="answer", text=page.text.split("\n")[0]),
        ),
    )


def settings(base: Path, out: Path, steps: int, **batching: Any) -> TrainConfig:
    """Return the configuration of a run from the checkpoint `base`."""
    values = {
        "out": str(out),
        "steps": steps,
        "data": {"sets": [{"path": "bench"}], "cache_mib": 0},
        "model": {"path": str(base)},
        "optimizer": {"lr": LR, "betas": (0.9, 0.98)},
        "batching": {"global_batch": BATCH, "max_tokens": 8192, **batching},
    }
    return build_config(TrainConfig, values, where="bench")


# ── Speed ────────────────────────────────────────────────────────────────────────────────────────


def ours(run: Run, steps: int) -> list[dict[str, Any]]:
    """Train with our trainer and return the record of each step."""
    return [train_step(run, step, run.loader.take(step)) for step in range(steps)]


def theirs(
    base: Path, out: Path, samples: list[TrainingSample], steps: int, pixels: list[torch.Tensor]
) -> tuple[list[float], list[float]]:
    """Train with transformers.Trainer and a padding collator; return the loss and the seconds of each step."""
    from torch.utils.data import SequentialSampler
    from transformers import Trainer, TrainerCallback, TrainingArguments

    model = load(base, device="cpu").model.train()

    def pad(indices: list[int]) -> dict[str, torch.Tensor]:
        chosen = [samples[i] for i in indices]
        longest = max(map(len, chosen))

        def field(values: list[np.ndarray], fill: int) -> torch.Tensor:
            rows = [np.pad(v.astype(np.int64), (0, longest - len(v)), constant_values=fill) for v in values]
            return torch.from_numpy(np.stack(rows))

        return {
            "input_ids": field([s.ids for s in chosen], 0),
            "labels": field([np.where(s.weights > 0, s.ids, -100) for s in chosen], -100),
            "attention_mask": field([np.ones(len(s)) for s in chosen], 0),
            "mm_token_type_ids": field([s.types for s in chosen], 0).int(),
            "pixel_values": torch.cat([pixels[i] for i in indices]),
            "image_grid_thw": torch.from_numpy(np.concatenate([s.grid for s in chosen])),
        }

    class InOrder(Trainer):
        def _get_train_sampler(self, *_: Any) -> SequentialSampler:
            return SequentialSampler(range(len(samples)))

    class Watch(TrainerCallback):
        def __init__(self) -> None:
            self.begun: list[float] = []
            self.ended: list[float] = []

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.begun.append(time.perf_counter())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.ended.append(time.perf_counter())

    watch = Watch()
    arguments = TrainingArguments(
        output_dir=str(out), per_device_train_batch_size=BATCH, max_steps=steps, learning_rate=LR, adam_beta2=0.98,
        lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=1.0, logging_steps=1, save_strategy="no",
        report_to=[], use_cpu=True, remove_unused_columns=False, disable_tqdm=True, logging_nan_inf_filter=False,
    )  # fmt: skip
    trainer = InOrder(model, arguments, data_collator=pad, train_dataset=list(range(len(samples))), callbacks=[watch])
    trainer.log = lambda logs, *_, **__: trainer.state.log_history.append(logs)  # type: ignore[method-assign]
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return losses, [end - start for start, end in zip(watch.begun, watch.ended, strict=True)]


def compare_speed(base: Path, out: Path, steps: int) -> dict[str, float]:
    """Train with both trainers and return throughput, the largest loss difference and shares of time and padding."""
    trajectories = [trajectory(i) for i in range(steps * BATCH)]
    run = build_run(settings(base, out, steps), World(0, 1, torch.device("cpu"), None), [trajectories])
    order = [index for step in range(steps) for _, index in run.loader.plan.step_indices(step)]
    samples = [sample for i in order if isinstance(sample := run.loader.datasets[0][i], TrainingSample)]
    pixels = [floats(run, trajectories[i]) for i in order]
    their_losses, their_seconds = theirs(base, out, samples, steps, pixels)
    records = ours(run, steps)
    run.close()
    warm = steps // 4  # The first steps warm up the caches of both trainers.
    lengths = [len(sample) for sample in samples]
    padded = sum(max(lengths[i : i + BATCH]) * BATCH for i in range(0, len(lengths), BATCH))
    compared = min(20, steps)
    tokens = np.array([r["text_tokens"] + r["vision_tokens"] for r in records[warm:]])
    our_seconds = np.array([r["step_s"] for r in records[warm:]])
    their_times = np.array(their_seconds[warm:])
    return {
        # Medians, so that a step during which the machine was busy has no effect.
        "ours_tokens_per_s": float(np.median(tokens / our_seconds)),
        "trainer_tokens_per_s": float(np.median(tokens / their_times)),
        "speedup": float(np.median(their_times / our_seconds)),
        "worst_loss_difference": max(
            abs(a["loss"] - b) for a, b in zip(records[:compared], their_losses, strict=False)
        ),
        "data_wait_share": sum(r["data_wait_s"] for r in records[warm:]) / sum(our_seconds),
        "padding_share": 1 - sum(lengths) / padded,
        "head_rows_share": sum(int((s.weights > 0).sum()) for s in samples) / padded,
    }


def floats(run: Run, item: Trajectory) -> torch.Tensor:
    """Return the pixel values of a trajectory's pages, as the processor of transformers makes them."""
    document = render_text(item.source, item.style)
    sizes = {page.number: (page.width_px, page.height_px) for page in document.pages}
    slots = run.base.encoder.encode(item.turns, sizes).slots
    return run.base.pixels([document.page(slot.page).image() for slot in slots], slots)


# ── Memory of the loss ───────────────────────────────────────────────────────────────────────────


def loss_memory_ratio(rows: int = 2048, vocabulary: int = 151552, width: int = 32) -> float:
    """Return the peak memory of our loss, forward and backward, over that of logits and cross entropy."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, width, generator=generator, requires_grad=True)
    head = torch.randn(vocabulary, width, generator=generator, requires_grad=True)
    targets = torch.randint(0, vocabulary, (rows,), generator=generator)
    weights = torch.ones(rows)

    def peak(loss: Any) -> int:
        hidden.grad = head.grad = None
        with torch.profiler.profile(profile_memory=True) as profile:
            loss().backward()
        held = most = 0
        events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
        for event in sorted(events, key=lambda e: e.start_ns()):
            held += event.nbytes()
            most = max(most, held)
        return most

    ours_bytes = peak(lambda: weighted_nll(hidden, head, targets, weights)[0])
    plain_bytes = peak(lambda: functional.cross_entropy(hidden @ head.T, targets, reduction="sum"))
    return ours_bytes / plain_bytes


# ── Two processes ────────────────────────────────────────────────────────────────────────────────


def gradients(world: World, base: Path, packing: str) -> dict[str, torch.Tensor]:
    """Return the unsharded gradients of one step, before clipping."""
    trajectories = [trajectory(i) for i in range(BATCH)]
    run = build_run(settings(base, base.parent / "grad", 1, packing=packing), world, [trajectories])
    total, batches = agree(run, run.loader.take(0))
    for number, batch in enumerate(batches, 1):
        reduce_now(run.trainee, number == len(batches))
        (run.trainee(batch).total / total).backward()
    run.close()
    grads = {n: p.grad for n, p in run.trainee.named_parameters() if p.grad is not None}
    return {n: (g.full_tensor() if hasattr(g, "full_tensor") else g).contiguous() for n, g in grads.items()}


def worker(base: Path, out: Path) -> None:
    """Compute the gradients as one of two processes; rank 0 saves them."""
    from safetensors.torch import save_file

    torch.set_num_threads(1)
    config = settings(base, out, 1)
    world = start_world(config.parallel)
    found = gradients(world, base, "single")
    if world.is_main:
        save_file(found, out / "gradients.safetensors")
    world.wait()
    end_world()


def two_process_error(base: Path, out: Path) -> float:
    """Return the largest difference between the gradients of two processes and of one, over the largest gradient.

    Each of the two processes has 4 micro-batches.
    """
    from safetensors.torch import load_file

    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__]
    subprocess.run([*command, "--worker", str(base), str(out)], check=True, stdout=subprocess.DEVNULL)
    two = load_file(out / "gradients.safetensors")
    one = gradients(World(0, 1, torch.device("cpu"), None), base, "packed")
    scale = max(float(g.abs().max()) for g in one.values())
    return max(float((one[name] - two[name]).abs().max()) for name in one) / scale


def main() -> None:
    """Run all measurements and print the last line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer steps; under a minute")
    parser.add_argument("--worker", nargs=2, metavar=("BASE", "OUT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(*(Path(part) for part in arguments.worker))
        return
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        base = build_small(out / "base", seed=0)
        speed = compare_speed(base, out, steps=5 if arguments.quick else 24)
        ratio = loss_memory_ratio(rows=1024 if arguments.quick else 2048)
        error = two_process_error(base, out)
    for name, value in speed.items():
        print(f"{name:24} {value:.4g}")
    print(
        "reasons for the speed: no padding; the head and the last MLP only on supervised positions; one call for all images "
        "of a size; a linear patch embedding on grey bytes; norms, gates and rotations in few passes over memory; pages "
        "prepared in the background"
    )
    result = {
        "bench": "train",
        "speedup_vs_trainer": round(speed["speedup"], 3),
        "loss_memory_ratio": round(ratio, 4),
        "data_wait_share": round(speed["data_wait_share"], 4),
        "grad_rel_error_2proc": error,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
