"""The contents of a checkpoint: weights and optimiser state as named tensors, and their way back.

8-bit moments stay 8-bit on disk: a moment is two tensors, `<name>.codes` with the shape of the parameter and `<name>.scale`
with one fp32 number for each block of codes. Both are sharded like the parameter, so a run may resume on another number of
ranks, and replicas of a shard are stored once. Where the blocks of a moment do not begin at the shards' boundaries, which
happens to small matrices only, it is stored as plain fp32 numbers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from train.optimizer import set_learning_rate

QUANTISED_FROM = 4096
"""torchao keeps the moments of smaller shards as plain numbers."""


def state_tensors(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, rank: int | None = None
) -> dict[str, torch.Tensor]:
    """All weights and optimiser tensors by name. They are the tensors themselves, not copies.

    8-bit moments are their codes and scales. Those that cannot be sharded as codes are returned as plain numbers on the CPU,
    since they take four times the memory; with `rank`, this rank's codes and scales are added, because quantising the plain
    numbers again might give other codes.
    """
    tensors = {f"model.{name}": parameter.detach() for name, parameter in model.named_parameters()}
    for name, value in optimizer_tensors(model, optimizer):
        if stored_as_codes(value):
            tensors |= codes_and_scale(name, value)
            continue
        tensors[name] = dequantised(value)
        local = local_part(value)
        if rank is not None and is_quantised(local):
            tensors |= own_codes(name, local, rank)
    return tensors


def own_codes(name: str, local: Any, rank: int) -> dict[str, torch.Tensor]:
    """The tensors inside a rank's quantised shard, under names of this rank."""
    inner, _ = local.__tensor_flatten__()
    return {f"rank-{rank}.{name}.{part}": getattr(local, part) for part in inner}


def stored_as_codes(value: torch.Tensor) -> bool:
    """Whether a moment is stored as codes and scales. All ranks give the same answer."""
    local = local_part(value)
    if not isinstance(value, DTensor):
        return is_quantised(local) and hasattr(local, "codes")
    shards = [size for size, p in zip(value.device_mesh.shape, value.placements, strict=True) if isinstance(p, Shard)]
    # An offloaded shard is not on the device of its mesh, where a sharded tensor must be.
    if (
        not is_quantised(local)
        or not hasattr(local, "codes")
        or local.codes.device.type != value.device_mesh.device_type
    ):
        return False
    return blocks_fit(value.shape, math.prod(shards), local.block_size)


def blocks_fit(shape: torch.Size | tuple[int, ...], shards: int, block: int) -> bool:
    """Whether every one of `shards` shards by rows is quantised, and its scales are a shard of all scales."""
    rows, row = shape[0], math.prod(shape[1:])
    chunk = math.ceil(rows / shards)
    last = rows - chunk * (shards - 1)
    sizes = (chunk * row, last * row)
    if last < 1 or any(size < QUANTISED_FROM or size % block for size in sizes):
        return False
    return rows % shards == 0 or row % block == 0


