"""The processes of a run: who they are, how the model is spread over them, and the few numbers they exchange.

One process without torchrun runs the same code; it shards only where that buys something (mixed precision, offload).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from seer.errors import ConfigError
from train.config import ParallelConfig
from train.model.glm4v import Trainee


@dataclass
class World:
    """This process among its peers."""

    rank: int
    ranks: int
    device: torch.device
    mesh: DeviceMesh | None

    @property
    def leads(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """Elementwise sums over all ranks, in float64 on the CPU: small numbers that decide things."""
        tensor = torch.tensor(list(values), dtype=torch.float64, device=self._meeting_place())
        if self.ranks > 1:
            dist.all_reduce(tensor)
        return tensor.tolist()

    def largest(self, values: Sequence[float]) -> list[float]:
        """Elementwise maxima over all ranks."""
        tensor = torch.tensor(list(values), dtype=torch.float64, device=self._meeting_place())
        if self.ranks > 1:
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return tensor.tolist()

    def _meeting_place(self) -> torch.device:
        """Where numbers are exchanged: the CPU, unless another launcher has set up NCCL alone."""
        if self.ranks > 1 and dist.get_backend() == "nccl":
            return self.device
        return torch.device("cpu")

    def wait(self) -> None:
        """Until every rank is here."""
        if self.ranks > 1:
            dist.barrier()


def start_world(config: ParallelConfig) -> World:
    """Join the processes that torchrun started, or be alone. Raises ConfigError where replicas do not divide the ranks."""
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if ranks % config.replicas:
        raise ConfigError(
            f"parallel.replicas = {config.replicas} does not divide {ranks} ranks; use a divisor of {ranks}"
        )
    if config.threads:
        torch.set_num_threads(config.threads)
    cuda = torch.cuda.is_available()
    # where a launcher shows each process one GPU alone, that one has number 0
    device = torch.device("cuda", local_rank % torch.cuda.device_count()) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if ranks == 1 and not needs_sharding(config, ranks):
        return World(rank, ranks, device, None)
    if not dist.is_initialized():
        # the CPU side carries counts and checkpoints; NCCL alone cannot
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        alone: dict[str, Any] = (
            {} if "MASTER_ADDR" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
        )
        dist.init_process_group(backend, timeout=timedelta(seconds=config.timeout_s), **alone)
    return World(rank, ranks, device, build_mesh(device.type, ranks, config.replicas))


def build_mesh(device_type: str, ranks: int, replicas: int) -> DeviceMesh:
    """One dimension for FSDP; replicas by shards for HSDP."""
    if replicas == 1:
        return init_device_mesh(device_type, (ranks,), mesh_dim_names=("shard",))
    return init_device_mesh(device_type, (replicas, ranks // replicas), mesh_dim_names=("replicate", "shard"))


def end_world() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def needs_sharding(config: ParallelConfig, ranks: int) -> bool:
    return ranks > 1 or config.precision == "mixed_bf16" or config.cpu_offload or config.shard == "always"


def spread(trainee: Trainee, config: ParallelConfig, world: World) -> Trainee:
    """Put the model where it is trained: on this process's device, or sharded over the mesh.

    Vision blocks, text layers, embeddings and head are gathered one at a time; what is left belongs to the root. Tied
    embeddings are one parameter, so they stay with the root.
    """
    if config.precision == "bf16":
        trainee.to(torch.bfloat16)
    if world.mesh is None:
        return trainee.to(world.device)
    mixed = config.precision == "mixed_bf16"
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if mixed else None,
        reduce_dtype=torch.float32 if mixed else None,
        # rotary angles enter the blocks in fp32 and must stay so; everything else has the right type already
        cast_forward_inputs=False,
    )
    offload = CPUOffloadPolicy(pin_memory=world.device.type == "cuda") if config.cpu_offload else OffloadPolicy()
    common: dict[str, Any] = dict(
        mesh=world.mesh, mp_policy=policy, offload_policy=offload, reshard_after_forward=config.reshard_after_forward
    )
    for layer in (*trainee.visual.blocks, *trainee.text.layers):
        fully_shard(layer, **common)
    if not trainee.model.config.tie_word_embeddings:
        fully_shard(trainee.text.embed_tokens, **common)
        # its backward pass follows at once: keep it
        fully_shard(trainee.model.lm_head, **common | {"reshard_after_forward": False})
    fully_shard(trainee, **common)
    for module in trainee.modules():
        if isinstance(module, FSDPModule):
            # losses are shares of the global sum already: add, never average; gloo knows no other reduction
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    trainee.always_see = world.ranks > 1
    return trainee


def reduce_now(trainee: Trainee, now: bool) -> None:
    """Whether the next backward pass exchanges gradients."""
    if isinstance(trainee, FSDPModule):
        trainee.set_requires_gradient_sync(now)


def reshard(trainee: Trainee) -> None:
    """Give whole weights back after forward passes that no backward pass followed: parameters are shards again."""
    for module in trainee.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def clip_gradients(trainee: Trainee, max_norm: float) -> float:
    """Scale gradients down to `max_norm` over all ranks; returns the norm they had."""
    parameters = [parameter for parameter in trainee.parameters() if parameter.grad is not None]
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm, foreach=True)
    if hasattr(norm, "full_tensor"):
        norm = norm.full_tensor()
    return float(norm)
