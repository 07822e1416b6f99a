"""The world of a run: rejected numbers of replicas, devices for exchanged numbers, and precisions of one process."""

from __future__ import annotations

import pytest
import torch
from train_fakes import config, tiny_checkpoint, trajectories

from seer.errors import ConfigError
from train.config import ModelConfig, ParallelConfig
from train.model.glm4v import prepare
from train.parallel import World, check_batch, spread, start_world
from train.run import build_run

ALONE = World(0, 1, torch.device("cpu"), None)


def test_start_world_rejects_replicas_that_do_not_divide_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match="parallel.replicas = 3 does not divide 4 ranks; use a divisor of 4"):
        start_world(ParallelConfig(replicas=3))


@pytest.mark.parametrize(
    ("precision", "dtype"), [("float32", torch.float32), ("bf16", torch.bfloat16)], ids=["float32", "bf16"]
)
def test_spread_in_one_process_gives_weights_the_configured_precision(precision: str, dtype: torch.dtype) -> None:
    trainee = prepare(tiny_checkpoint(), ModelConfig(path="x"), seed=0)
    spread(trainee, ParallelConfig(precision=precision), ALONE)
    assert {parameter.dtype for parameter in trainee.parameters()} == {dtype}


@pytest.mark.parametrize(
    ("switches", "frozen", "trained"),
    [
        ({"freeze_merger": True}, "visual.merger.", "visual.blocks."),
        ({"freeze_embeddings": True}, "embed_tokens.", "visual.merger."),
    ],
    ids=["merger", "embeddings"],
)
def test_prepare_freezes_only_the_configured_part(switches: dict[str, bool], frozen: str, trained: str) -> None:
    trainee = prepare(tiny_checkpoint(), ModelConfig(path="x", **switches), seed=0)
    fixed = {name for name, parameter in trainee.named_parameters() if not parameter.requires_grad}
    assert fixed and all(frozen in name for name in fixed)
    assert any(trained in name for name, parameter in trainee.named_parameters() if parameter.requires_grad)


@pytest.mark.parametrize(("samples", "ranks", "fits"), [((2,), 2, True), ((30,), 32, False), ((64, 8), 16, False)])
def test_check_batch_rejects_a_step_with_fewer_samples_than_ranks(
    samples: tuple[int, ...], ranks: int, fits: bool
) -> None:
    if fits:
        check_batch(samples, ranks)
        return
    with pytest.raises(
        ConfigError, match=rf"global_batch = {min(samples)}: must be at least the number of ranks, {ranks}"
    ):
        check_batch(samples, ranks)


def test_build_run_rejects_a_batch_smaller_than_the_ranks_before_it_loads_a_model(tmp_path) -> None:
    world = World(0, 32, torch.device("cpu"), None)
    with pytest.raises(ConfigError, match="30 of them would have no sample in any step"):
        build_run(config(tmp_path, batching={"global_batch": 2}), world, [trajectories(4)])
