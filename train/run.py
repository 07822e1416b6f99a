"""A run: its parts, built from a configuration in the order of their dependencies, and its saved state."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seer.config import write_config
from seer.errors import ConfigError
from seer.models.checkpoint import Checkpoint
from seer.schema import Trajectory
from train.checkpoint import Checkpoints
from train.config import SetConfig, TrainConfig
from train.data.dataset import Recipe, TrajectoryDataset
from train.data.loader import StepLoader
from train.data.sampler import SamplePlan
from train.data.sets import open_sets
from train.export import model_card
from train.metrics import MetricsFile, Wandb
from train.model.glm4v import Trainee
from train.model.loading import load_trainee
from train.optimizer import build_optimizer
from train.parallel import World, check_batch, spread
from train.planning.flops import FlopsModel, flops_model
from train.state import Resuming, allocate_state, state_tensors


@dataclass
class Run:
    """All parts of a run."""

    config: TrainConfig
    world: World
    base: Checkpoint
    trainee: Trainee
    optimizer: torch.optim.Optimizer
    loader: StepLoader
    held_out: Sequence[TrajectoryDataset]
    flops: FlopsModel
    checkpoints: Checkpoints
    start_step: int = 0
    """Updates made before this process started."""
    writers: list[Any] = field(default_factory=list)
    """Logs, which exist on rank 0 only."""

    @property
    def folder(self) -> Path:
        return Path(self.config.out)

    def write(self, record: dict[str, Any]) -> None:
        """Write a record to every log."""
        for writer in self.writers:
            writer.write(record)

    def save(self, step: int) -> None:
        """Start a checkpoint of the state after `step` updates. A collective."""
        self.checkpoints.save(step, state_tensors(self.trainee, self.optimizer, self.world.rank), self.identity())

    def identity(self) -> dict[str, Any]:
        """The settings that determine which trajectories a step draws.

        A run that resumed with other values would repeat some trajectories and miss others.
        """
        plan = self.loader.plan
        return {
            "seed": plan.seed,
            "data": data_digest(self.loader.datasets),
            "shares": list(plan.shares),
            "samples a step": list(plan.per_step),
            "mixing": plan.mixing,
            "shuffle": plan.shuffle,
        }

    def resume(self) -> None:
        """Resume from the newest sound checkpoint, if there is one. A collective.

        The position in the data follows from the step number. Raises ConfigError if the checkpoint is from a run that draws
        other trajectories.
        """
        found = self.checkpoints.newest()
        if found is None:
            return
        folder, manifest = found
        for name, mine in self.identity().items():
            if (before := manifest.get(name, mine)) != mine:
                raise ConfigError(
                    f"'{folder}' was trained with {name} {before}, this run has {name} {mine}: resuming would mix two runs. "
                    "Choose another `out`, or set checkpoint.resume = false to start over"
                )
        allocate_state(self.optimizer)
        # Codes under the names of a rank belong to a sharding. On another number of ranks they are made from plain numbers.
        rank = self.world.rank if manifest["ranks"] == self.world.ranks else None
        resuming = Resuming(self.trainee, self.optimizer, self.checkpoints.names(folder), rank)
        self.checkpoints.load(folder, resuming.tensors)
        resuming.convert()
        self.start_step = int(manifest["step"])

    def card(self, steps: int, figures: dict[str, Any]) -> str:
        """The README of the exported model."""
        sets = [(dataset.name, len(dataset)) for dataset in self.loader.datasets]
        return model_card(self.config, data_digest(self.loader.datasets), sets, steps, figures)

    def close(self) -> None:
        """Stop the loader's thread, wait for a running save, and close the logs."""
        self.loader.close()
        self.checkpoints.close()
        for writer in self.writers:
            writer.close()


Sources = Sequence[Sequence[Trajectory]]


