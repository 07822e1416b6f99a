"""The step under accelerate, with DeepSpeed ZeRO on two CPU processes, equals the trainer's step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from train_fakes import config, trajectories

from seer.errors import ConfigError
from train.adapters.accelerate import fit, main, prepare_run, start, step, update
from train.parallel import World
from train.run import Run, build_run
from train.step import NonFiniteError, train_step

TESTS = Path(__file__).parents[1]
CPU = torch.device("cpu")


def launch(out: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}",
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    command = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--num_machines",
        "1",
        "--mixed_precision",
        "no",
        *options,
    ]
    return subprocess.run(
        [*command, str(TESTS / "train_zero_worker.py"), str(out)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
    )


def trained_alone(out: Path) -> tuple[Run, list[float]]:
    """A run of our trainer after two steps on one process, and its losses."""
    alone = World(0, 1, torch.device("cpu"), None)
    run = build_run(config(out, optimizer={"clip_norm": 1e9}), alone, [trajectories(24)])
    return run, [train_step(run, number, run.loader.take(number))["loss"] for number in range(2)]


def test_start_rejects_mixed_precision_that_accelerate_would_ignore(tmp_path: Path) -> None:
    """Otherwise the model would train in fp32 without a warning, with twice the memory and at a fraction of the speed."""
    with pytest.raises(ConfigError, match="launch with `--mixed_precision bf16`"):
        start(config(tmp_path, parallel={"precision": "mixed_bf16"}))


def test_update_with_non_finite_gradients_changes_no_weight(tmp_path: Path) -> None:
    run = build_run(config(tmp_path), World(0, 1, torch.device("cpu"), None), [trajectories(24)])
    before = [parameter.detach().clone() for parameter in run.trainee.parameters()]
    for parameter in run.trainee.parameters():
        parameter.grad = torch.full_like(parameter, torch.inf)
    accelerator = SimpleNamespace(
        distributed_type=SimpleNamespace(value="NO"), clip_grad_norm_=torch.nn.utils.clip_grad_norm_
    )
    with pytest.raises(NonFiniteError, match="the update was not made"):
        update(run, accelerator)
    assert all(torch.equal(p, b) for p, b in zip(run.trainee.parameters(), before, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("stage", [2, 3])
def test_accelerate_zero_takes_the_same_steps_as_the_trainer(tmp_path: Path, stage: int) -> None:
    pytest.importorskip("deepspeed")
    options = ["--use_deepspeed", "--zero_stage", str(stage), "--num_processes", "2"]
    done = launch(tmp_path, *options, DS_ACCELERATOR="cpu")
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["kind"] == "DEEPSPEED"
    run, losses = trained_alone(tmp_path / "one")
    assert results["losses"] == pytest.approx(losses, abs=1e-4)
    weights = load_file(tmp_path / "weights.safetensors")
    for name, parameter in run.trainee.model.named_parameters():
        torch.testing.assert_close(weights[name], parameter.detach(), atol=5e-4, rtol=5e-3)


@pytest.mark.slow
def test_accelerate_data_parallelism_takes_the_same_steps_as_the_trainer(tmp_path: Path) -> None:
    done = launch(tmp_path, "--num_processes", "2", "--cpu", "--num_cpu_threads_per_process=1")
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads((tmp_path / "results.json").read_text())
    _, losses = trained_alone(tmp_path / "one")
    assert results["losses"] == pytest.approx(losses, abs=1e-4)


def test_start_rejects_fsdp_that_accelerate_would_ignore(tmp_path: Path) -> None:
    done = launch(tmp_path, "--cpu", ACCELERATE_USE_FSDP="true", FSDP_VERSION="2")
    assert done.returncode != 0
    assert "FSDP was requested, but accelerate chose" in done.stderr


# ── One process, without a launcher ──────────────────────────────────────────────────────────────


@pytest.fixture
def alone() -> Iterator[None]:
    """Reset accelerate's state, which it otherwise keeps for the life of the process."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("batching", [{}, {"packing": "single"}], ids=["packed", "single"])
def test_accelerate_fit_on_one_process_takes_the_same_steps_and_exports(
    tmp_path: Path, alone: None, batching: dict
) -> None:
    settings = config(tmp_path / "run", steps=2, batching=batching, checkpoint={"export": True})
    record = fit(settings, [trajectories(24)])
    run = build_run(
        settings.model_copy(update={"out": str(tmp_path / "one")}), World(0, 1, CPU, None), [trajectories(24)]
    )
    for number in range(2):
        expected = train_step(run, number, run.loader.take(number))
    for key in ("step", "lr", "loss", "grad_norm"):
        assert record[key] == pytest.approx(expected[key], rel=1e-4), key
    exported = load_file(next((tmp_path / "run" / "model").glob("*.safetensors")))
    for name, parameter in run.trainee.model.named_parameters():
        torch.testing.assert_close(exported[name].float(), parameter.detach(), atol=1e-2, rtol=1e-2)
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [one["step"] for one in logged if "loss" in one] == [1, 2]


def test_accelerate_step_with_non_finite_loss_raises_and_saves_the_batch(tmp_path: Path, alone: None) -> None:
    settings = config(tmp_path, optimizer={"lr": 1e-3})
    accelerator = start(settings)
    run = prepare_run(settings, accelerator, [trajectories(24)])
    with torch.no_grad():
        next(iter(run.trainee.parameters())).fill_(float("nan"))
    with pytest.raises(NonFiniteError, match="step 1: the loss is not finite; the batch is kept in"):
        step(run, accelerator, 0)
    assert list(tmp_path.rglob("non_finite-step-000001-rank-0*"))
    run.close()


@pytest.mark.parametrize("parallel", [{"replicas": 2}, {"cpu_offload": True}])
def test_start_rejects_settings_that_accelerate_decides(tmp_path: Path, parallel: dict) -> None:
    with pytest.raises(ConfigError, match=r"apply to seer-train only; set them in accelerate's configuration file"):
        start(config(tmp_path, parallel=parallel))


def test_accelerate_main_prints_usage_and_exits_with_2_on_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="usage: accelerate launch"):
        main([])
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "none.toml")])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_accelerate_main_reports_missing_model_in_one_line(
    tmp_path: Path, alone: None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(f'out = "{tmp_path / "out"}"\nsteps = 1\n[data]\nsets = [{{ path = "none" }}]\n')
    with pytest.raises(SystemExit) as ended:
        main([str(file), f"model.path={tmp_path / 'none'}"])
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: no checkpoint folder at") and printed.count("\n") == 1
