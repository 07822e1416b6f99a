"""The loss: the sum of weight · nll over supervised places, divided by the sum of weights of the whole step.

`weighted_nll` computes the sum. The step divides it by the sum of weights over *all* micro-batches and ranks; with a mean of
micro-batch means, the weight of a token would depend on the other tokens of its micro-batch.

If rows times vocabulary is large, logits exist for one slice of the vocabulary at a time. A first pass computes each row's
log-sum-exp, a second the gradients slice by slice. A slice's part of the head gradient is complete at once, so no
accumulator of the size of the head is needed, and rounding is that of a single matrix product.

Shapes: N supervised rows, X hidden width, V vocabulary, S slice of the vocabulary.
"""
# ruff: noqa: N803  shape-suffixed names are intended

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

CHUNK_ELEMENTS = 2**24
"""Logits that exist at once: 64 MiB in fp32. Small vocabularies fit in one slice; 800 rows of GLM's 151,552 take 8."""


def weighted_nll(
    hidden_NX: torch.Tensor, head_VX: torch.Tensor, targets_N: torch.Tensor, weights_N: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weighted negative log-likelihood of the targets under softmax(hidden · headᵀ).

    Returns the sum of weight · nll, which is differentiable in `hidden_NX` and `head_VX`; the nll of each row in fp32; and
    whether the target of each row is the likeliest token. Of equally likely tokens, the first counts.
    """
    if len(hidden_NX) * len(head_VX) <= CHUNK_ELEMENTS:
        logits_NV = functional.linear(hidden_NX, head_VX).float()
        nll_N = functional.cross_entropy(logits_NV, targets_N, reduction="none")
        correct_N = logits_NV.detach().argmax(1) == targets_N
        return (nll_N * weights_N).sum(), nll_N.detach(), correct_N
    total, nll_N, correct_N = _SlicedNll.apply(hidden_NX, head_VX, targets_N, weights_N, CHUNK_ELEMENTS)
    return total, nll_N, correct_N


class _SlicedNll(torch.autograd.Function):
    """`weighted_nll` by slices of the vocabulary."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NX: torch.Tensor,
        head_VX: torch.Tensor,
        targets_N: torch.Tensor,
        weights_N: torch.Tensor,
        chunk_elements: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rows = len(hidden_NX)
        log_sums_N = hidden_NX.new_full((rows,), -torch.inf, dtype=torch.float32)
        best_N = log_sums_N.clone()
        likeliest_N = torch.zeros_like(targets_N)
        target_logits_N = torch.zeros_like(log_sums_N)
        for start, slice_SX in _slices(head_VX, rows, chunk_elements):
            # Running maximum, target logit and log-sum-exp of each row: what one pass over the whole row would yield.
            logits_NS = functional.linear(hidden_NX, slice_SX).float()
            top_N, place_N = logits_NS.max(1)
            # A strict comparison keeps the first of equally likely tokens, as argmax over the whole row does.
            likeliest_N = torch.where(top_N > best_N, place_N + start, likeliest_N)
            best_N = torch.maximum(best_N, top_N)
            within_N, column_N = _columns(targets_N, start, len(slice_SX))
            target_logits_N = torch.where(within_N, logits_NS.gather(1, column_N[:, None])[:, 0], target_logits_N)
            log_sums_N = torch.logaddexp(log_sums_N, logits_NS.logsumexp(1))
        nll_N, correct_N = log_sums_N - target_logits_N, likeliest_N == targets_N
        ctx.save_for_backward(hidden_NX, head_VX, targets_N, weights_N, log_sums_N)
        ctx.chunk_elements = chunk_elements
        ctx.mark_non_differentiable(nll_N, correct_N)
        return (nll_N * weights_N).sum(), nll_N, correct_N

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None, None]:
        hidden_NX, head_VX, targets_N, weights_N, log_sums_N = ctx.saved_tensors
        scaled_N = weights_N * grads[0]
        wants_hidden, wants_head = ctx.needs_input_grad[:2]
        grad_hidden = torch.zeros_like(hidden_NX, dtype=torch.float32) if wants_hidden else None
        grad_head = torch.empty_like(head_VX) if wants_head else None
        for start, slice_SX in _slices(head_VX, len(hidden_NX), ctx.chunk_elements):
            # d(weight · nll) / d(logits) = (softmax - one-hot) · weight, computed in the memory of the logits.
            grads_NS = functional.linear(hidden_NX, slice_SX).float().sub_(log_sums_N[:, None]).exp_()
            within_N, column_N = _columns(targets_N, start, len(slice_SX))
            grads_NS.scatter_add_(1, column_N[:, None], -within_N[:, None].float())
            grads_NS = grads_NS.mul_(scaled_N[:, None]).to(head_VX.dtype)
            # Every slice adds to the gradient of the hidden states, but only this slice yields these rows of the head's.
            if grad_hidden is not None:
                grad_hidden += grads_NS @ slice_SX
            if grad_head is not None:
                torch.mm(grads_NS.T, hidden_NX, out=grad_head[start : start + len(slice_SX)])
        return (None if grad_hidden is None else grad_hidden.to(hidden_NX.dtype)), grad_head, None, None, None


def _slices(head_VX: torch.Tensor, rows: int, chunk_elements: int) -> Iterator[tuple[int, torch.Tensor]]:
    """(start, rows of the head) of slices whose logits have at most `chunk_elements` elements."""
    size = max(1, chunk_elements // max(1, rows))
    for start in range(0, len(head_VX), size):
        yield start, head_VX[start : start + size]


def _columns(targets_N: torch.Tensor, start: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether each target lies in the slice, and its column there (0 if it does not)."""
    within_N = (targets_N >= start) & (targets_N < start + size)
    return within_N, torch.where(within_N, targets_N - start, 0)
