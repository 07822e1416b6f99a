"""Optimisers, and the learning rate as a pure function of the step."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from seer.errors import ConfigError
from train.config import OptimizerConfig

MUON_ELEMENTS = 2**28
"""Elements of the matrices that Muon orthogonalises together: 1 GiB in fp32."""


def learning_rate(config: OptimizerConfig, step: int, steps: int) -> float:
    """The learning rate of a step, counted from 0, in a run of `steps` steps.

    After a linear warm-up, a decaying schedule falls from `lr` to `final_lr_share` · `lr` at the last step.
    """
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    done = min(1.0, (step - config.warmup_steps) / max(1, steps - 1 - config.warmup_steps))
    shape = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[config.schedule]
    share = 1.0 if config.schedule == "constant" else config.final_lr_share
    return config.lr * (share + (1 - share) * shape)


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Build the configured optimiser over the trainable parameters. Weight decay applies to matrices only.

    Raises ConfigError if every parameter is frozen, or torchao is missing for an optimiser that needs it.
    """
    groups = parameter_groups(model, config.weight_decay)
    if not groups:
        raise ConfigError(
            "every parameter is frozen: unfreeze a part of the model (model.freeze_vision, freeze_merger, freeze_embeddings)"
        )
    common: dict[str, Any] = dict(lr=config.lr, betas=config.betas, eps=config.eps)
    if config.kind == "adamw":
        return torch.optim.AdamW(groups, **common, fused=_can_fuse(groups))
    if config.kind == "muon":
        return Muon(orthogonal_groups(model, groups), **common)
    if config.kind == "adamw_bf16_states":
        return AdamWBf16States(groups, **common)
    try:
        from torchao import optim
    except ImportError:
        raise ConfigError(f"optimizer.kind = \"{config.kind}\" needs torchao: pip install 'seer-vlm[gpu]'") from None
    if config.kind == "adamw_8bit":
        return optim.AdamW8bit(groups, **common)
    return optim._AdamW(groups, **common, bf16_stochastic_round=True)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups of the trainable parameters: matrices with weight decay; embeddings, norms and biases without."""
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (decayed if parameter.ndim >= 2 and "embed" not in name else plain).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def orthogonal_groups(model: nn.Module, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Split each group in two: matrices of the layers, marked `orthogonal`, and the other parameters."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    split: list[dict[str, Any]] = []
    for group in groups:
        inner = [p for p in group["params"] if p.ndim == 2 and not re.search("embed|lm_head", names[p])]
        outer = [p for p in group["params"] if all(p is not other for other in inner)]
        split += [{**group, "params": inner, "orthogonal": True}, {**group, "params": outer}]
    return [group for group in split if group["params"]]


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every parameter group."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):  # torchao keeps it on the device
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def _can_fuse(groups: list[dict[str, Any]]) -> bool:
    """Whether torch's fused kernel applies: to floating tensors on a GPU or a CPU (offloaded shards included)."""
    parameters: Iterable[torch.Tensor] = (p for group in groups for p in group["params"])
    return all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in parameters)


