"""The report of `seer-train plan`: bytes by part, whether a run fits, and single changes that would make it fit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seer.config import build_config
from seer.errors import ConfigError, ModelError
from train.config import TrainConfig
from train.planning.memory import GIB, MemoryPlan, bytes_per_parameter, plan_memory

RESERVE_GIB = 2.5
"""Memory for the CUDA context, buffers of NCCL, and fragmentation."""
TIGHT_SHARE = 0.85
"""Above this fraction of a GPU a plan is `tight`: fragmentation may still cause an out-of-memory error."""


def model_shape(path: str) -> tuple[Any, str]:
    """The Glm4vConfig of a checkpoint folder, and a description of its origin.

    If the folder does not exist yet, this is the shape of GLM-4.1V-9B. Raises ModelError if the folder has a config.json that
    is not a GLM-4V configuration.
    """
    from transformers import Glm4vConfig

    settings = Path(path) / "config.json"
    if not settings.exists():
        return Glm4vConfig(), f"GLM-4.1V-9B ('{path}' does not exist, so this shape is assumed)"
    try:
        return Glm4vConfig(**json.loads(settings.read_text(encoding="utf-8"))), f"'{path}'"
    except Exception as error:  # transformers raises the exceptions of many libraries here
        raise ModelError(
            f"'{settings}' is not a GLM-4V configuration: {error}; use a GLM-4V-family checkpoint"
        ) from None


def verdict(plan: MemoryPlan, gpu_gib: float) -> str:
    """Whether a plan fits a GPU of `gpu_gib` GiB: `fits`, `tight` or `does not fit`."""
    needed = plan.peak_bytes / GIB + RESERVE_GIB
    if needed > gpu_gib:
        return "does not fit"
    return "tight" if needed > TIGHT_SHARE * gpu_gib else "fits"


@dataclass(frozen=True)
class Alternative:
    """One change to the configuration or the number of GPUs, with its plan."""

    change: str
    plan: MemoryPlan
    verdict: str


def alternatives(
    glm: Any, config: TrainConfig, *, gpus: int, gpu_gib: float, vision_tokens: int | None, supervised_tokens: int
) -> list[Alternative]:
    """Single changes that make the run fit, those with the lowest peak first."""
    found = []
    for change, changed, count in changes(config, gpus):
        plan = plan_memory(glm, changed, gpus=count, vision_tokens=vision_tokens, supervised_tokens=supervised_tokens)
        judged = verdict(plan, gpu_gib)
        if judged != "does not fit":
            found.append(Alternative(change, plan, judged))
    return sorted(found, key=lambda alternative: alternative.plan.peak_bytes)


def changes(config: TrainConfig, gpus: int) -> Iterator[tuple[str, TrainConfig, int]]:
    """Candidate changes, as (text of the change, the changed configuration, number of GPUs)."""
    tokens = config.batching.max_tokens // 2
    candidates: dict[str, Mapping[str, Mapping[str, Any]]] = {
        "model.activation_checkpointing=true": {"model": {"activation_checkpointing": True}},
        "optimizer.kind=adamw_bf16_states": {"optimizer": {"kind": "adamw_bf16_states"}},
        "optimizer.kind=adamw_8bit": {"optimizer": {"kind": "adamw_8bit"}},
        "optimizer.kind=adamw_stochastic parallel.precision=bf16": {
            "optimizer": {"kind": "adamw_stochastic"},
            "parallel": {"precision": "bf16"},
        },
        "parallel.cpu_offload=true": {"parallel": {"cpu_offload": True}},
        f"batching.max_tokens={tokens}": {"batching": {"max_tokens": tokens, "micro_batch_tokens": None}},
        "model.freeze_vision=true": {"model": {"freeze_vision": True}},
    }
    for change, sections in candidates.items():
        changed = with_changes(config, sections)
        if changed is not None and changed != config:
            yield change, changed, gpus
    yield f"--gpus {2 * gpus}", config, 2 * gpus


def with_changes(config: TrainConfig, sections: Mapping[str, Mapping[str, Any]]) -> TrainConfig | None:
    """The configuration with some keys changed; None if the result is not a valid configuration."""
    values = config.model_dump()
    for section, keys in sections.items():
        values[section] = {**values[section], **keys}
    try:
        return build_config(TrainConfig, values, where="plan")
    except ConfigError:
        return None


def path_of(config: TrainConfig) -> dict[str, str]:
    """The implementations that a configuration uses on a GPU, each with the reason."""
    model, precision, kind = config.model, config.parallel.precision, config.optimizer.kind
    attention = {
        "flash_attention_2": "flash_attention_2: kernels for segments of variable length",
        "sdpa": "sdpa: torch's attention under a block mask over the packed row, which excludes its flash kernel",
        "grouped": "grouped: torch's flash kernel, one call for each run of segments of equal length"
        if precision != "float32"
        else "grouped: torch's memory-efficient kernel with expanded keys, since flash has no fp32",
    }[model.attention]
    return {
        "attention": attention,
        "norms": "liger: fused kernels, not in place"
        if model.liger
        else "torch: unfused; model.liger = true fuses them",
        "compile": "each layer" if model.compile else "off; model.compile = true compiles each layer",
        "optimizer": {
            "adamw": "torch's fused AdamW on the local shards",
            "muon": "Muon on gathered matrices, AdamW for the rest",
            "adamw_bf16_states": "AdamW parameter by parameter, moments in bf16",
            "adamw_8bit": "torchao's AdamW8bit, compiled for each shape",
            "adamw_stochastic": "torchao's AdamW with stochastic rounding, compiled for each shape",
        }[kind],
        "precision": precision,
    }


def as_record(
    plan: MemoryPlan, config: TrainConfig, *, gpus: int, gpu_gib: float, storage: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The plan as plain values, as `--json` prints it."""
    return {
        "parameters": plan.shape.total,
        "trained_parameters": plan.shape.trained,
        "bytes_per_parameter": sum(bytes_per_parameter(config.optimizer, config.parallel)),
        "gpus": gpus,
        "gpu_gib": gpu_gib,
        "gib": {name: round(size / GIB, 3) for name, size in plan.parts.items()},
        "moments_gib": {moment: round(plan.at(moment) / GIB, 3) for moment in plan.moments},
        "peak_gib": round(plan.peak_bytes / GIB, 3),
        "reserve_gib": RESERVE_GIB,
        "host_gib": round(plan.host_bytes / GIB, 3),
        "verdict": verdict(plan, gpu_gib),
        "path": path_of(config),
        **(storage or {}),
    }


