"""Check the trainer on this machine's GPU: kernels, gradients, memory, speed, checkpoints. Needs no download.

    python scripts/gpu_check.py --json                  on one GPU, at most ten minutes
    python scripts/gpu_check.py --cpu --json            a reduced form on a CPU, about a minute
    python scripts/gpu_check.py --report check.jsonl    also write the verdicts to a file, to attach to an issue

Every check prints one verdict: its name, `passed`, `skipped` or `failed`, a figure and its bound. The last line counts them.
The exit status is 1 if a check failed. Weights are drawn at random: on a GPU the widths of the 9B model with two text layers
and two vision blocks, on a CPU a model of 0.2 million parameters.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seer.config import build_config
from seer.models.checkpoint import load
from seer.models.small import SmallShape, build_small
from seer.rendering import render_text
from seer.schema import Excerpt, PageStyle, Trajectory, Turn
from train.config import ModelConfig, ParallelConfig, TrainConfig
from train.data.collate import Batch, collate
from train.data.dataset import Recipe, TrainingSample, make_sample
from train.export import export
from train.model.glm4v import Trainee, prepare
from train.parallel import World, end_world, spread, start_world
from train.planning.flops import peak_flops
from train.planning.memory import Workload, plan_workload
from train.run import build_run
from train.state import state_tensors
from train.step import train_step

Verdict = dict[str, Any]
WIDE = SmallShape(hidden=4096, text_layers=2, text_heads=32, text_kv_heads=2, text_ffn=13696, vision_depth=2)
TINY = SmallShape(
    hidden=64,
    text_layers=2,
    text_heads=2,
    text_kv_heads=1,
    text_ffn=64,
    vision_depth=2,
    vision_heads=2,
    vision_ffn=64,
    image_px=112,
    max_positions=4096,
    vocabulary=512,
)
STYLE = PageStyle(
    page_width_px=112,
    page_height_px=56,
    margin_x_px=4,
    margin_y_px=4,
    font_size_pt=9,
    line_height_pt=11,
    crop_last_page=True,
)


class Skipped(Exception):
    """A check does not apply to this machine, for the given reason."""


@dataclass
class Bench:
    """The machine and the model that all checks use."""

    device: torch.device
    base: Path
    folder: Path
    trajectories: list[Trajectory]

    @property
    def cuda(self) -> bool:
        """Whether the checks run on a GPU."""
        return self.device.type == "cuda"

    def config(self, name: str, **sections: Any) -> TrainConfig:
        """The configuration of a short run."""
        values: dict[str, Any] = {
            "out": str(self.folder / name),
            "steps": 4,
            "data": {"sets": [{"path": "random"}], "prefetch_steps": 0},
            "model": {"path": str(self.base)},
            "optimizer": {"lr": 1e-3},
            "batching": {"global_batch": 4, "max_tokens": 1024},
            "checkpoint": {"export": False},
        }
        for section, value in sections.items():
            values[section] = {**values.get(section, {}), **value}
        return build_config(TrainConfig, values, where="gpu_check")

    def batch(self) -> Batch:
        """A packed row with pictures of several sizes, several pictures in a sample, and a sample of text alone."""
        checkpoint = load(self.base, device="cpu")
        recipe = Recipe(checkpoint.encoder, checkpoint.scaling, self.config("x").loss, 4096)
        made = [make_sample(item, recipe) for item in self.trajectories[:6]]
        return collate([sample for sample in made if isinstance(sample, TrainingSample)])


def trajectory(seed: int) -> Trajectory:
    """A conversation about a line of a document of random words; every third has no pages."""
    rng = random.Random(seed)
    lines = [
        f"{rng.choice(('red', 'blue', 'old', 'new'))} {rng.randint(0, 9999):04d}" for _ in range(rng.randint(2, 14))
    ]
    source = "\n".join(lines)
    document = render_text(source, STYLE)
    page = document.pages[rng.randrange(len(document.pages))]
    shown = () if seed % 3 == 2 else tuple(range(1, len(document.pages) + 1))
    return Trajectory(
        id=f"random-{seed}",
        source=source,
        style=STYLE,
        turns=(
            Turn(kind="prompt", text="Which?", pages=shown),
            Turn(kind="call", pages=(page.number,)),
            Turn(kind="observation", excerpts=(Excerpt(page=page.number, start=page.start, text=page.text),)),
            Turn(kind="answer", text=page.text.split("\n")[0]),
        ),
        relevant_pages=(page.number,),
    )


# ── Checks ───────────────────────────────────────────────────────────────────────────────────────


def versions(bench: Bench) -> Verdict:
    """Versions of the libraries, the device, and the kernels that are installed."""
    found = {}
    for name in ("torch", "transformers", "torchao", "liger-kernel", "flash-attn", "peft"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    name = torch.cuda.get_device_name(bench.device) if bench.cuda else "cpu"
    return {"figure": len(found), "bound": ">= 2", "ok": len(found) >= 2, "device": name, "versions": found}


def gradients(trainee: Trainee, batch: Batch, device: torch.device) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss per weight and the gradients on the CPU in fp32."""
    figures = trainee(batch.to(device))
    (figures.total / batch.weight_sum).backward()
    grads = {name: p.grad for name, p in trainee.named_parameters() if p.grad is not None}
    whole = {name: (g.full_tensor() if hasattr(g, "full_tensor") else g).float().cpu() for name, g in grads.items()}
    return float(figures.total.detach()) / batch.weight_sum, whole


