"""The processes of a run: their ranks, how the model is sharded over them, and the few numbers they exchange.

A single process without torchrun runs the same code. It shards only if that has a benefit (mixed precision, offload).
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
    """This process, its rank among the processes of the run, its device and the mesh that it shards over."""

    rank: int
    ranks: int
    device: torch.device
    mesh: DeviceMesh | None

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, the process that writes files and prints."""
        return self.rank == 0

    @property
    def shard_rank(self) -> int:
        """The shard of the model that this process holds. Replicas of a shard have the same number."""
        if self.mesh is None or self.mesh.ndim == 1:
            return self.rank
        return self.mesh.get_local_rank("shard")

    def sum(self, values: Sequence[float]) -> list[float]:
        """Elementwise sums over all ranks, in float64. A collective."""
        tensor = torch.tensor(list(values), dtype=torch.float64, device=self._exchange_device())
        if self.ranks > 1:
            dist.all_reduce(tensor)
        return tensor.tolist()

    def largest(self, values: Sequence[float]) -> list[float]:
        """Elementwise maxima over all ranks, in float64. A collective."""
        tensor = torch.tensor(list(values), dtype=torch.float64, device=self._exchange_device())
        if self.ranks > 1:
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return tensor.tolist()

    def _exchange_device(self) -> torch.device:
        """The device for exchanged numbers: the CPU, unless another launcher has set up NCCL without gloo."""
        if self.ranks > 1 and dist.get_backend() == "nccl":
            return self.device
        return torch.device("cpu")

    def wait(self) -> None:
        """Block until every rank has called this."""
        if self.ranks > 1:
            dist.barrier()


def start_world(config: ParallelConfig) -> World:
    """Join the processes that torchrun started, or form a world of one process.

    Raises ConfigError if `parallel.replicas` does not divide the number of ranks.
    """
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if ranks % config.replicas:
        raise ConfigError(
            f"parallel.replicas = {config.replicas} does not divide {ranks} ranks; use a divisor of {ranks}"
        )
    if config.threads:
        torch.set_num_threads(config.threads)
    cuda = torch.cuda.is_available()
    # Some launchers make one GPU visible to each process; it then has number 0 for every local rank.
    device = torch.device("cuda", local_rank % torch.cuda.device_count()) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("high")  # TF32 for fp32 products, which are many times slower without it
    if ranks == 1 and not needs_sharding(config, ranks):
        return World(rank, ranks, device, None)
    if not dist.is_initialized():
        # Counts and checkpoints are exchanged between CPUs, which NCCL does not support.
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        # Without torchrun there is no rendezvous address; a store in memory is enough for one process.
        alone: dict[str, Any] = (
            {} if "MASTER_ADDR" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
        )
        dist.init_process_group(backend, timeout=timedelta(seconds=config.timeout_s), **alone)
    return World(rank, ranks, device, build_mesh(device.type, ranks, config.replicas))


def build_mesh(device_type: str, ranks: int, replicas: int) -> DeviceMesh:
    """A mesh of one dimension for FSDP, or of (replicas, shards) for HSDP."""
    if replicas == 1:
        return init_device_mesh(device_type, (ranks,), mesh_dim_names=("shard",))
    return init_device_mesh(device_type, (replicas, ranks // replicas), mesh_dim_names=("replicate", "shard"))


def end_world() -> None:
    """Leave the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def check_batch(samples_per_step: Sequence[int], ranks: int) -> None:
    """Raises ConfigError if a step has fewer samples than there are ranks, so that some ranks would only do idle work."""
    if (fewest := min(samples_per_step)) < ranks:
        raise ConfigError(
            f"batching.global_batch = {fewest}: must be at least the number of ranks, {ranks}, or {ranks - fewest} of them "
            "would have no sample in any step; raise it (or the set's samples_per_step), or use fewer ranks"
        )


def needs_sharding(config: ParallelConfig, ranks: int) -> bool:
    """Whether FSDP is used: with several ranks, for mixed precision or offload, or if the configuration requires it."""
    return ranks > 1 or config.precision == "mixed_bf16" or config.cpu_offload or config.shard == "always"


def spread(trainee: Trainee, config: ParallelConfig, world: World) -> Trainee:
    """Move the model to this process's device, or shard it over the mesh.

    Each vision block, each text layer, the embeddings and the head are one FSDP unit; the remaining parameters belong to the
    root. Tied embeddings are one parameter with the head, so both stay with the root.
    """
    if config.precision == "bf16":
        trainee.to(torch.bfloat16)
    if world.mesh is None:
        return trainee.to(world.device)
    mixed = config.precision == "mixed_bf16"
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if mixed else None,
        # A sum of bf16 gradients over many ranks would lose small addends, so it is in fp32 for bf16 weights as well.
        reduce_dtype=torch.float32 if mixed or config.precision == "bf16" else None,
        # Rotary angles enter the blocks in fp32 and must keep their precision. All other inputs have the right type.
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
        # The backward pass of the head follows its forward pass at once, so gathering its weights again would be a waste.
        fully_shard(trainee.model.lm_head, **common | {"reshard_after_forward": False})
    # The root's weights are used again at the start of the backward pass; None leaves torch's default, which keeps them.
    fully_shard(trainee, **common | {"reshard_after_forward": None if config.reshard_after_forward else False})
    for module in trainee.modules():
        if isinstance(module, FSDPModule):
            # Each rank's loss is divided by the global sum of weights already, so gradients are added, never averaged.
            # gloo supports no other reduction either.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    trainee.always_run_vision = world.ranks > 1
    return trainee


def reduce_now(trainee: Trainee, now: bool, last: bool = True) -> None:
    """Set whether the next backward pass reduces gradients over the shards and, on the `last` pass, over the replicas.

    Replicas are usually on different nodes, so they exchange their sums once a step.
    """
    if isinstance(trainee, FSDPModule):
        trainee.set_requires_gradient_sync(now)
        trainee.set_requires_all_reduce(last)


def reshard(trainee: Trainee) -> None:
    """Free gathered weights after forward passes without a backward pass, so that parameters are shards again."""
    for module in trainee.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def clip_gradients(trainee: Trainee, max_norm: float) -> float:
    """Scale gradients down to a norm of at most `max_norm` over all ranks. Returns the norm before scaling."""
    parameters = [parameter for parameter in trainee.parameters() if parameter.grad is not None]
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm, foreach=True)
    if hasattr(norm, "full_tensor"):
        norm = norm.full_tensor()
    return float(norm)
