"""Checkpoints: complete or absent, checked before use, resumed to the bit, whatever kills the run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from train_fakes import config, tiny_base, trajectories

from seer.errors import ConfigError
from train.checkpoint import CheckpointError, complete_names, state_tensors, verify
from train.metrics import read_metrics
from train.parallel import World
from train.run import Run, build_run
from train.sft import fit
from train.step import train_step

ALONE = World(0, 1, torch.device("cpu"), None)
TESTS = Path(__file__).parent


def make(out: Path, **sections) -> Run:
    return build_run(config(out, **sections), ALONE, [trajectories(24)])


def advance(run: Run, steps: int) -> None:
    for step in range(run.start_step, run.start_step + steps):
        train_step(run, step, run.loader.take(step))
    run.start_step += steps


def tensors(run: Run) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in state_tensors(run.trainee, run.optimizer).items()}


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


KINDS = [
    ("adamw", "float32"),
    ("muon", "float32"),
    ("adamw_bf16_states", "float32"),
    pytest.param("adamw_8bit", "float32", marks=pytest.mark.slow),  # torchao compiles its kernels
    pytest.param("adamw_stochastic", "bf16", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("kind", "precision"), KINDS)
def test_resuming_is_bitwise(tmp_path: Path, kind: str, precision: str) -> None:
    if kind in ("adamw_8bit", "adamw_stochastic"):
        pytest.importorskip("torchao")
    sections = {"optimizer": {"kind": kind, "betas": (0.9, 0.95)}, "parallel": {"precision": precision}}
    undisturbed = make(tmp_path / "a", **sections)
    advance(undisturbed, 2)
    random_after_two = torch.get_rng_state()
    advance(undisturbed, 2)
    first = make(tmp_path / "b", **sections)
    advance(first, 2)
    first.save(2)
    first.checkpoints.finish()
    torch.manual_seed(99)
    second = make(tmp_path / "b", **sections)
    second.resume()
    assert torch.equal(torch.get_rng_state(), random_after_two), "the random state is part of a checkpoint"
    assert second.start_step == 2
    advance(second, 2)
    assert same(tensors(undisturbed), tensors(second))


def test_a_background_save_holds_the_state_of_its_moment(tmp_path: Path) -> None:
    run = make(tmp_path)
    advance(run, 1)
    before = tensors(run)
    run.save(1)
    advance(run, 2)  # goes on while the checkpoint is written
    run.checkpoints.finish()
    other = make(tmp_path)
    other.resume()
    assert same(before, tensors(other))


def test_only_safetensors_json_and_text_are_written(tmp_path: Path) -> None:
    run = make(tmp_path)
    advance(run, 1)
    run.save(1)
    run.checkpoints.finish()
    files = [path for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".safetensors", ".json", ""}
    assert not any(path.read_bytes()[:2] == b"\x80\x02" for path in files), "no pickle"
    assert (tmp_path / "checkpoints" / "latest").read_text() == "step-000001"


def test_the_newest_are_kept(tmp_path: Path) -> None:
    run = make(tmp_path, checkpoint={"keep": 2})
    for _ in range(4):
        advance(run, 1)
        run.save(run.start_step)
    run.checkpoints.finish()
    assert complete_names(tmp_path / "checkpoints") == ["step-000003", "step-000004"]


@pytest.mark.parametrize("damage", ["flipped byte", "short file", "missing file", "no manifest", "broken manifest"])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_used(tmp_path: Path, damage: str, capsys) -> None:
    run = make(tmp_path)
    states = []
    for _ in range(2):
        advance(run, 1)
        states.append(tensors(run))
        run.save(run.start_step)
    run.checkpoints.finish()
    newest = tmp_path / "checkpoints" / "step-000002"
    shard = next(newest.glob("*.safetensors"))
    data = bytearray(shard.read_bytes())
    match damage:
        case "flipped byte":
            data[len(data) // 2] ^= 1
            shard.write_bytes(data)
        case "short file":
            shard.write_bytes(data[:-7])
        case "missing file":
            shard.unlink()
        case "no manifest":
            (newest / "manifest.json").unlink()
        case "broken manifest":
            (newest / "manifest.json").write_text('{"step": 2')
    other = make(tmp_path)
    other.resume()
    assert other.start_step == 1
    assert same(states[0], tensors(other))
    if damage != "no manifest":
        assert "using the checkpoint before it" in capsys.readouterr().err
        with pytest.raises(CheckpointError):
            verify(tmp_path / "checkpoints" / "step-000002.damaged")


def test_a_half_written_checkpoint_does_not_count(tmp_path: Path) -> None:
    run = make(tmp_path)
    advance(run, 1)
    run.save(1)
    run.checkpoints.finish()
    half = tmp_path / "checkpoints" / ".step-000002.writing"
    half.mkdir()
    (half / "shard.safetensors").write_bytes(b"half")
    other = make(tmp_path)
    other.resume()
    assert other.start_step == 1


def test_another_run_is_not_continued(tmp_path: Path) -> None:
    run = make(tmp_path)
    advance(run, 1)
    run.save(1)
    run.checkpoints.finish()
    with pytest.raises(ConfigError, match="would mix two runs"):
        make(tmp_path, seed=7).resume()
    with pytest.raises(ConfigError, match=r"checkpoint\.resume = false"):
        build_run(config(tmp_path), ALONE, [trajectories(23)]).resume()


def test_a_resumed_run_reaches_the_same_end_with_one_log(tmp_path: Path) -> None:
    fit(config(tmp_path / "a", steps=5), sources=[trajectories(24)])
    fit(
        config(tmp_path / "b", steps=5, checkpoint={"every_steps": 2}, stop={"max_seconds": 1e-9}),
        sources=[trajectories(24)],
    )
    assert [r["step"] for r in read_metrics(tmp_path / "b" / "metrics.jsonl")] == [1]
    summary = fit(config(tmp_path / "b", steps=5), sources=[trajectories(24)])
    assert (summary.steps, summary.reason) == (5, "steps")
    logs = [read_metrics(tmp_path / name / "metrics.jsonl") for name in "ab"]
    assert [r["step"] for r in logs[1]] == [1, 2, 3, 4, 5]
    assert [r["loss"] for r in logs[0]] == [r["loss"] for r in logs[1]]
    ends = [load_file(next((tmp_path / n / "checkpoints" / "step-000005").glob("*.safetensors"))) for n in "ab"]
    assert same(*ends)


# ── Processes that are really killed ─────────────────────────────────────────────────────────────


def start(folder: Path, steps: int) -> subprocess.Popen[str]:
    """`seer-train run` on trajectories in a file, in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data.jsonl"
    if not data.exists():
        data.write_text("".join(item.model_dump_json() + "\n" for item in trajectories(24)))
        (folder / "run.toml").write_text(
            f'out = "{folder / "run"}"\nsteps = {steps}\n'
            f'[data]\nsets = [{{ path = "{data}" }}]\n[model]\npath = "{tiny_base()}"\n[optimizer]\nlr = 1e-3\n'
            "[batching]\nglobal_batch = 2\nmax_tokens = 1024\n[parallel]\nthreads = 1\n"
            "[checkpoint]\nevery_steps = 10\nexport = false\n"
        )
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "train.sft", str(folder / "run.toml")]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def steps_logged(folder: Path) -> int:
    path = folder / "run" / "metrics.jsonl"
    return len(read_metrics(path)) if path.exists() else 0