def parity(**switches: Any) -> Callable[[Bench], Verdict]:
    """A check that loss and gradients under these switches equal those in fp32 on the CPU without them."""

    def check(bench: Bench) -> Verdict:
        if not bench.cuda and (switches.get("liger") or switches.get("attention") == "flash_attention_2"):
            raise Skipped("needs a GPU")
        batch = bench.batch()
        plain = prepare(load(bench.base, device="cpu"), ModelConfig(path="x"), 0)
        wanted_loss, wanted = gradients(plain, batch, torch.device("cpu"))
        try:
            ours = prepare(load(bench.base, device="cpu"), ModelConfig(path="x", **switches), 0)
        except ValueError as error:  # ConfigError: a kernel is not installed
            raise Skipped(str(error)) from None
        parallel = ParallelConfig(precision="mixed_bf16" if bench.cuda else "float32")
        world = start_world(parallel) if bench.cuda else World(0, 1, bench.device, None)
        loss, got = gradients(spread(ours, parallel, world), batch, bench.device)
        worst = min(wanted, key=lambda name: cosine(wanted[name], got[name]))
        value = cosine(wanted[worst], got[worst])
        return {
            "figure": round(value, 6),
            "bound": "> 0.999",
            "ok": value > 0.999 and abs(loss - wanted_loss) < 0.02 * wanted_loss,
            "tensor": worst,
            "loss": [round(wanted_loss, 5), round(loss, 5)],
        }

    return check


def cosine(left: torch.Tensor, right: torch.Tensor) -> float:
    """The cosine between two gradients; 1 if both are zero."""
    norms = float(left.norm() * right.norm())
    if norms == 0:
        return 1.0 if float(left.norm()) == float(right.norm()) else 0.0
    return float((left.double() * right.double()).sum()) / norms


def memory(bench: Bench) -> Verdict:
    """The peak of three steps against the plan."""
    if not bench.cuda:
        raise Skipped("needs a GPU")
    config = bench.config("memory")
    world = start_world(config.parallel)
    run = build_run(config, world, [bench.trajectories])
    torch.cuda.reset_peak_memory_stats()
    for step in range(3):
        train_step(run, step, run.loader.take(step))
    measured = torch.cuda.max_memory_allocated()
    batches = [batch for step in range(3) for batch in run.loader.prepare(step).batches]
    largest = max(batches, key=lambda batch: batch.num_tokens)
    load_ = Workload(largest.num_tokens, largest.num_vision_tokens, len(largest.targets_N))
    planned = plan_workload(run.base.model.config, run.config, load_, gpus=1).peak_bytes
    run.close()
    return {"figure": round(planned / measured, 4), "bound": "0.9 to 1.1", "ok": 0.9 <= planned / measured <= 1.1}


def speed(bench: Bench) -> Verdict:
    """Tokens per second of training steps after the first; the utilisation of a known GPU."""
    config = bench.config("speed")
    run = build_run(config, start_world(config.parallel), [bench.trajectories])
    records = [train_step(run, step, run.loader.take(step)) for step in range(4)]
    run.close()
    rate = sum(record["tokens_per_s"] for record in records[1:]) / 3
    known = bench.cuda and peak_flops(torch.cuda.get_device_name(bench.device))
    return {
        "figure": round(rate, 1),
        "bound": "> 0",
        "ok": rate > 0 and records[-1]["loss"] < records[0]["loss"] * 1.5,
        "mfu": round(records[-1]["mfu"], 4) if known else None,
    }


