"""Samples → one packed row, with every choice made in numpy, off the training thread.

A token's weight is the weight of *predicting* it, so the predictor of token i stands at i - 1. Samples are laid end to end;
the first token of each has weight 0, so no sample learns from its neighbour.

Shapes: L tokens, N supervised predictors, P patches, n images, V image tokens.
"""
# ruff: noqa: N815  shape-suffixed names are meant

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch

from train.data.dataset import Sample
from train.data.packing import Runs, runs_of
from train.data.pixels import join_patches


@dataclass
class Batch:
    """One micro-batch."""

    ids_L: torch.Tensor
    positions_4L: torch.Tensor
    """Row 0: the place within its own sample, from which block masks are made. Rows 1 to 3: M-RoPE."""
    predictors_N: torch.Tensor
    """Places in the row whose next token is supervised."""
    targets_N: torch.Tensor
    weights_N: torch.Tensor
    classes_N: torch.Tensor
    samples_N: torch.Tensor
    """Which sample of the batch each supervised token belongs to."""
    image_places_V: torch.Tensor
    """Of the tokens of all pictures, which stand in order of size, so that equal ones are neighbours."""
    patches_PX: torch.Tensor
    grid_n3: torch.Tensor
    text_runs: Runs
    vision_runs: Runs
    sample_ids: tuple[str, ...]
    weight_sum: float
    num_tokens: int
    num_vision_tokens: int
    num_squared_tokens: int
    """Sum of squared segment lengths, for counting attention's arithmetic."""
    num_squared_patches: int

    def to(self, device: torch.device) -> Batch:
        if device.type == "cpu":
            return self
        moved = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, value in moved.items():
            if isinstance(value, torch.Tensor):
                moved[name] = value.pin_memory().to(device, non_blocking=True)
        return Batch(**moved)


def collate(samples: Sequence[Sample], pixels_per_patch: int = 196) -> Batch:
    """Lay samples end to end. Raises ValueError on none."""
    if not samples:
        raise ValueError("a micro-batch needs at least one sample, got none")
    lengths = [len(sample) for sample in samples]
    ids = np.concatenate([sample.ids for sample in samples]).astype(np.int64)
    weights = np.concatenate([sample.weights for sample in samples])
    supervised = np.flatnonzero(weights)
    own_places = np.concatenate([np.arange(length) for length in lengths])
    mrope = np.concatenate([sample.positions for sample in samples], 1)
    grid = np.concatenate([sample.grid for sample in samples])
    order = np.lexsort(grid.T)
    frames_patches = [int(rows * columns) for _, rows, columns in grid[order]]
    pictures = [picture for sample in samples if len(sample.grid) for picture in split(sample.patches, sample.grid)]
    places = split(np.flatnonzero(np.concatenate([s.types for s in samples])), grid)
    return Batch(
        ids_L=torch.from_numpy(ids),
        positions_4L=torch.from_numpy(np.concatenate([own_places[None], mrope]).astype(np.int64)),
        predictors_N=torch.from_numpy(supervised - 1),
        targets_N=torch.from_numpy(ids[supervised]),
        weights_N=torch.from_numpy(weights[supervised]),
        classes_N=torch.from_numpy(np.concatenate([s.classes for s in samples])[supervised].astype(np.int64)),
        samples_N=torch.from_numpy(np.repeat(np.arange(len(samples)), lengths)[supervised]),
        image_places_V=torch.from_numpy(np.concatenate([places[i] for i in order] or [np.zeros(0, np.int64)])),
        patches_PX=torch.from_numpy(join_patches([pictures[i] for i in order], pixels_per_patch)),
        grid_n3=torch.from_numpy(grid[order]),
        text_runs=runs_of(lengths),
        vision_runs=runs_of(frames_patches),
        sample_ids=tuple(sample.id for sample in samples),
        weight_sum=float(weights.sum(dtype=np.float64)),
        num_tokens=len(ids),
        num_vision_tokens=sum(sample.vision_tokens for sample in samples),
        num_squared_tokens=sum(length**2 for length in lengths),
        num_squared_patches=sum(patches**2 for patches in frames_patches),
    )


def split(rows: np.ndarray, grid: np.ndarray) -> list[np.ndarray]:
    """Patches or tokens of pictures laid end to end → those of each picture."""
    areas = grid.prod(1)
    ends = np.cumsum(areas) * len(rows) // max(1, areas.sum())
    return np.split(rows, ends[:-1]) if len(grid) else []


def idle_batch(token_id: int, pixels_per_patch: int = 196) -> Batch:
    """A batch of weight 0 for a rank that has nothing left while others still work: its collectives must take part."""
    one = Sample(
        id="idle",
        ids=np.full(2, token_id, np.int32),
        classes=np.zeros(2, np.uint8),
        weights=np.array([0, 1], np.float32),
        positions=np.tile(np.arange(2, dtype=np.int32), (3, 1)),
        types=np.zeros(2, np.uint8),
        grid=np.zeros((0, 3), np.int64),
        patches=np.zeros((0, pixels_per_patch), np.uint8),
    )
    batch = collate([one], pixels_per_patch)
    batch.weights_N = torch.zeros_like(batch.weights_N)
    batch.weight_sum, batch.num_tokens, batch.num_squared_tokens = 0.0, 0, 0
    return batch
