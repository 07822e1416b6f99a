"""Attention over a packed row of segments, none of which sees another. Exact, without a mask, on any device.

Registered with transformers as "seer_grouped" for the text layers; the vision layers' attention class takes it directly.
Shapes: H heads, L tokens of the row, B segments of a group, T the longest, D head size.
"""
# ruff: noqa: N803  shape-suffixed names are meant

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.models.glm4v.modeling_glm4v import (
    Glm4vVisionAttention,
    apply_rotary_pos_emb_vision,
)

from train.packing import AttentionPlan

NAME = "seer_grouped"


@dataclass
class Groups:
    """An AttentionPlan on a device."""

    gather: tuple[torch.Tensor, ...]
    scatter: torch.Tensor
    shape: tuple[int, int] | None

    @classmethod
    def of(cls, plan: AttentionPlan) -> Groups:
        return cls(tuple(torch.from_numpy(g) for g in plan.gather), torch.from_numpy(plan.scatter), plan.shape)

    def to(self, device: torch.device) -> Groups:
        gather = tuple(g.to(device, non_blocking=True) for g in self.gather)
        return Groups(gather, self.scatter.to(device, non_blocking=True), self.shape)


@torch.compiler.disable
def grouped_attention(
    q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, groups: Groups, *, causal: bool, scale: float
) -> torch.Tensor:
    """(L, H, D) out; fewer key than query heads are shared."""
    share = q_LHD.shape[1] != k_LHD.shape[1]

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # (B, H, T, D)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=share)
        return out.transpose(1, 2)

    if groups.shape is not None:
        return attend(*(x.unflatten(0, groups.shape) for x in (q_LHD, k_LHD, v_LHD))).flatten(0, 1)
    qkv = Regroup.apply(torch.cat([q_LHD, k_LHD, v_LHD], 1), groups)
    q, k, v = qkv.split([q_LHD.shape[1], k_LHD.shape[1], v_LHD.shape[1]], 1)
    parts, start = [], 0
    for index_BT in groups.gather:
        part = slice(start, start := start + index_BT.numel())
        parts.append(attend(*(x[part].unflatten(0, index_BT.shape) for x in (q, k, v))).flatten(0, 1))
    return Ungroup.apply(torch.cat(parts), groups)


class Regroup(torch.autograd.Function):
    """Rows of the packed row → rows of all groups, padding included. No real row looks at padding, so padding's gradient
    is nothing, and the way back is a plain selection where autograd would add up."""

    @staticmethod
    def forward(ctx: Any, packed: torch.Tensor, groups: Groups) -> torch.Tensor:
        ctx.groups = groups
        return packed.index_select(0, torch.cat([index.flatten() for index in groups.gather]))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad.index_select(0, ctx.groups.scatter), None


class Ungroup(torch.autograd.Function):
    """The inverse of Regroup: picks each row's place out of the groups."""

    @staticmethod
    def forward(ctx: Any, grouped: torch.Tensor, groups: Groups) -> torch.Tensor:
        ctx.groups, ctx.rows = groups, grouped.shape[0]
        return grouped.index_select(0, groups.scatter)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        spread = grad.new_zeros((ctx.rows, *grad.shape[1:]))
        return spread.index_copy_(0, ctx.groups.scatter, grad), None


def _text_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    text_groups: Groups,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' interface: (1, H, L, D) in, (1, L, H, D) out."""
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    return grouped_attention(q, k, v, text_groups, causal=True, scale=scaling)[None], None


def _no_mask(*_: Any, **__: Any) -> None:
    return None


AttentionInterface.register(NAME, _text_attention)
AttentionMaskInterface.register(NAME, _no_mask)


class GroupedVisionAttention(Glm4vVisionAttention):
    """Attention within each picture: pictures of equal size in one call, where transformers calls once a picture."""

    def forward(  # type: ignore[override]
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        vision_groups: Groups,
        **_: Any,
    ) -> torch.Tensor:
        qkv = self.qkv(hidden_states).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = qkv.unbind(1)
        q, k = apply_rotary_pos_emb_vision(q, k, *position_embeddings)
        out = grouped_attention(q, k, v, vision_groups, causal=False, scale=self.scaling)
        return self.proj(out.flatten(1))