def scale_shape(shape: torch.Size | tuple[int, ...], block: int) -> tuple[int, ...]:
    """The shape of the scales on disk: by rows if each row has whole blocks, so that any sharding by rows fits; else flat."""
    rows, row = shape[0], math.prod(shape[1:])
    return (rows, row // block) if row % block == 0 else (rows * row // block,)


def codes_and_scale(name: str, value: torch.Tensor) -> dict[str, torch.Tensor]:
    """The codes and the scales of an 8-bit moment. They share its memory, so loading into them fills the moment."""
    local: Any = local_part(value)
    shape = scale_shape(value.shape, local.block_size)
    scale = local.scale.view(-1, *shape[1:])
    if not isinstance(value, DTensor):
        return {f"{name}.codes": local.codes, f"{name}.scale": scale}
    common: dict[str, Any] = dict(device_mesh=value.device_mesh, placements=value.placements, run_check=False)
    strides = (shape[1], 1) if len(shape) == 2 else (1,)
    return {
        f"{name}.codes": DTensor.from_local(local.codes, **common, shape=value.shape, stride=value.stride()),
        f"{name}.scale": DTensor.from_local(scale, **common, shape=torch.Size(shape), stride=strides),
    }


class Resuming:
    """The tensors that a run reads from a checkpoint with the names `stored`, and the conversions that follow.

    A checkpoint of the same optimiser is read into the run's own tensors. Moments in another form (8-bit codes for plain
    numbers or the reverse, as after a change between `adamw` and `adamw_8bit`) are read beside them and converted.
    """

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, stored: Collection[str], rank: int | None
    ) -> None:
        self.tensors = {f"model.{name}": parameter.detach() for name, parameter in model.named_parameters()}
        self._plain: dict[str, torch.Tensor] = {}
        self._whole: dict[str, torch.Tensor] = {}
        for name, value in optimizer_tensors(model, optimizer):
            local = local_part(value)
            if f"{name}.codes" in stored:
                if stored_as_codes(value):
                    self.tensors |= codes_and_scale(name, value)
                else:
                    self._whole[name] = value
                    self.tensors[f"{name}.codes"] = torch.empty(value.shape, dtype=torch.uint8)
                    self.tensors[f"{name}.scale"] = torch.empty(scale_shape(value.shape, BLOCK))
            elif is_quantised(local):
                self.tensors[name] = dequantised(value)
                self._plain[name] = value
                own = {} if rank is None else own_codes(name, local, rank)
                if own and own.keys() <= set(stored):
                    self.tensors |= own
                    del self._plain[name]
            else:
                self.tensors[name] = value

    def convert(self) -> None:
        """Fill the moments that were read in another form."""
        for name, value in self._plain.items():
            local = local_part(value)
            local.copy_(local_part(self.tensors[name]).to(local.device))
        for name, value in self._whole.items():
            plain = dequantised_codes(
                self.tensors[f"{name}.codes"], self.tensors[f"{name}.scale"], signed=not name.endswith("_sq")
            )
            local = local_part(value)
            if isinstance(value, DTensor):
                on_device = plain.to(value.device_mesh.device_type)
                plain = distribute_tensor(on_device, value.device_mesh, value.placements, src_data_rank=None).to_local()
            local.copy_(plain.to(local.device))


BLOCK = 256
"""Codes that share a scale in torchao's 8-bit optimiser."""


def dequantised_codes(codes: torch.Tensor, scale: torch.Tensor, *, signed: bool) -> torch.Tensor:
    """The plain fp32 numbers of 8-bit codes: an entry of torchao's table for each code, times the scale of its block."""
    from torchao.optim.subclass_8bit import get_qmap_signed, get_qmap_unsigned

    table = torch.tensor(get_qmap_signed() if signed else get_qmap_unsigned())
    return (table[codes.flatten().int()].view(scale.numel(), -1) * scale.view(-1, 1)).view(codes.shape)


def optimizer_tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of the optimiser's state; names are made of the parameter's name, so they do not depend on groups."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    yield f"optimizer.{names[parameter]}.{key}", value


def dequantised(value: torch.Tensor) -> torch.Tensor:
    """A quantised moment as fp32 with the same sharding, on the CPU; any other tensor unchanged."""
    local = local_part(value)
    if not is_quantised(local):
        return value
    plain = local.dequantize().float()
    if isinstance(value, DTensor):
        # from_local puts the shard on the device of its mesh, so it is moved to the CPU afterwards.
        whole = DTensor.from_local(plain, value.device_mesh, value.placements, shape=value.shape, stride=value.stride())
        return whole.cpu()
    return plain.cpu()


def local_part(value: torch.Tensor) -> Any:
    """This rank's shard of a sharded tensor; any other tensor unchanged."""
    return value.to_local() if hasattr(value, "to_local") else value


def is_quantised(value: torch.Tensor) -> bool:
    """Whether this is a quantised optimiser state of torchao, whose classes are named OptimState…."""
    return hasattr(value, "__tensor_flatten__") and type(value).__name__.startswith("OptimState")


def allocate_state(optimizer: torch.optim.Optimizer) -> None:
    """Create the optimiser's state tensors, so that a checkpoint can be loaded into them.

    Optimisers create their state in their first step, so this takes one with learning rate 0 and zero gradients, which
    leaves the weights unchanged.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    set_learning_rate(optimizer, 0.0)
    optimizer.step()
    set_learning_rate(optimizer, rates[0])
    optimizer.zero_grad(set_to_none=True)
