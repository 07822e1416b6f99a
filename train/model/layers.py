"""Norms, gated MLPs and the last layer of GLM-4V with fewer passes over memory.

The classes replace those of transformers; weights keep their names and shapes, and results are equal. On a CPU, each
elementwise operation is a pass over memory that costs as much as a small matrix product, so norms and gates are one
operation in each direction. On other devices, the operations of transformers (or Liger) are used.

Shapes: L tokens, X hidden width, F width of a gate, N supervised places.
"""
# ruff: noqa: N803  shape-suffixed names are intended

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from transformers.models.glm4v.modeling_glm4v import (
    Glm4VisionMlp,
    Glm4vRMSNorm,
    Glm4vTextDecoderLayer,
    Glm4vTextMLP,
)


def on_cpu(x: torch.Tensor) -> bool:
    """Whether the CPU implementation applies."""
    return x.device.type == "cpu"


class RmsNorm(Glm4vRMSNorm):
    """x · weight / sqrt(mean(x²) + epsilon), as one autograd operation on a CPU in fp32."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise the last dimension of `hidden_states`."""
        if on_cpu(hidden_states) and hidden_states.dtype == self.weight.dtype == torch.float32:
            return _RmsNorm.apply(hidden_states, self.weight, self.variance_epsilon)
        return super().forward(hidden_states)


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_LX: torch.Tensor, weight_X: torch.Tensor, epsilon: float) -> torch.Tensor:
        # In-place operations reuse the one small tensor (L, 1); only the result has the size of the input.
        norm_L1 = torch.linalg.vector_norm(x_LX, dim=-1, keepdim=True)
        scale_L1 = norm_L1.square_().div_(x_LX.shape[-1]).add_(epsilon).rsqrt_()
        ctx.save_for_backward(x_LX, weight_X, scale_L1)
        return (x_LX * scale_L1).mul_(weight_X)

    @staticmethod
    def backward(ctx: Any, grad_LX: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        x_LX, weight_X, scale_L1 = ctx.saved_tensors
        wants_x, wants_weight, _ = ctx.needs_input_grad
        # The kernel of layer norm with mean 0 computes the gradient, and also subtracts a term for the dependence of the
        # mean on x. RMSNorm has no mean, so that term, mean(grad · weight) · scale, is added back.
        grad_x, grad_weight, _ = torch.ops.aten.native_layer_norm_backward(
            grad_LX.contiguous(),
            x_LX,
            x_LX.shape[-1:],
            torch.zeros_like(scale_L1),
            scale_L1,
            weight_X,
            None,
            [wants_x, wants_weight, False],
        )
        if wants_x:
            mean_L1 = (grad_LX @ weight_X).div_(x_LX.shape[-1])[..., None]
            grad_x += mean_L1 * scale_L1
        return grad_x, grad_weight, None


class TextMlp(Glm4vTextMLP):
    """The gated MLP of a text layer, whose projection already holds gate and up in one matrix."""

    def forward(self, hidden_states: torch.FloatTensor) -> torch.FloatTensor:
        """Map (..., X) to (..., X)."""
        if not on_cpu(hidden_states):
            return super().forward(hidden_states)
        return self.down_proj(_Gate.apply(self.gate_up_proj(hidden_states)))


class VisionMlp(Glm4VisionMlp):
    """The gated MLP of a vision block, with gate and up as one product on a CPU."""

    def forward(self, hidden_state: torch.Tensor) -> torch.Tensor:
        """Map (..., X) to (..., X)."""
        if not on_cpu(hidden_state):
            return super().forward(hidden_state)
        weight = torch.cat([self.gate_proj.weight, self.up_proj.weight])
        return self.down_proj(_Gate.apply(functional.linear(hidden_state, weight)))


class _Gate(torch.autograd.Function):
    """silu(gate) · up, with gate and up in one tensor (L, 2 F). GLM-4V has no other activation."""

    @staticmethod
    def forward(ctx: Any, both_LF: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(both_LF)
        gate_LF, up_LF = both_LF.chunk(2, -1)
        return functional.silu(gate_LF).mul_(up_LF)

    @staticmethod
    def backward(ctx: Any, grad_LF: torch.Tensor) -> torch.Tensor:
        (both_LF,) = ctx.saved_tensors
        gate_LF, up_LF = both_LF.chunk(2, -1)
        # Both gradients are written into halves of one tensor, so that no concatenation follows.
        grad_both = torch.empty_like(both_LF)
        grad_gate, grad_up = grad_both.chunk(2, -1)
        torch.mul(functional.silu(gate_LF), grad_LF, out=grad_up)
        torch.ops.aten.silu_backward.grad_input(grad_LF * up_LF, gate_LF, grad_input=grad_gate)
        return grad_both


class LastLayer(Glm4vTextDecoderLayer):
    """The last text layer, which computes only the supervised places after its attention.

    No other layer reads its output, so the other places would not affect the loss.
    """

    def forward(self, hidden_states: torch.Tensor, wanted_N: torch.Tensor, **context: Any) -> torch.Tensor:  # type: ignore[override]
        """Map `hidden_states` (1, L, X) to (1, N, X); `wanted_N` are the places to keep."""
        attended, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **context)
        attended, hidden = (x.index_select(1, wanted_N) for x in (attended, hidden_states))
        hidden = hidden + self.post_self_attn_layernorm(attended)
        return hidden + self.post_mlp_layernorm(self.mlp(self.post_attention_layernorm(hidden)))