def resume(bench: Bench) -> Verdict:
    """A run that is saved, resumed and continued against the same run without interruption."""
    config = bench.config("resume")
    world = start_world(config.parallel)
    whole = build_run(config, world, [bench.trajectories])
    for step in range(2):
        train_step(whole, step, whole.loader.take(step))
    started = time.perf_counter()
    whole.save(2)
    whole.checkpoints.finish()
    seconds = time.perf_counter() - started
    back = build_run(config, world, [bench.trajectories])
    back.resume()
    after = [float(train_step(run, 2, run.loader.take(2))["loss"]) for run in (whole, back)]
    left, right = (state_tensors(run.trainee, run.optimizer) for run in (whole, back))
    worst = max(
        float((local(left[name]) - local(right[name])).abs().max()) for name in left if name.startswith("model.")
    )
    # Kernels with atomic additions make gradients on a GPU differ in their last digits.
    bound = 1e-4 if bench.cuda else 0.0
    whole.close()
    back.close()
    return {
        "figure": worst,
        "bound": f"<= {bound:g}",
        "ok": worst <= bound,
        "losses": after,
        "save_s": round(seconds, 2),
    }


def local(tensor: Any) -> torch.Tensor:
    """This rank's part of a tensor, in fp32."""
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).float()


def exported(bench: Bench) -> Verdict:
    """The logits of an exported model against those of its base, which has the same weights."""
    config = bench.config("export")
    run = build_run(config, start_world(config.parallel), [bench.trajectories])
    folder = export(bench.folder / "exported", run.trainee, run.base, run.world)
    run.close()
    ids = torch.arange(16)[None]
    with torch.no_grad():
        logits = [load(path, device="cpu").model(input_ids=ids).logits for path in (bench.base, folder)]
    error = float((logits[0] - logits[1]).abs().max())
    return {"figure": error, "bound": "<= 1e-05", "ok": error <= 1e-5}


CHECKS: dict[str, Callable[[Bench], Verdict]] = {
    "versions": versions,
    "parity grouped": parity(attention="grouped"),
    "parity sdpa": parity(attention="sdpa"),
    "parity flash_attention_2": parity(attention="flash_attention_2"),
    "parity checkpointing": parity(activation_checkpointing=True),
    "parity liger": parity(liger=True),
    "memory": memory,
    "speed": speed,
    "resume": resume,
    "export": exported,
}


def verdicts(bench: Bench) -> Iterator[Verdict]:
    """Run all checks. A check that raises has failed, with its error as the reason."""
    for name, check in CHECKS.items():
        started = time.perf_counter()
        try:
            found = check(bench)
            result = {"check": name, "verdict": "passed" if found.pop("ok") else "failed", **found}
        except Skipped as reason:
            result = {"check": name, "verdict": "skipped", "reason": str(reason)}
        except Exception as error:  # one check must not hide the verdicts of the others
            result = {"check": name, "verdict": "failed", "reason": f"{type(error).__name__}: {error}"}
        yield {**result, "seconds": round(time.perf_counter() - started, 1)}


def main() -> int:
    """Run the checks and print the verdicts. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Check the trainer on this machine.")
    parser.add_argument("--cpu", action="store_true", help="the reduced form, on a CPU")
    parser.add_argument("--json", action="store_true", help="print verdicts as JSON lines")
    parser.add_argument("--report", type=Path, help="also write the verdicts to this file, as JSON lines")
    options = parser.parse_args()
    if not options.cpu and not torch.cuda.is_available():
        print("error: this machine has no GPU; add --cpu for the reduced form", file=sys.stderr)
        return 2
    lines, counts = [], {"checks": 0, "passed": 0, "skipped": 0, "failed": 0}
    with tempfile.TemporaryDirectory(prefix="seer-gpu-check-") as folder:
        base = build_small(Path(folder) / "base", seed=0, shape=TINY if options.cpu else WIDE)
        device = torch.device("cpu") if options.cpu else torch.device("cuda", 0)
        bench = Bench(device, base, Path(folder), [trajectory(seed) for seed in range(12)])
        for verdict in verdicts(bench):
            counts["checks"] += 1
            counts[verdict["verdict"]] += 1
            lines.append(json.dumps(verdict))
            print(lines[-1] if options.json else "  ".join(f"{k}={v}" for k, v in verdict.items()), flush=True)
    end_world()
    lines.append(json.dumps(counts))
    print(lines[-1])
    if options.report:
        options.report.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