def build_run(
    config: TrainConfig, world: World, sources: Sources | None = None, held_out: Sources | None = None
) -> Run:
    """Load, prepare and shard the model, open the data, and build the optimiser. A collective.

    `sources` and `held_out` replace the configured data sets by trajectories in memory, in the same order.

    Raises ConfigError if a step has fewer samples than there are ranks.
    """
    config = config.resolved(cuda=world.device.type == "cuda")
    check_batch(
        [entry.samples_per_step or config.batching.global_batch for entry in config.data.sets]
        if config.data.mixing == "step"
        else [config.batching.global_batch],
        world.ranks,
    )
    # Stochastic rounding uses the global generator. Replicas of a shard must round alike, or their weights would diverge.
    torch.manual_seed(config.seed + world.shard_rank)
    base, trainee = load_trainee(
        config.model,
        config.seed,
        world,
        lambda whole: spread(whole, config.parallel, world),
        offload=config.parallel.cpu_offload,
    )
    recipe = Recipe(base.encoder, base.scaling, config.loss, config.batching.max_tokens, config.data.drop_turns)
    train_sets = open_datasets(config, config.data.sets, recipe, world, sources)
    held_out_sets = open_datasets(config, config.data.held_out, recipe, world, held_out)
    loader = StepLoader(
        train_sets,
        sample_plan(config, train_sets),
        config.batching,
        world.rank,
        world.ranks,
        config.data.prefetch_steps,
    )
    optimizer = build_optimizer(trainee, config.optimizer)
    keeping = config.checkpoint
    return Run(
        config=config,
        world=world,
        base=base,
        trainee=trainee,
        optimizer=optimizer,
        loader=loader,
        held_out=held_out_sets,
        flops=flops_model(base.model.config, trainee.tower_is_trained, trainee.vision_is_trained),
        checkpoints=Checkpoints(
            Path(config.out) / "checkpoints",
            world,
            keep=keeping.keep,
            background=keeping.background,
            timeout_s=config.parallel.timeout_s,
        ),
    )


def data_digest(datasets: Sequence[TrajectoryDataset]) -> str:
    """Sixteen hex digits that identify the training data: a hash of each set's size, digest (if it has one), first ids and,
    if some of its trajectories are left out, the places of the others."""
    digest = hashlib.sha256()
    for dataset in datasets:
        items = dataset.trajectories
        ids = [items[i].id for i in range(min(8, len(items)))]
        digest.update(repr((len(items), getattr(items, "digest", ""), ids)).encode())
        # A set without rejections keeps the digest that earlier versions wrote into checkpoints.
        if len(dataset) < len(items):
            digest.update(dataset.admitted.astype(np.int64).tobytes())
    return digest.hexdigest()[:16]


def open_datasets(
    config: TrainConfig, sets: Sequence[SetConfig], recipe: Recipe, world: World, sources: Sources | None
) -> list[TrajectoryDataset]:
    """Open the configured sets, or wrap `sources` if they are given. A collective."""
    if sources is None:
        return open_sets(sets, config.data, recipe, world)
    return [
        TrajectoryDataset(
            trajectories,
            recipe,
            name=f"set {number}",
            over_long=config.data.over_long,
            cache_bytes=config.data.cache_mib * 2**20 // len(sources),
        )
        for number, trajectories in enumerate(sources)
    ]


def sample_plan(config: TrainConfig, sets: Sequence[TrajectoryDataset]) -> SamplePlan:
    """The plan of samples for each step."""
    entries = config.data.sets
    assert len(entries) == len(sets), f"{len(sets)} data sets opened for {len(entries)} configured"
    return SamplePlan(
        sizes=tuple(len(dataset) for dataset in sets),
        shares=tuple(entry.share for entry in entries),
        per_step=tuple(entry.samples_per_step or config.batching.global_batch for entry in entries),
        mixing=config.data.mixing,
        seed=config.seed,
        shuffle=config.data.shuffle,
    )


def open_folder(run: Run) -> None:
    """Create the run folder on rank 0, write the resolved configuration and open the logs."""
    if not run.world.is_main:
        return
    run.folder.mkdir(parents=True, exist_ok=True)
    write_config(run.config, run.folder / "config.toml")
    run.writers.append(MetricsFile(run.folder / "metrics.jsonl", run.start_step))
    if run.config.log.wandb:
        run.writers.append(Wandb(run.config.log.project, run.folder, run.config.model_dump(mode="json")))