class AdamWBf16States(torch.optim.Optimizer):
    """AdamW on fp32 weights with both moments stored in bf16: 12 bytes per parameter instead of 16.

    Arithmetic is in fp32; only the stored moments are rounded. With beta2 above 0.99, rounding would undo the decay of the
    second moment, so the constructor raises ConfigError.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        if betas[1] > 0.99:
            raise ConfigError(
                f"optimizer.betas has beta2 = {betas[1]:g}: must be at most 0.99 for bf16 moments; lower it"
            )
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient. Closures are not supported."""
        assert closure is None, "closures are not supported"
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    adamw_update(parameter, self.state[parameter], group, torch.bfloat16)


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum for the matrices of the layers; AdamW for embeddings, head, norms and biases.

    The update of a matrix is approximately the orthogonal matrix nearest to its Nesterov momentum, computed by five
    Newton-Schulz steps (Jordan et al., 2024). The factor 0.2 · sqrt(longer side) gives it the RMS of an AdamW update (Liu et
    al., 2025), so that one learning rate fits both. Every rank orthogonalises whole matrices, which is efficient for small
    models only.
    """

    def __init__(
        self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float, momentum: float = 0.95
    ) -> None:
        super().__init__(groups, dict(lr=lr, betas=betas, eps=eps, momentum=momentum, orthogonal=False))

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient. Closures are not supported."""
        assert closure is None, "closures are not supported"
        for group in self.param_groups:
            learned = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not group["orthogonal"]:
                for parameter in learned:
                    adamw_update(parameter, self.state[parameter], group, torch.float32)
                continue
            by_shape: dict[torch.Size, list[torch.Tensor]] = {}
            for parameter in learned:
                by_shape.setdefault(parameter.shape, []).append(parameter)
            for shape, alike in by_shape.items():
                # Whole matrices exist in fp32 while they are orthogonalised, so only some of a large model's at a time.
                together = max(1, MUON_ELEMENTS // shape.numel())
                for start in range(0, len(alike), together):
                    self._update(alike[start : start + together], group)

    def _update(self, parameters: list[torch.Tensor], group: dict[str, Any]) -> None:
        """Update matrices of one shape together, with batched products instead of many small ones."""
        directions = []
        for parameter in parameters:
            state, grad = self.state[parameter], parameter.grad
            assert grad is not None, "only parameters with gradients are updated"
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
            momentum = state["momentum"].lerp_(grad, 1 - group["momentum"])
            direction = grad.lerp(momentum, group["momentum"])
            # Orthogonalisation needs the whole matrix; a shard of it would give another result.
            directions.append(direction.full_tensor() if isinstance(direction, DTensor) else direction)
        scale = 0.2 * max(parameters[0].shape) ** 0.5
        for parameter, update in zip(parameters, orthogonalised(torch.stack(directions)), strict=True):
            if isinstance(parameter, DTensor):
                update = distribute_tensor(update, parameter.device_mesh, parameter.placements, src_data_rank=None)
            parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"] * scale)


def orthogonalised(matrices: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """Bring the singular values of each matrix in (N, rows, columns) near 1 by the quintic Newton-Schulz iteration.

    The coefficients are those of Jordan et al. (2024): https://kellerjordan.github.io/posts/muon/.
    """
    x = matrices if matrices.device.type == "cpu" else matrices.bfloat16()
    # The iteration converges for spectral norms up to 1, which the Frobenius norm bounds.
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    # A wide matrix has the smaller product x xᵀ.
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    for _ in range(steps):
        square = x @ x.mT
        # x ← 3.4445 x + (-4.7750 s + 2.0315 s s) x with s = x xᵀ; baddbmm adds within the product.
        quartic = torch.baddbmm(square, square, square, beta=-4.7750, alpha=2.0315)
        x = torch.baddbmm(x, quartic, x, beta=3.4445)
    return (x.mT if tall else x).to(matrices.dtype)


def adamw_update(parameter: torch.Tensor, state: dict[str, Any], group: dict[str, Any], moments: torch.dtype) -> None:
    """One AdamW step (Loshchilov & Hutter, 2019) of one parameter: moments stored as dtype `moments`, arithmetic in fp32."""
    grad = parameter.grad
    assert grad is not None, "only parameters with gradients are updated"
    if not state:
        state["step"] = torch.zeros((), dtype=torch.float32)
        state["exp_avg"] = torch.zeros_like(parameter, dtype=moments)
        state["exp_avg_sq"] = torch.zeros_like(parameter, dtype=moments)
    state["step"] += 1
    (beta1, beta2), step = group["betas"], float(state["step"])
    mean = state["exp_avg"].float().lerp_(grad.float(), 1 - beta1)
    square = state["exp_avg_sq"].float().mul_(beta2).addcmul_(grad.float(), grad.float(), value=1 - beta2)
    state["exp_avg"].copy_(mean)
    state["exp_avg_sq"].copy_(square)
    scale = (square / (1 - beta2**step)).sqrt_().add_(group["eps"])
    parameter.mul_(1 - group["lr"] * group["weight_decay"])
    parameter.addcdiv_(mean, scale, value=-group["lr"] / (1 - beta1**step))
