"""Attention over a packed row of segments, none of which sees another. Exact, without mask or padding, on any device.

Takes the place of transformers' attention classes; weights keep their names and shapes. What is small there is one large
operation here: one projection for q, k and v (on a CPU; elsewhere the joined weights' memory would cost more than launches),
one complex product to rotate them, one call for neighbours of equal length.

Shapes: H heads, K key heads, L tokens of the row, B segments of a run, T their length, D head size, R rotated pairs.
"""
# ruff: noqa: N803  shape-suffixed names are meant

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
    qkv_LHD: torch.Tensor, turns_LR: torch.Tensor, runs: Runs, *, kv_heads: int, causal: bool, scale: float
) -> torch.Tensor:
    """Heads of q, k and v side by side in, (L, H, D) out; fewer key than query heads are shared."""
    heads = qkv_LHD.shape[1] - 2 * kv_heads
    qk_LHD, v_LKD = qkv_LHD.split([heads + kv_heads, kv_heads], 1)
    q_LHD, k_LKD = turned(qk_LHD, turns_LR).split([heads, kv_heads], 1)
    rows = [count * length for count, length in runs]
    parts = zip(*(x.split(rows) for x in (q_LHD, k_LKD, v_LKD)), strict=True)
    outs = []
    for run, part in zip(runs, parts, strict=True):
        q, k, v = (x.unflatten(0, run).transpose(1, 2) for x in part)  # (B, H, T, D)
        out = functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=scale, enable_gqa=heads != kv_heads
        )
        outs.append(out.transpose(1, 2).flatten(0, 1))
    return torch.cat(outs)


def turned(x_LHD: torch.Tensor, turns_LR: torch.Tensor) -> torch.Tensor:
    """Rotary positions: the first R pairs of neighbouring values, as complex numbers, times one turn each."""
    rotated, rest = x_LHD[..., : 2 * turns_LR.shape[1]], x_LHD[..., 2 * turns_LR.shape[1] :]
    pairs = torch.view_as_complex(rotated.float().unflatten(-1, (-1, 2)))
    rotated = torch.view_as_real(pairs * turns_LR[:, None]).flatten(-2).to(x_LHD.dtype)
    return torch.cat([rotated, rest], -1) if rest.shape[-1] else rotated


class TextTurns(Glm4vTextRotaryEmbedding):
    """Rotary angles of the packed row as complex numbers (L, R), as long as the kind of rotation scales them (yarn does)."""

    @torch.no_grad()
    @dynamic_rope_update
    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        angles_3LR = position_ids[:, 0, :, None].float() * self.inv_freq.float()
        sections = angles_3LR.split(self.mrope_section, -1)
        angles_LR = torch.cat([section[number % 3] for number, section in enumerate(sections)], -1)
        return torch.polar(torch.full_like(angles_LR, self.attention_scaling), angles_LR)


class GroupedTextAttention(Glm4vTextAttention):
    """Attention within each sample."""

    def forward(  # type: ignore[override]
        self, hidden_states: torch.Tensor, position_embeddings: torch.Tensor, text_runs: Runs, **_: Any
    ) -> tuple[torch.Tensor, None]:
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
    """Attention within each picture."""

    def forward(  # type: ignore[override]
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        vision_runs: Runs,
        **_: Any,
    ) -> torch.Tensor:
        cos_LR, sin_LR = (angle.chunk(2, -1)[0].float() for angle in position_embeddings)  # both halves are equal
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
        """The projection's columns with partners of a rotation side by side; they stand half a head apart. An order that q
        and k share changes no score."""
        qk, v = columns.split([2 * self.dim, self.dim], -1)
        return torch.cat([qk.unflatten(-1, (2 * self.num_heads, 2, -1)).transpose(-1, -2).flatten(-3), v], -1)


def _no_mask(*_: Any, **__: Any) -> None:
    return None


AttentionMaskInterface.register(NAME, _no_mask)
