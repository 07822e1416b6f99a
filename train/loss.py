"""The loss: sum of weight · nll over the sum of weights of the whole step, on supervised places alone.

`weighted_nll` is the sum; the step divides it by the sum of weights over *all* micro-batches and ranks. A mean of means
would weigh a token by the company it keeps. Logits exist for one chunk of rows at a time, and their gradient is made
while they do, so that neither logits nor probabilities outlive their chunk.

Shapes: N supervised rows, X hidden width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

CHUNK_ELEMENTS = 2**25
"""Logits that exist at once: 128 MiB in fp32. Small vocabularies fit in one chunk, GLM's 151,552 makes chunks of 221 rows."""


def weighted_nll(
    hidden_NX: torch.Tensor, head_VX: torch.Tensor, targets_N: torch.Tensor, weights_N: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sum of weight · nll (differentiable), then nll and "is the likeliest token right" for each row (not)."""
    if len(hidden_NX) * len(head_VX) <= CHUNK_ELEMENTS:
        logits_NV = F.linear(hidden_NX, head_VX).float()
        nll_N = F.cross_entropy(logits_NV, targets_N, reduction="none")
        correct_N = logits_NV.detach().argmax(1) == targets_N
        return (nll_N * weights_N).sum(), nll_N.detach(), correct_N
    total, nll_N, correct_N = _ChunkedNll.apply(hidden_NX, head_VX, targets_N, weights_N, CHUNK_ELEMENTS)
    return total, nll_N, correct_N


class _ChunkedNll(torch.autograd.Function):
    """Forward computes gradients as well: the sum is scalar, so its backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NX: torch.Tensor,
        head_VX: torch.Tensor,
        targets_N: torch.Tensor,
        weights_N: torch.Tensor,
        chunk_elements: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rows = max(1, chunk_elements // len(head_VX))
        grad_hidden = torch.empty_like(hidden_NX) if ctx.needs_input_grad[0] else None
        # bf16 sums over chunks would lose small gradients
        grad_head = torch.zeros_like(head_VX, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        nlls, corrects = [], []
        for start in range(0, len(hidden_NX), rows):
            part = slice(start, start + rows)
            logits = F.linear(hidden_NX[part], head_VX).float()
            corrects.append(logits.argmax(1) == targets_N[part])
            target_logits = logits.gather(1, targets_N[part, None]).squeeze(1)
            log_sums = logits.logsumexp(1)
            nlls.append(log_sums - target_logits)
            # softmax minus one-hot, times weight, in the logits' own memory
            grads = logits.sub_(log_sums[:, None]).exp_()
            grads[torch.arange(len(grads), device=grads.device), targets_N[part]] -= 1
            grads.mul_(weights_N[part, None])
            if grad_hidden is not None:
                grad_hidden[part] = grads.to(head_VX.dtype) @ head_VX
            if grad_head is not None:
                grad_head.addmm_(grads.T, hidden_NX[part].float())
        ctx.save_for_backward(grad_hidden, grad_head)
        ctx.head_dtype = head_VX.dtype
        nll_N, correct_N = torch.cat(nlls), torch.cat(corrects)
        ctx.mark_non_differentiable(nll_N, correct_N)
        return (nll_N * weights_N).sum(), nll_N, correct_N

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None, None]:
        scale = grads[0]
        grad_hidden, grad_head = ctx.saved_tensors
        grad_hidden = None if grad_hidden is None else grad_hidden * scale.to(grad_hidden.dtype)
        grad_head = None if grad_head is None else grad_head.mul_(scale).to(ctx.head_dtype)
        return grad_hidden, grad_head, None, None, None
