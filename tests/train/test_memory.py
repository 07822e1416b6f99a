"""The memory plan equals the known table of the 9B and the measured memory of small models."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
import torch
from train_fakes import config, samples, tiny_base, tiny_checkpoint, use_other_devices_code
from transformers import Glm4vConfig
from typer.testing import CliRunner

from seer.config import load_config
from train.cli import app
from train.config import TrainConfig
from train.data.collate import collate
from train.model.glm4v import prepare
from train.optimizer import build_optimizer
from train.parallel import clip_gradients
from train.planning.memory import (
    GIB,
    Workload,
    build_skeleton,
    bytes_per_parameter,
    measure_shape,
    plan_memory,
    plan_workload,
)
from train.planning.report import alternatives, as_record, model_shape, show, verdict
from train.planning.storage import checkpoint_bytes
from train.state import blocks_fit

CONFIGS = Path(__file__).parents[2] / "configs"
OVERRIDES = {
    "fp32": ["optimizer.kind=adamw"],
    "fp32 masters, bf16 moments": ["optimizer.kind=adamw_bf16_states"],
    "fp32 masters, 8-bit moments": ["optimizer.kind=adamw_8bit"],
    "bf16, stochastic rounding": ["optimizer.kind=adamw_stochastic", "parallel.precision=bf16"],
    "offload": ["optimizer.kind=adamw", "parallel.cpu_offload=true"],
}


@functools.cache
def paper(scheme: str) -> TrainConfig:
    return load_config(TrainConfig, CONFIGS / "seer-9b.toml", OVERRIDES[scheme])


@pytest.mark.parametrize(
    ("scheme", "bytes_each", "gib", "judged"),
    [
        ("fp32", 16, 76.7, "does not fit"),
        ("fp32 masters, bf16 moments", 12, 57.5, "tight"),
        ("fp32 masters, 8-bit moments", 10, 47.9, "fits"),
        ("bf16, stochastic rounding", 8, 38.3, "fits"),
    ],
)
def test_plan_memory_of_9b_on_two_80_gib_gpus_equals_known_table(
    scheme: str, bytes_each: int, gib: float, judged: str
) -> None:
    settings = paper(scheme)
    assert sum(bytes_per_parameter(settings.optimizer, settings.parallel)) == bytes_each
    plan = plan_memory(Glm4vConfig(), settings, gpus=2)
    assert plan.at("update") / GIB == pytest.approx(gib, abs=0.06)
    assert verdict(plan, 80) == judged


def test_plan_memory_with_offload_moves_the_state_to_the_host() -> None:
    plan = plan_memory(Glm4vConfig(), paper("offload"), gpus=2)
    assert plan.at("update") == 0
    assert 150 < plan.host_bytes / GIB < 156
    assert verdict(plan, 80) == "fits"


def test_measure_shape_of_9b_equals_known_parameters_and_activations() -> None:
    shape = measure_shape(build_skeleton(Glm4vConfig()), paper("fp32").model)
    assert shape.total / 1e9 == pytest.approx(10.29, abs=0.01)
    plan = plan_memory(Glm4vConfig(), paper("fp32"), gpus=2)
    assert plan.parts["kept: layer inputs"] / GIB == pytest.approx(5.0, abs=0.01)


def test_alternatives_for_a_run_that_does_not_fit_all_fit() -> None:
    found = alternatives(Glm4vConfig(), paper("fp32"), gpus=2, gpu_gib=80, vision_tokens=None, supervised_tokens=1024)
    changes = [alternative.change for alternative in found]
    assert "optimizer.kind=adamw_8bit" in changes
    assert "parallel.cpu_offload=true" in changes
    assert all(alternative.verdict != "does not fit" for alternative in found)


def test_plan_command_prints_json_or_a_table() -> None:
    result = CliRunner().invoke(
        app, ["plan", str(CONFIGS / "seer-9b.toml"), "--gpus", "2", "--gpu-gib", "80", "--json"]
    )
    assert result.exit_code == 0, result.output
    record = json.loads(result.output)
    assert record["verdict"] == "fits"
    assert 61.9 < record["checkpoint_gb"] < 62.2  # 41.17 of weights, 20.59 of codes, 0.32 of their scales
    assert record["host_gib_while_saving"] <= 1.2 * record["checkpoint_part_gib"]
    assert record["path"].keys() >= {"attention", "norms", "compile", "optimizer"}
    assert record["notice_too_short"] == ["torchrun"]  # 62 s at 1 GB/s
    text = CliRunner().invoke(app, ["plan", str(CONFIGS / "seer-9b.toml"), "--gpu-gib", "24"])
    assert "does not fit" in text.output


def test_model_shape_of_missing_folder_is_glm_9b(tmp_path: Path) -> None:
    glm, source = model_shape(str(tmp_path / "none"))
    assert glm.text_config.hidden_size == Glm4vConfig().text_config.hidden_size
    assert source == f"GLM-4.1V-9B ('{tmp_path / 'none'}' does not exist, so this shape is assumed)"
    glm, source = model_shape(str(tiny_base()))
    assert (glm.text_config.hidden_size, source) == (64, f"'{tiny_base()}'")
    assert plan_memory(glm, config(tmp_path), gpus=1).shape.total < 1e6


def test_show_without_alternatives_says_so_and_prints_host_memory(tmp_path: Path, capsys) -> None:
    settings = config(tmp_path, parallel={"cpu_offload": True})
    glm, source = model_shape(str(tiny_base()))
    plan = plan_memory(glm, settings, gpus=1)
    others = alternatives(glm, settings, gpus=1, gpu_gib=1, vision_tokens=None, supervised_tokens=16)
    assert others == []  # the reserve is larger than the GPU
    show(as_record(plan, settings, gpus=1, gpu_gib=1), source, others)
    printed = " ".join(capsys.readouterr().out.split())
    assert "does not fit" in printed and "no single change fits; combine several, or use more GPUs" in printed
    assert "host memory for the offloaded state:" in printed


def measured_peak(settings: TrainConfig, batch) -> int:
    """Peak bytes in one step of a run, optimiser state included."""
    trainee = prepare(tiny_checkpoint(), settings.model, 0)
    optimizer = build_optimizer(trainee, settings.optimizer)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        (trainee(batch).total / batch.weight_sum).backward()
        clip_gradients(trainee, 1.0)
        optimizer.step()

    step()
    optimizer.zero_grad(set_to_none=True)
    state = [t for s in optimizer.state.values() for t in s.values() if isinstance(t, torch.Tensor)]
    resting = sum(t.numel() * t.element_size() for t in (*trainee.parameters(), *state))
    with torch.profiler.profile(profile_memory=True) as profile:
        step()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return resting + peak


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("count", [2, 24])
def test_plan_workload_is_within_15_percent_of_measured_peak(
    checkpointing: bool, frozen: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_other_devices_code(monkeypatch)
    switches = {"activation_checkpointing": checkpointing, "freeze_vision": frozen, "freeze_merger": frozen}
    settings = config("out", model=switches).resolved(cuda=False)
    batch = collate(samples(tiny_checkpoint(), count))
    measured = measured_peak(settings, batch)
    workload = Workload(batch.num_tokens, batch.num_vision_tokens, len(batch.targets_N))
    planned = plan_workload(tiny_checkpoint().model.config, settings, workload, gpus=1)
    assert planned.peak_bytes / measured == pytest.approx(1, abs=0.15), (planned.parts, measured)


def test_show_lists_single_changes_that_fit(tmp_path: Path, capsys) -> None:
    glm, source = model_shape(str(CONFIGS / "none"))
    settings = load_config(TrainConfig, CONFIGS / "seer-9b.toml")
    load = {"vision_tokens": None, "supervised_tokens": 1024}
    others = alternatives(glm, settings, gpus=2, gpu_gib=60, **load)
    assert others
    show(as_record(plan_memory(glm, settings, gpus=2, **load), settings, gpus=2, gpu_gib=60), source, others)
    printed = capsys.readouterr().out
    assert "single changes that fit:" in printed
    assert all(
        f"{other.change}: {other.plan.peak_bytes / 2**30:.1f} GiB, {other.verdict}" in printed for other in others
    )


@pytest.mark.parametrize("part", ["freeze_vision", "freeze_merger", "freeze_embeddings"])
def test_checkpoint_bytes_without_moments_of_frozen_parts_equal_the_state(part: str) -> None:
    settings = config("x", model={part: True, "freeze_vision": part != "freeze_embeddings"}).resolved(cuda=False)
    trainee = prepare(tiny_checkpoint(), settings.model, 0)
    planned = checkpoint_bytes(build_skeleton(tiny_checkpoint().model.config), settings, gpus=1)
    trained = sum(p.numel() for p in trainee.parameters() if p.requires_grad)
    assert planned == 4 * sum(p.numel() for p in trainee.parameters()) + 8 * trained


def test_measure_shape_counts_frozen_embeddings() -> None:
    glm, _ = model_shape(str(tiny_base()))
    shapes = [
        plan_memory(glm, config("x", model={"freeze_embeddings": frozen}), gpus=1).shape for frozen in (False, True)
    ]
    assert shapes[0].total == shapes[1].total
    assert shapes[1].frozen - shapes[0].frozen == glm.text_config.vocab_size * glm.text_config.hidden_size


@pytest.mark.parametrize(
    ("shape", "shards", "fits"),
    [
        ((4096, 4096), 64, True),
        ((4096, 13696), 2, True),
        ((4096, 13696), 3, False),  # 1,366 rows and a last shard of 1,364, whose rows end within a block
        ((4098, 4096), 4, True),  # uneven shards of whole rows
        ((4608,), 1, True),
        ((4608,), 2, False),  # shards of fewer than 4,096 numbers
        ((16, 512), 32, False),  # more shards than rows
        ((5, 4096), 4, False),  # the last rank is empty
        ((1536, 3, 2, 14, 14), 64, False),  # the blocks begin within shards
    ],
)
def test_blocks_fit_if_every_shard_has_whole_blocks(shape: tuple[int, ...], shards: int, fits: bool) -> None:
    assert blocks_fit(shape, shards, 256) is fits
