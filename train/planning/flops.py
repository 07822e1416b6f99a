"""Count the floating-point operations of a batch, vision included. Pure arithmetic on the shape of a model.

A matrix of n weights costs 2n operations per token forward and 4n backward. Attention costs 4 · length² · width per layer
forward, half of that if it is causal, and twice as much backward. The head and the MLP of the last layer count for supervised
tokens only, because they run on those only. Recomputation is not counted: these are model FLOPs, not hardware FLOPs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from train.data.collate import Batch

PEAK_BF16_FLOPS = {
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H800": 989e12,
    "H20": 148e12,
    "B200": 2250e12,
    "A100": 312e12,
    "A800": 312e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "4090": 165e12,
}
"""Dense bf16 peak in operations per second, by a part of the device's name. More specific names come first."""


def peak_flops(device_name: str) -> float | None:
    """Dense bf16 peak of a GPU in operations per second; None if the GPU is not known."""
    return next((peak for name, peak in PEAK_BF16_FLOPS.items() if name in device_name), None)


@dataclass(frozen=True)
class FlopsModel:
    """Operations of one forward pass per token, patch, supervised token, squared sample length and squared picture size."""

    per_token: float
    per_patch: float
    per_supervised: float
    per_squared_token: float
    per_squared_patch: float
    per_merged_patch: float = 0.0
    """Of the merger, which may be trained while the tower is frozen."""
    vision_trained: bool = True
    merger_trained: bool = True

    def of(self, tokens: int, patches: int, supervised: int, squared_tokens: int, squared_patches: int) -> float:
        """Operations of one forward and backward pass over a batch with these counts."""
        text = self.per_token * tokens + self.per_squared_token * squared_tokens + self.per_supervised * supervised
        vision = self.per_patch * patches + self.per_squared_patch * squared_patches
        merger = self.per_merged_patch * patches
        # The backward pass costs twice the forward pass; a frozen part has none, unless a trained part is below it.
        merger_passes = 3 if self.vision_trained or self.merger_trained else 1
        return 3 * text + (3 if self.vision_trained else 1) * vision + merger_passes * merger

    def of_batch(self, batch: Batch) -> float:
        """Operations of one forward and backward pass over a batch; 0 for an idle batch."""
        if not batch.num_tokens:
            return 0.0
        patches, supervised = len(batch.patches_PX), len(batch.targets_N)
        return self.of(batch.num_tokens, patches, supervised, batch.num_squared_tokens, batch.num_squared_patches)


def flops_model(config: Any, vision_trained: bool = True, merger_trained: bool = True) -> FlopsModel:
    """The operation counts of a model with the shape of `config`, a Glm4vConfig."""
    text, vision = config.text_config, config.vision_config
    head = text.hidden_size // text.num_attention_heads
    attention = 2 * text.hidden_size * head * (text.num_attention_heads + text.num_key_value_heads)
    mlp = 3 * text.hidden_size * text.intermediate_size
    patch_inputs = vision.patch_size**2  # the trainer's patch embedding reads one grey value per pixel
    # Weights of one vision block: q, k, v and output projections, then gate, up and down of the MLP.
    block = 4 * vision.hidden_size**2 + 3 * vision.hidden_size * vision.out_hidden_size
    # Downsampling and merger run once per token, so each patch bears a fraction of their cost.
    merged = vision.spatial_merge_size**2
    downsample = merged * vision.hidden_size * vision.out_hidden_size
    merger = vision.out_hidden_size**2 + 3 * vision.out_hidden_size * vision.intermediate_size
    per_patch = patch_inputs * vision.hidden_size + vision.depth * block + downsample / merged
    return FlopsModel(
        per_token=2 * (text.num_hidden_layers * (attention + mlp) - mlp),
        per_patch=2 * per_patch,
        per_supervised=2 * (text.hidden_size * text.vocab_size + mlp),
        per_squared_token=2 * text.num_hidden_layers * text.hidden_size,
        per_squared_patch=4 * vision.depth * vision.hidden_size,
        per_merged_patch=2 * merger / merged,
        vision_trained=vision_trained,
        merger_trained=merger_trained,
    )
