"""How much arithmetic a batch takes, vision counted, and what share of the machine's peak a run reaches. Pure numbers.

A matrix of n weights costs 2n operations a token forward and 4n backward; attention costs 4 · length² · width a layer
forward (half of it where it is causal), twice that backward. The head and the last layer's MLP count for supervised tokens
alone, because they run on those alone. Recomputation is not counted: model FLOPs, not hardware FLOPs.
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
"""Dense bf16 peaks by a part of the device's name, the more specific name first."""


def peak_flops(device_name: str) -> float | None:
    """Operations a second of a known chip; None for others."""
    return next((peak for name, peak in PEAK_BF16_FLOPS.items() if name in device_name), None)


@dataclass(frozen=True)
class FlopsModel:
    """Operations of one forward and backward pass, by what they grow with."""

    per_token: float
    per_patch: float
    per_supervised: float
    per_squared_token: float
    per_squared_patch: float
    vision_trained: bool = True

    def of(self, tokens: int, patches: int, supervised: int, squared_tokens: int, squared_patches: int) -> float:
        text = self.per_token * tokens + self.per_squared_token * squared_tokens + self.per_supervised * supervised
        vision = self.per_patch * patches + self.per_squared_patch * squared_patches
        return 3 * text + (3 if self.vision_trained else 1) * vision

    def of_batch(self, batch: Batch) -> float:
        if not batch.num_tokens:
            return 0.0
        patches, supervised = len(batch.patches_PX), len(batch.targets_N)
        return self.of(batch.num_tokens, patches, supervised, batch.num_squared_tokens, batch.num_squared_patches)


def flops_model(config: Any, vision_trained: bool = True) -> FlopsModel:
    """From a Glm4vConfig."""
    text, vision = config.text_config, config.vision_config
    head = text.hidden_size // text.num_attention_heads
    attention = 2 * text.hidden_size * head * (text.num_attention_heads + text.num_key_value_heads)
    mlp = 3 * text.hidden_size * text.intermediate_size
    patch_inputs = vision.patch_size**2  # as the trainer does it: one grey value a pixel, no repeats
    block = 4 * vision.hidden_size**2 + 3 * vision.hidden_size * vision.out_hidden_size
    merged = vision.spatial_merge_size**2
    downsample = merged * vision.hidden_size * vision.out_hidden_size
    merger = vision.out_hidden_size**2 + 3 * vision.out_hidden_size * vision.intermediate_size
    per_patch = patch_inputs * vision.hidden_size + vision.depth * block + (downsample + merger) / merged
    return FlopsModel(
        per_token=2 * (text.num_hidden_layers * (attention + mlp) - mlp),
        per_patch=2 * per_patch,
        per_supervised=2 * (text.hidden_size * text.vocab_size + mlp),
        per_squared_token=2 * text.num_hidden_layers * text.hidden_size,
        per_squared_patch=4 * vision.depth * vision.hidden_size,
        vision_trained=vision_trained,
    )
