"""The optimiser and its learning rate, which is a pure function of the step."""

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


def learning_rate(config: OptimizerConfig, step: int, steps: int) -> float:
    """The rate for a step counted from 0: a linear warm-up, then the schedule down to `final_lr_share` at the last step."""
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    done = min(1.0, (step - config.warmup_steps) / max(1, steps - 1 - config.warmup_steps))
    shape = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[config.schedule]
    share = 1.0 if config.schedule == "constant" else config.final_lr_share
    return config.lr * (share + (1 - share) * shape)


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """An optimiser over the trainable parameters; matrices decay, the rest does not. Raises ConfigError where none is."""
    groups = parameter_groups(model, config.weight_decay)
    if not groups:
        raise ConfigError("every parameter is frozen, so nothing can be learned; unfreeze a part of the model")
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
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (decayed if parameter.ndim >= 2 and "embed" not in name else plain).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def orthogonal_groups(model: nn.Module, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same parameters with the layers' matrices in a group of their own."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    split: list[dict[str, Any]] = []
    for group in groups:
        inner = [p for p in group["params"] if p.ndim == 2 and not re.search("embed|lm_head", names[p])]
        outer = [p for p in group["params"] if all(p is not other for other in inner)]
        split += [{**group, "params": inner, "orthogonal": True}, {**group, "params": outer}]
    return [group for group in split if group["params"]]


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):  # torchao keeps it on the device
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def _can_fuse(groups: list[dict[str, Any]]) -> bool:
    """The fused kernel takes floating tensors on a CPU, where offloaded shards stand too, or a GPU."""
    parameters: Iterable[torch.Tensor] = (p for group in groups for p in group["params"])
    return all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in parameters)


class AdamWBf16States(torch.optim.Optimizer):
    """AdamW on fp32 weights with both moments kept in bf16: 12 bytes a parameter instead of 16.

    Arithmetic is fp32; only storage is rounded. beta2 above 0.99 would round its own decay away, so it is refused.
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
            raise ConfigError(f"bf16 moments need beta2 <= 0.99, got {betas[1]:g}; lower optimizer.betas")
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        assert closure is None, "closures are not supported"
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    adamw_update(parameter, self.state[parameter], group, torch.bfloat16)


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum for the matrices of the layers, AdamW for everything else (embeddings, head, norms, biases).

    A matrix's update is the nearest orthogonal matrix to its Nesterov momentum, by five Newton-Schulz steps (Jordan et al.,
    2024), times 0.2 · sqrt(longer side), which gives it the RMS of an AdamW update (Liu et al., 2025), so that one learning
    rate serves both. Every rank orthogonalises whole matrices, which pays for small models alone.
    """

    def __init__(
        self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float, momentum: float = 0.95
    ) -> None:
        super().__init__(groups, dict(lr=lr, betas=betas, eps=eps, momentum=momentum, orthogonal=False))

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
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
            for alike in by_shape.values():
                self._update(alike, group)

    def _update(self, parameters: list[torch.Tensor], group: dict[str, Any]) -> None:
        """Matrices of one shape together: one batched product in place of many small ones."""
        directions = []
        for parameter in parameters:
            state, grad = self.state[parameter], parameter.grad
            assert grad is not None, "only parameters with gradients are updated"
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
            momentum = state["momentum"].lerp_(grad, 1 - group["momentum"])
            direction = grad.lerp(momentum, group["momentum"])
            directions.append(direction.full_tensor() if isinstance(direction, DTensor) else direction)
        scale = 0.2 * max(parameters[0].shape) ** 0.5
        for parameter, update in zip(parameters, orthogonalised(torch.stack(directions)), strict=True):
            if isinstance(parameter, DTensor):
                update = distribute_tensor(update, parameter.device_mesh, parameter.placements, src_data_rank=None)
            parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"] * scale)


def orthogonalised(matrices: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """(N, rows, columns): each matrix with its singular values brought near 1 by the quintic Newton-Schulz iteration."""
    x = matrices if matrices.device.type == "cpu" else matrices.bfloat16()
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    for _ in range(steps):
        square = x @ x.mT
        # 3.4445 x + (-4.7750 s + 2.0315 s s) x, with sums that ride on the products
        quartic = torch.baddbmm(square, square, square, beta=-4.7750, alpha=2.0315)
        x = torch.baddbmm(x, quartic, x, beta=3.4445)
    return (x.mT if tall else x).to(matrices.dtype)


def adamw_update(parameter: torch.Tensor, state: dict[str, Any], group: dict[str, Any], moments: torch.dtype) -> None:
    """One AdamW step of one parameter, its moments kept in dtype `moments`, its arithmetic in fp32."""
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
