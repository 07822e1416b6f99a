"""Plan the checkpoints of a run: bytes on disk, host memory while one is written, and the seconds that it takes.

A checkpoint holds the weights and the moments. A rank copies its part to host memory, where training cannot change it, and
writes the copy file by file; each file exists once more in memory while it is written.
"""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from train.config import ModelConfig, TrainConfig
from train.state import BLOCK, QUANTISED_FROM, blocks_fit

GRACE_S = {"torchrun": 30, "scripts/slurm_train.sbatch": 300}
"""Seconds between a launcher's signal and the end of the processes."""


def checkpoint_bytes(model: nn.Module, config: TrainConfig, *, gpus: int) -> int:
    """Bytes of a checkpoint on disk, without headers. `model` may be on the meta device."""
    shards = max(1, gpus // config.parallel.replicas)
    weight = 2 if config.parallel.precision == "bf16" else 4
    total = 0.0
    for name, parameter in model.named_parameters():
        total += parameter.numel() * weight
        if parameter.requires_grad and not is_frozen(name, config.model):
            total += moment_bytes(name, tuple(parameter.shape), config, shards, weight)
    return int(total)


def is_frozen(name: str, model: ModelConfig) -> bool:
    """Whether the configuration freezes the parameter of this name."""
    if ".merger." in name:
        return model.freeze_merger
    if "visual." in name:
        return model.freeze_vision
    return model.freeze_embeddings and "embed_tokens" in name


def moment_bytes(name: str, shape: tuple[int, ...], config: TrainConfig, shards: int, weight: int) -> float:
    """Bytes of the stored moments of one parameter, over all shards."""
    numel, kind = math.prod(shape), config.optimizer.kind
    if kind == "muon":
        orthogonal = len(shape) == 2 and "embed" not in name and "lm_head" not in name
        return numel * weight * (1 if orthogonal else 2)
    if kind in ("adamw_bf16_states", "adamw_stochastic"):
        return numel * 2 * 2
    if kind == "adamw":
        return numel * weight * 2
    if blocks_fit(shape, shards, BLOCK):
        return 2 * (numel + numel // BLOCK * 4)
    plain = 2 * numel * 4
    # Codes that do not fit the shards are stored beside the plain numbers, under the names of their ranks.
    chunk = math.ceil(shape[0] / shards) * math.prod(shape[1:])
    return plain + (2 * numel if chunk >= QUANTISED_FROM and chunk % BLOCK == 0 else 0)


def storage_record(
    model: nn.Module, config: TrainConfig, *, gpus: int, disk_gb_s: float, file_bytes: int
) -> dict[str, Any]:
    """The plan of a run's checkpoints as plain values: decimal GB on disk, GiB of host memory of one rank, seconds.

    `disk_gb_s` is the write speed of the disk in GB per second, shared by all ranks; `file_bytes` the size of one file.
    """
    size = checkpoint_bytes(model, config, gpus=gpus)
    part = size / max(1, gpus // config.parallel.replicas)
    seconds = size / 1e9 / disk_gb_s
    return {
        "checkpoint_gb": round(size / 1e9, 2),
        "checkpoint_part_gib": round(part / 2**30, 3),
        "host_gib_while_saving": round((part + min(part, file_bytes)) / 2**30, 3),
        # One more than are kept exists until the newest is complete.
        "disk_gb": round(size * (config.checkpoint.keep + 1) / 1e9, 1),
        "save_s": round(seconds, 1),
        "notice_too_short": [name for name, grace in GRACE_S.items() if seconds > grace],
    }
