"""Two processes with gloo and FSDP2 give the results of one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from train_fakes import config, trajectories
from train_worker import VARIANTS, gradients

from seer.errors import InputError
from seer.models.checkpoint import load
from train import loop
from train.evaluation import evaluate
from train.parallel import World
from train.run import build_run
from train.state import state_tensors
from train.step import train_step

TESTS = Path(__file__).parents[1]


def alone() -> World:
    return World(0, 1, torch.device("cpu"), None)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """The folder and the results of a torchrun of two processes."""
    out = tmp_path_factory.mktemp("two")
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(TESTS / "train_worker.py"), str(out)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return out, json.loads((out / "results.json").read_text())


@pytest.mark.parametrize("sync", ["True", "False", "replicas"])
def test_gradients_on_two_processes_and_four_micro_batches_equal_one_process(two, sync: str) -> None:
    """The loss is not a mean of means (transformers #34191, TRL #2175) and goes through the root's forward."""
    out, results = two
    assert results["ranks"] == 2
    run = build_run(config(out / "one", batching={"global_batch": 8}), alone(), [trajectories(24)])
    wanted, got = gradients(run), load_file(out / f"gradients-{sync}.safetensors")
    assert wanted.keys() == got.keys()
    scale = max(float(g.abs().max()) for g in wanted.values())
    worst = max(float((wanted[n] - got[n]).abs().max()) for n in wanted)
    assert worst / scale < 1e-6


def test_train_step_with_a_rank_without_pictures_does_not_hang(two) -> None:
    """Every rank takes part in the tower's collectives (transformers #37186, verl #3670, torchtitan #4777)."""
    _, results = two
    assert results["pictures_on_one_rank"]["ranks_with_pictures"] == 1
    assert results["pictures_on_one_rank"]["loss"] > 0


def test_train_step_with_uneven_micro_batches_equals_one_process(two, tmp_path: Path) -> None:
    run = build_run(config(tmp_path, batching={"global_batch": 3}), alone(), [trajectories(24)])
    assert two[1]["uneven"] == pytest.approx(train_step(run, 0, run.loader.take(0))["loss"], abs=1e-5)


@pytest.mark.parametrize(
    ("variant", "tolerance"),
    [
        ("plain", 1e-5),
        ("hsdp", 1e-5),
        ("offload", 1e-5),
        ("checkpointing", 1e-5),
        ("mixed_bf16", 5e-2),
        ("bf16_states", 1e-2),
        ("muon", 1e-4),
    ],
)
def test_train_step_under_every_sharding_follows_one_process(
    two, tmp_path: Path, variant: str, tolerance: float
) -> None:
    alike = VARIANTS[variant] if variant == "muon" else {}
    run = build_run(config(tmp_path, **alike), alone(), [trajectories(24)])
    losses = [train_step(run, step, run.loader.take(step))["loss"] for step in range(2)]
    assert two[1][variant] == pytest.approx(losses, abs=tolerance)


def test_train_step_with_frozen_vision_learns_under_sharding_with_checkpointing(two) -> None:
    """Frozen weights under sharding (transformers #47254, DeepSpeed #8148)."""
    first, second = two[1]["frozen"]
    assert second < first


def test_evaluate_on_two_ranks_equals_one_process_and_allows_a_save(two, tmp_path: Path) -> None:
    """Weights that an evaluation gathers are sharded again afterwards."""
    run = build_run(config(tmp_path), alone(), [trajectories(24)], [trajectories(24)[:5]])
    for step in range(2):
        train_step(run, step, run.loader.take(step))
    wanted, got = evaluate(run, 2), two[1]["evaluated"]
    assert wanted.keys() == got.keys()
    for name in wanted:
        assert got[name] == pytest.approx(wanted[name], abs=1e-4) if name != "kind" else True


def test_resume_on_two_ranks_is_bitwise_equal(two) -> None:
    assert two[1]["resumed_at"] == 2
    assert two[1]["resumed_equal"]


def test_resume_on_one_rank_continues_a_checkpoint_of_two_ranks(two) -> None:
    """A checkpoint loads on another number of ranks and is equal within tolerance after one more step."""
    out, _ = two
    run = build_run(config(out / "plain"), alone(), [trajectories(24)])
    run.resume()
    assert run.start_step == 2
    train_step(run, 2, run.loader.take(2))
    wanted = load_file(out / "after-3.safetensors")
    for name, parameter in run.trainee.model.named_parameters():
        torch.testing.assert_close(parameter.detach(), wanted[name], atol=2e-5, rtol=1e-3)


def test_export_on_two_ranks_has_the_gathered_weights(two) -> None:
    out, _ = two
    exported = load(out / "exported", device="cpu").model.state_dict()
    wanted = load_file(out / "after-3.safetensors")
    assert exported.keys() == wanted.keys()
    assert all(torch.equal(exported[n], wanted[n]) for n in wanted)


# ── A failing rank, and replicas ─────────────────────────────────────────────────────────────────


def launch(processes: int, case: str, out: Path, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    # Without its compiler, torchao's optimiser starts in seconds and rounds the same way.
    environment = {
        **os.environ,
        "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}",
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    worker = [str(TESTS / "train_faults_worker.py"), case, str(out)]
    return subprocess.run([*command, *worker], env=environment, capture_output=True, text=True, timeout=timeout)


def test_replicas_with_stochastic_rounding_stay_equal_and_resume_equal(tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    done = launch(2, "replicas", tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    first, resumed = json.loads((tmp_path / "results.json").read_text())
    assert resumed["start"] == 1
    for result in (first, resumed):
        assert result["digests"][0] == result["digests"][1]


def test_resume_of_8_bit_moments_on_two_ranks_and_back_keeps_every_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torchao")
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    settings = config(tmp_path / "run", optimizer={"kind": "adamw_8bit"}, checkpoint={"background": False})
    run = build_run(settings, alone(), [trajectories(24)])
    train_step(run, 0, run.loader.take(0))
    run.save(1)
    before = {n: t.clone() for n, t in state_tensors(run.trainee, run.optimizer).items() if "exp_avg" in n}
    assert any(name.endswith(".codes") for name in before)
    done = launch(2, "eight_bit", tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    on_two = load_file(tmp_path / "moments.safetensors")
    assert {n for n in on_two if n.endswith(".codes")} <= before.keys()
    for name in on_two.keys() & before.keys():
        assert torch.equal(on_two[name].flatten(), before[name].flatten()), name
    back = build_run(settings, alone(), [trajectories(24)])
    back.resume()
    assert back.start_step == 2
    assert train_step(back, 2, back.loader.take(2))["loss"] > 0


@pytest.mark.slow
def test_run_with_a_failing_rank_prints_its_message_and_ends_every_process(tmp_path: Path) -> None:
    started = time.monotonic()
    done = launch(4, "failure", tmp_path / "run", timeout=120)
    assert done.returncode != 0
    assert "rank 1 failed: InputError: page 7 of 'x.pdf' is damaged; remove it" in done.stderr
    assert time.monotonic() - started < 90  # starting four processes takes most of it


@pytest.mark.parametrize(("ranks", "left"), [(1, 1), (2, 0)])
def test_leaving_after_a_failure_keeps_the_group_of_several_ranks(
    ranks: int, left: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Destroying an NCCL group waits for peers that wait for this rank (torchtitan #1342)."""
    calls: list[int] = []
    monkeypatch.setattr(loop, "end_world", lambda: calls.append(1))
    world = World(1 if ranks > 1 else 0, ranks, torch.device("cpu"), None)
    with pytest.raises(InputError), loop.leaving(world), loop.reporting(world):
        raise InputError("bad page")
    assert len(calls) == left
    assert capsys.readouterr().err == ("rank 1 failed: InputError: bad page\n" if ranks > 1 else "")


def test_leaving_after_success_ends_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(loop, "end_world", lambda: calls.append(1))
    with loop.leaving(World(0, 2, torch.device("cpu"), None)):
        pass
    assert calls == [1]