def show(record: Mapping[str, Any], source: str, others: list[Alternative]) -> None:
    """Print a plan as a table, with the changes in `others` if it does not fit."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(
        f"{record['parameters'] / 1e9:.2f} B parameters of {source}, {record['trained_parameters'] / 1e9:.2f} B trained, "
        f"{record['bytes_per_parameter']:g} bytes per parameter at rest, on {record['gpus']} GPUs of {record['gpu_gib']:g} GiB",
        markup=False,
    )
    table = Table("part", "GiB per GPU")
    for name, size in record["gib"].items():
        table.add_row(name, f"{size:.2f}")
    console.print(table)
    for moment, size in record["moments_gib"].items():
        console.print(f"  at {moment:<9} {size:7.2f} GiB", markup=False)
    console.print(
        f"peak {record['peak_gib']:.1f} + {record['reserve_gib']} GiB reserve of {record['gpu_gib']:g}: {record['verdict']}",
        markup=False,
    )
    if record["host_gib"]:
        console.print(f"host memory for the offloaded state: {record['host_gib']:.0f} GiB over all ranks", markup=False)
    for part, choice in record["path"].items():
        console.print(f"  {part}: {choice}", markup=False)
    if "checkpoint_gb" in record:
        console.print(
            f"a checkpoint: {record['checkpoint_gb']:.1f} GB on disk ({record['disk_gb']:.0f} GB for all that exist at once), "
            f"{record['host_gib_while_saving']:.1f} GiB of host memory per rank while it is written, {record['save_s']:.0f} s",
            markup=False,
        )
        for launcher in record["notice_too_short"]:
            console.print(
                f"  warning: {launcher} ends the processes before a checkpoint is complete; set checkpoint.every_steps "
                "so that little is lost, or give a longer notice",
                markup=False,
            )
    if record["verdict"] != "fits":
        console.print(
            "single changes that fit:" if others else "no single change fits; combine several, or use more GPUs"
        )
        for other in others:
            console.print(f"  {other.change}: {other.plan.peak_bytes / GIB:.1f} GiB, {other.verdict}", markup=False)
