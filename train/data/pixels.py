"""Byte patches of page pictures, and the patch embedding that reads them.

The processor of transformers copies a grey page to 3 channels and 2 frames of float32 and feeds a Conv3d: 4,704 bytes per
patch, and five sixths of the multiplications are repeats. Here a patch keeps its 196 grey bytes (588 for a coloured page),
and the weights of the convolution are summed over the repeated inputs. The result is an equal linear layer of a sixth of
the size.

Shapes: P patches, C channels (1 for grey, 3 for colour), K = patch² pixels of one patch, D vision width, V image tokens,
m runs of pictures of one shape.
"""
# ruff: noqa: N803  shape-suffixed names are intended

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers.models.glm4v.modeling_glm4v import Glm4vVisionEmbeddings

from seer.models.checkpoint import PixelScaling
from seer.protocol.encoding import ImageSlot
from seer.protocol.geometry import VisionGeometry


def byte_patches(image: np.ndarray, slot: ImageSlot, geometry: VisionGeometry, resample: int) -> np.ndarray:
    """Cut a page of shape (height, width) or (height, width, 3) into patches uint8 (P, C·K).

    Patches are in the order of the GLM-4V processor. A page of another size than the slot is resized with `resample`.
    """
    patch, merge = geometry.patch_px, geometry.merge
    height, width = slot.rows * patch, slot.columns * patch
    if image.shape[:2] != (height, width):
        from PIL import Image

        image = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling(resample)))
    # The processor's order is not row by row: the merge² patches of one image token are consecutive. Split both axes into
    # (token, patch within the token, pixel), then bring the token axes to the front and the pixels to the end.
    channels = image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
    blocks = channels.reshape(len(channels), slot.rows // merge, merge, patch, slot.columns // merge, merge, patch)
    ordered = blocks.transpose(1, 4, 2, 5, 0, 3, 6)  # token row, token column, merge, merge, channel, patch, patch
    return np.ascontiguousarray(ordered.reshape(slot.rows * slot.columns, len(channels) * patch * patch))


def join_patches(parts: Sequence[np.ndarray], pixels_per_patch: int) -> np.ndarray:
    """Concatenate the patches of several pages; grey patches are copied to three channels if any page has colour."""
    if len({part.shape[1] for part in parts}) > 1:
        parts = [np.tile(part, 3) if part.shape[1] == pixels_per_patch else part for part in parts]
    return np.concatenate(parts) if parts else np.zeros((0, pixels_per_patch), np.uint8)


class BytePatchEmbed(nn.Module):
    """Glm4vVisionPatchEmbed for byte patches. It keeps the Conv3d under the same name, so checkpoints do not change.

    With frames equal and pixel x scaled as (x / 255 - mean_c) / std_c, the convolution is
    sum_c W_c · (x_c / 255 - mean_c) / std_c + bias, where W_c is its weight summed over the frames. For a grey page all x_c
    are equal, so the weights are summed over the channels as well.
    """

    def __init__(self, proj: nn.Conv3d, scaling: PixelScaling) -> None:
        super().__init__()
        self.proj = proj
        self.mean, self.std = scaling.mean, scaling.std
        self.centre = sum(scaling.mean) / 3

    def forward(self, patches_PCK: torch.Tensor) -> torch.Tensor:
        """Embed patches uint8 (P, C·K) as (P, D) in the type of the weights."""
        # The folding is in fp32 for every type of weights, so that sums and quotients are rounded only once, at the end.
        weight_DCK = self.proj.weight.float().sum(2).flatten(2)  # frames are equal pictures: (D, 3, K)
        std = weight_DCK.new_tensor(self.std)[:, None]
        mean = weight_DCK.new_tensor(self.mean)[:, None]
        scaled_DCK = weight_DCK / std
        assert self.proj.bias is not None, "the patch embedding of GLM-4V has a bias"
        # Pixels are centred on the mean of the three means. Uncentred, the large products of white paper would cancel
        # against the bias, which loses digits in bf16.
        bias_D = self.proj.bias.float() + (scaled_DCK * (self.centre - mean)).sum((1, 2))
        channels = patches_PCK.shape[1] // scaled_DCK.shape[2]
        weight = scaled_DCK.sum(1) if channels == 1 else scaled_DCK.flatten(1)
        dtype = self.proj.weight.dtype
        pixels = (patches_PCK.float() / 255 - self.centre).to(dtype)
        return functional.linear(pixels, weight.to(dtype), bias_D.to(dtype))


class LinearDownsample(nn.Conv2d):
    """The 2 x 2 convolution over the patches of one token, as a matrix product.

    Its kernel covers the whole input, so the two are equal, and CPUs and some GPUs run the product many times faster. This
    class replaces the Conv2d's class; weights keep their names and shapes.
    """

    def forward(self, patches_VD22: torch.Tensor) -> torch.Tensor:
        """Merge the patches of each token: (V, D, merge, merge) to (V, output width)."""
        return functional.linear(patches_VD22.flatten(1), self.weight.flatten(1), self.bias)


class SharedPositions(Glm4vVisionEmbeddings):
    """Position embeddings, interpolated once per run of pictures of one shape instead of once per picture."""

    def forward(
        self,
        embeddings: torch.Tensor,
        lengths: torch.Tensor,
        image_shapes: torch.Tensor,
        h_coords: torch.Tensor,
        w_coords: torch.Tensor,
    ) -> torch.Tensor:
        """Add position embeddings to `embeddings` (P, D). `h_coords` and `w_coords` (P,) are the place of each patch."""
        # On a GPU, `unique_consecutive` waits for the device, which costs more than the interpolation saves.
        if image_shapes.device.type != "cpu":
            return super().forward(embeddings, lengths, image_shapes, h_coords, w_coords)
        shapes_m3, counts_m = image_shapes.unique_consecutive(dim=0, return_counts=True)
        areas, counts = shapes_m3.prod(1).tolist(), counts_m.tolist()
        rows = [area * count for area, count in zip(areas, counts, strict=True)]
        # Interpolate the first picture of each run only.
        first_h, first_w = (
            torch.cat([run[:area] for run, area in zip(coords.split(rows), areas, strict=True)])
            for coords in (h_coords, w_coords)
        )
        nothing_PD = embeddings.new_zeros((sum(areas), embeddings.shape[1]))
        positions_PD = super().forward(nothing_PD, shapes_m3.prod(1), shapes_m3, first_h, first_w)
        # Copy its embeddings to the other pictures of the run.
        spread = [
            one.expand(count, *one.shape).flatten(0, 1)
            for one, count in zip(positions_PD.split(areas), counts, strict=True)
        ]
        return embeddings + torch.cat(spread)
