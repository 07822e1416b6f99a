"""Collate samples into one packed row of tensors. All index arithmetic is numpy and runs in the loader's thread.

The weight of a token belongs to the *prediction* of that token, so the predictor of token i is at place i - 1. Samples are
laid end to end. The first token of each has weight 0, so no sample learns from its neighbour.

Shapes: L tokens of the row, N supervised tokens, n images, P patches, X bytes of a patch, V image tokens.
"""
# ruff: noqa: N815  shape-suffixed names are intended

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch

from train.data.dataset import TrainingSample
from train.data.packing import Runs, runs_of
from train.data.pixels import join_patches


@dataclass
class Batch:
    """One micro-batch: a packed row of samples and the pictures that they show."""

    ids_L: torch.Tensor
    """int64: token ids."""
    positions_4L: torch.Tensor
    """int64. Row 0: place within the token's own sample, from which block masks are made. Rows 1 to 3: M-RoPE."""
    predictors_N: torch.Tensor
    """int64: places in the row whose next token is supervised."""
    targets_N: torch.Tensor
    """int64: the supervised token ids."""
    weights_N: torch.Tensor
    """float32: loss weight of each supervised token."""
    classes_N: torch.Tensor
    """int64: loss class of each supervised token, an index into `seer.protocol.encoding.CLASSES`."""
    samples_N: torch.Tensor
    """int64: index of the sample in this batch that each supervised token belongs to."""
    image_places_V: torch.Tensor
    """int64: places of image tokens in the row, picture by picture in the order of `grid_n3`."""
    patches_PX: torch.Tensor
    """uint8: patches, picture by picture in the order of `grid_n3`."""
    grid_n3: torch.Tensor
    """int64: frames, rows and columns of each picture in patches, sorted so that equal shapes are neighbours."""
    text_runs: Runs
    vision_runs: Runs
    sample_ids: tuple[str, ...]
    weight_sum: float
    num_tokens: int
    num_vision_tokens: int
    num_squared_tokens: int
    """Sum of squared sample lengths: attention costs grow with it."""
    num_squared_patches: int
    """Sum of squared patch counts of the pictures."""

    def to(self, device: torch.device) -> Batch:
        """Copy every tensor to `device` without blocking; on a CPU, return the batch itself."""
        if device.type == "cpu":
            return self
        moved = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, value in moved.items():
            if isinstance(value, torch.Tensor):
                moved[name] = value.pin_memory().to(device, non_blocking=True)
        return Batch(**moved)


def collate(samples: Sequence[TrainingSample], pixels_per_patch: int = 196) -> Batch:
    """Lay samples end to end in one row.

    `pixels_per_patch` gives the patch array its width if no sample has a picture. Raises ValueError if `samples` is empty.
    """
    if not samples:
        raise ValueError("a micro-batch needs at least one sample, got none")
    lengths = [len(sample) for sample in samples]
    ids = np.concatenate([sample.ids for sample in samples]).astype(np.int64)
    weights = np.concatenate([sample.weights for sample in samples])
    # The first token of every sample has weight 0, so `supervised - 1` always lies within the same sample.
    supervised = np.flatnonzero(weights)
    # Row 0 of the positions restarts at 0 with each sample; that is how attention finds the boundaries of the row.
    own_places = np.concatenate([np.arange(length) for length in lengths])
    mrope = np.concatenate([sample.positions for sample in samples], 1)
    grid, pictures, places = _sorted_pictures(samples)
    patch_counts = grid[:, 1:].prod(1).tolist()
    return Batch(
        ids_L=torch.from_numpy(ids),
        positions_4L=torch.from_numpy(np.concatenate([own_places[None], mrope]).astype(np.int64)),
        predictors_N=torch.from_numpy(supervised - 1),
        targets_N=torch.from_numpy(ids[supervised]),
        weights_N=torch.from_numpy(weights[supervised]),
        classes_N=torch.from_numpy(np.concatenate([s.classes for s in samples])[supervised].astype(np.int64)),
        samples_N=torch.from_numpy(np.repeat(np.arange(len(samples)), lengths)[supervised]),
        image_places_V=torch.from_numpy(np.concatenate(places or [np.zeros(0, np.int64)])),
        patches_PX=torch.from_numpy(join_patches(pictures, pixels_per_patch)),
        grid_n3=torch.from_numpy(grid),
        text_runs=runs_of(lengths),
        vision_runs=runs_of(patch_counts),
        sample_ids=tuple(sample.id for sample in samples),
        weight_sum=float(weights.sum(dtype=np.float64)),
        num_tokens=len(ids),
        num_vision_tokens=sum(sample.vision_tokens for sample in samples),
        num_squared_tokens=sum(length**2 for length in lengths),
        num_squared_patches=sum(count**2 for count in patch_counts),
    )


def _sorted_pictures(samples: Sequence[TrainingSample]) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """All pictures of the row, sorted by shape: their grids (n, 3), their patches, and the places of their tokens."""
    grid = np.concatenate([sample.grid for sample in samples])
    # The vision tower does not depend on the order of pictures. Sorting them makes pictures of one shape neighbours, so that
    # attention and position embeddings handle them in few large operations. lexsort is stable, so the order is reproducible.
    order = np.lexsort(grid.T)
    pictures = [picture for sample in samples if len(sample.grid) for picture in split(sample.patches, sample.grid)]
    # Image placeholders of the whole row are in the same order as the unsorted grids: sample by sample, page by page.
    places = split(np.flatnonzero(np.concatenate([sample.types for sample in samples])), grid)
    return grid[order], [pictures[i] for i in order], [places[i] for i in order]


def split(rows: np.ndarray, grid: np.ndarray) -> list[np.ndarray]:
    """Split rows of several pictures, laid end to end, into those of each picture.

    `rows` holds either the patches or the tokens of the pictures; `grid` is (n, 3). One token covers merge² patches, so the
    cumulative patch counts are scaled by len(rows) / patches. The division is exact: every picture is a whole number of
    tokens.
    """
    areas = grid.prod(1)
    ends = np.cumsum(areas) * len(rows) // max(1, areas.sum())
    return np.split(rows, ends[:-1]) if len(grid) else []


def idle_batch(token_id: int, pixels_per_patch: int = 196) -> Batch:
    """A batch of weight 0 for a rank without data: it takes part in the collectives of ranks that still have some."""
    # The second token has a weight, so that the loss head runs on one row; the weight is set to 0 after collation.
    sample = TrainingSample(
        id="idle",
        ids=np.full(2, token_id, np.int32),
        classes=np.zeros(2, np.uint8),
        weights=np.array([0, 1], np.float32),
        positions=np.tile(np.arange(2, dtype=np.int32), (3, 1)),
        types=np.zeros(2, np.uint8),
        grid=np.zeros((0, 3), np.int64),
        patches=np.zeros((0, pixels_per_patch), np.uint8),
    )
    batch = collate([sample], pixels_per_patch)
    batch.weights_N = torch.zeros_like(batch.weights_N)
    batch.weight_sum, batch.num_tokens, batch.num_squared_tokens = 0.0, 0, 0
    return batch