def wait_for_steps(process: subprocess.Popen[str], folder: Path, steps: int) -> None:
    deadline = time.monotonic() + 200
    while steps_logged(folder) < steps and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)


def final_state(folder: Path, steps: int) -> dict[str, torch.Tensor]:
    return load_file(next((folder / "run" / "checkpoints" / f"step-{steps:06d}").glob("*.safetensors")))


def test_sigterm_saves_and_ends_cleanly(tmp_path: Path) -> None:
    process = start(tmp_path, steps=100000)
    wait_for_steps(process, tmp_path, 3)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors[-2000:]
    names = complete_names(tmp_path / "run" / "checkpoints")
    assert int(names[-1].removeprefix("step-")) == steps_logged(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_kill_9_at_ten_moments_ends_with_the_very_weights_of_the_undisturbed_run(tmp_path: Path) -> None:
    steps, rng = 200, random.Random(0)
    undisturbed = start(tmp_path / "a", steps)
    assert undisturbed.wait(timeout=600) == 0
    for kill in range(10):
        process = start(tmp_path / "b", steps)
        # a moment within the next tenth of the run, wherever in a step or a save it falls
        wait_for_steps(process, tmp_path / "b", kill * steps // 10 + rng.randint(1, 15))
        time.sleep(rng.random() * 0.1)
        process.kill()
        process.wait()
    assert start(tmp_path / "b", steps).wait(timeout=600) == 0
    assert same(final_state(tmp_path / "a", steps), final_state(tmp_path / "b", steps))
    logs = [[r["loss"] for r in read_metrics(tmp_path / name / "run" / "metrics.jsonl")] for name in "ab"]
    assert logs[0] == logs[1]
    assert (
        json.loads((tmp_path / "b" / "run" / "checkpoints" / f"step-{steps:06d}" / "manifest.json").read_text())["step"]
        == steps
    )
