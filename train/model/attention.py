"""Attention within each segment of a packed row: exact, without mask or padding, on any device.

The classes replace those of transformers; weights keep their names and shapes. Many small operations become a few large
ones: one projection for q, k and v, one complex product for the rotary embedding, and one attention call for each run of
segments of equal length. The joined projection is used on a CPU only; on a GPU, the memory of the joined weights would cost
more than the kernel launches that it saves.

Shapes: H heads, K key/value heads, L tokens of the row, B segments of a run, T their length, D head size, R rotated pairs.
"""
# ruff: noqa: N803  shape-suffixed names are intended

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from transformers import AttentionMaskInterface
from transformers.modeling_rope_utils import dynamic_rope_update
from transformers.models.glm4v.modeling_glm4v import (
    Glm4vTextAttention,
    Glm4vTextRotaryEmbedding,
    Glm4vVisionAttention,
)

from train.data.packing import Runs
from train.model.layers import on_cpu

NAME = "seer_grouped"


@torch.compiler.disable
def grouped_attention(
    qkv_LHD: torch.Tensor, rotations_LR: torch.Tensor, runs: Runs, *, kv_heads: int, causal: bool, scale: float
) -> torch.Tensor:
    """Attention within each segment of a packed row.

    `qkv_LHD` holds the heads of q, k and v in one tensor (L, H + 2 K, D). `rotations_LR` are complex rotary factors of q and
    k. `runs` describes the segments of the row, in order. With fewer key than query heads, keys are shared by groups.

    Returns (L, H, D).
    """
    heads = qkv_LHD.shape[1] - 2 * kv_heads
    qk_LHD, v_LKD = qkv_LHD.split([heads + kv_heads, kv_heads], 1)
    q_LHD, k_LKD = rotate(qk_LHD, rotations_LR).split([heads, kv_heads], 1)
    rows = [count * length for count, length in runs]
    parts = zip(*(x.split(rows) for x in (q_LHD, k_LKD, v_LKD)), strict=True)
    outs = []
    # The segments of a run have equal length, so they form a rectangle: B becomes the batch dimension, and nothing is padded.
    for run, part in zip(runs, parts, strict=True):
        q, k, v = (x.unflatten(0, run).transpose(1, 2) for x in part)  # (B, H, T, D)
        shares_keys = heads != kv_heads
        if shares_keys and q.dtype == torch.float32 and not on_cpu(q):
            # In fp32 a GPU has one efficient kernel, which does not share keys among heads. With `enable_gqa` torch would
            # fall back to the plain computation, which holds all scores: 34 GB for 16,384 tokens.
            k, v = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
            shares_keys = False
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=shares_keys)
        outs.append(out.transpose(1, 2).flatten(0, 1))
    return torch.cat(outs)


def rotate(x_LHD: torch.Tensor, rotations_LR: torch.Tensor) -> torch.Tensor:
    """Rotary embedding: multiply the first R pairs of neighbouring values, as complex numbers, by `rotations_LR`.

    The product is in fp32. Values after the first 2 R are unchanged.
    """
    rotated, rest = x_LHD[..., : 2 * rotations_LR.shape[1]], x_LHD[..., 2 * rotations_LR.shape[1] :]
    pairs = torch.view_as_complex(rotated.float().unflatten(-1, (-1, 2)))
    rotated = torch.view_as_real(pairs * rotations_LR[:, None]).flatten(-2).to(x_LHD.dtype)
    return torch.cat([rotated, rest], -1) if rest.shape[-1] else rotated


class TextRotations(Glm4vTextRotaryEmbedding):
    """Rotary factors of the packed row as complex numbers (L, R).

    Their magnitude is the attention scaling of the rope type: 1 for most types, another value for yarn.
    """

    @torch.no_grad()
    @dynamic_rope_update
    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """`position_ids` is int64 (3, 1, L): frame, row and column of each token (M-RoPE)."""
        angles_3LR = position_ids[:, 0, :, None].float() * self.inv_freq.float()
        # M-RoPE divides the R frequencies into sections; section i takes its angles from axis i mod 3.
        sections = angles_3LR.split(self.mrope_section, -1)
        angles_LR = torch.cat([section[number % 3] for number, section in enumerate(sections)], -1)
        return torch.polar(torch.full_like(angles_LR, self.attention_scaling), angles_LR)


class GroupedTextAttention(Glm4vTextAttention):
    """Causal attention within each sample of the packed row."""

    def forward(  # type: ignore[override]
        self, hidden_states: torch.Tensor, position_embeddings: torch.Tensor, text_runs: Runs, **_: Any
    ) -> tuple[torch.Tensor, None]:
        """`hidden_states` is (1, L, X); `position_embeddings` are the rotary factors (L, R) of `TextRotations`."""
        parts = (self.q_proj, self.k_proj, self.v_proj)
        if on_cpu(hidden_states):
            weight, bias = torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])
            qkv = functional.linear(hidden_states[0], weight, bias)
        else:
            qkv = torch.cat([part(hidden_states[0]) for part in parts], -1)
        out_LHD = grouped_attention(
            qkv.unflatten(-1, (-1, self.head_dim)),
            position_embeddings,
            text_runs,
            kv_heads=self.num_key_value_heads,
            causal=True,
            scale=self.scaling,
        )
        return self.o_proj(out_LHD.flatten(1))[None], None


class GroupedVisionAttention(Glm4vVisionAttention):
    """Bidirectional attention within each picture."""

    def forward(  # type: ignore[override]
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        vision_runs: Runs,
        **_: Any,
    ) -> torch.Tensor:
        """`hidden_states` is (P, X); `position_embeddings` are cosines and sines of the rotary angles, (P, D) each."""
        cos_LR, sin_LR = (angle.chunk(2, -1)[0].float() for angle in position_embeddings)  # the halves are equal
        if on_cpu(hidden_states):
            bias = None if self.qkv.bias is None else self.paired(self.qkv.bias)
            qkv = functional.linear(hidden_states, self.paired(self.qkv.weight.T).T, bias)
        else:
            qkv = self.paired(self.qkv(hidden_states))
        out_LHD = grouped_attention(
            qkv.unflatten(-1, (-1, self.head_dim)),
            torch.complex(cos_LR, sin_LR),
            vision_runs,
            kv_heads=self.num_heads,
            causal=False,
            scale=self.scaling,
        )
        return self.proj(out_LHD.flatten(1))

    def paired(self, columns: torch.Tensor) -> torch.Tensor:
        """Reorder the columns of a q, k, v projection so that the two values of a rotated pair are neighbours.

        transformers keeps them half a head apart. Scores are dot products of q and k, so an order that both share does not
        change them; v keeps its order.
        """
        qk, v = columns.split([2 * self.dim, self.dim], -1)
        return torch.cat([qk.unflatten(-1, (2 * self.num_heads, 2, -1)).transpose(-1, -2).flatten(-3), v], -1)


# transformers calls the function registered under an attention's name to build its mask. Runs need none.
def _no_mask(*_: Any, **__: Any) -> None:
    return None


AttentionMaskInterface.register(NAME, _no_mask)
