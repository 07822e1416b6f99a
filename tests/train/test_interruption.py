"""Runs that are stopped or killed: signals, end conditions, what is saved, and bitwise resumption."""

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
from train_fakes import equal_tensors, tiny_base, trajectories

from train.checkpoint import complete_names
from train.config import StopConfig
from train.interrupt import Interrupts, good_enough
from train.metrics import read_metrics
from train.parallel import World

TESTS = Path(__file__).parents[1]
ALONE = World(0, 1, torch.device("cpu"), None)


def start(folder: Path, steps: int) -> subprocess.Popen[str]:
    """Start `seer-train run` in a process, on trajectories in a file."""
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


def test_run_on_sigterm_saves_and_exits_with_0(tmp_path: Path) -> None:
    process = start(tmp_path, steps=100000)
    wait_for_steps(process, tmp_path, 3)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors[-2000:]
    names = complete_names(tmp_path / "run" / "checkpoints")
    assert int(names[-1].removeprefix("step-")) == steps_logged(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_run_killed_ten_times_ends_with_the_weights_of_an_uninterrupted_run(tmp_path: Path) -> None:
    steps, rng = 200, random.Random(0)
    undisturbed = start(tmp_path / "a", steps)
    assert undisturbed.wait(timeout=600) == 0
    for kill in range(10):
        process = start(tmp_path / "b", steps)
        # a random moment in the next tenth of the run, during a step or a save
        wait_for_steps(process, tmp_path / "b", kill * steps // 10 + rng.randint(1, 15))
        time.sleep(rng.random() * 0.1)
        process.kill()
        process.wait()
    assert start(tmp_path / "b", steps).wait(timeout=600) == 0
    assert equal_tensors(final_state(tmp_path / "a", steps), final_state(tmp_path / "b", steps))
    logs = [[r["loss"] for r in read_metrics(tmp_path / name / "run" / "metrics.jsonl")] for name in "ab"]
    assert logs[0] == logs[1]
    assert (
        json.loads((tmp_path / "b" / "run" / "checkpoints" / f"step-{steps:06d}" / "manifest.json").read_text())["step"]
        == steps
    )


# ── Signals and end conditions ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", Interrupts.SIGNALS)
def test_first_signal_stops_after_the_step_and_the_block_restores_the_handler(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupts(StopConfig()) as interrupts:
        assert interrupts.reason(ALONE) == ""
        signal.raise_signal(number)
        assert interrupts.reason(ALONE) == "signal"
    assert signal.getsignal(number) is before


def test_second_ctrl_c_ends_the_run_at_once() -> None:
    with Interrupts(StopConfig()) as interrupts:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.reason(ALONE) == "signal"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_run_that_takes_too_long_stops_by_time() -> None:
    with Interrupts(StopConfig(max_seconds=1e-9)) as interrupts:
        assert interrupts.reason(ALONE) == "time"


@pytest.mark.parametrize(
    ("record", "expected"),
    [({"exact/call": 0.9}, True), ({"eval/exact/call": 0.9}, True), ({"exact/call": 0.8}, False), ({}, False)],
)
def test_good_enough_compares_the_metric_with_its_target(record: dict[str, float], expected: bool) -> None:
    assert good_enough(StopConfig(metric="exact/call", at_least=0.9), record) is expected
    assert not good_enough(StopConfig(), record)
