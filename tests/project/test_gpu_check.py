"""scripts/gpu_check.py in its CPU form: all verdicts, the summary, and what a wrong gradient leads to."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "gpu_check.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)


def test_gpu_check_on_a_cpu_passes_and_ends_with_its_counts(tmp_path: Path) -> None:
    done = run("--cpu", "--json", "--report", str(tmp_path / "report.jsonl"))
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout
    *verdicts, counts = [json.loads(line) for line in done.stdout.splitlines()]
    assert counts["failed"] == 0
    assert counts["checks"] == len(verdicts) == counts["passed"] + counts["skipped"]
    assert counts["passed"] >= 7
    for verdict in verdicts:
        assert {"figure", "bound"} <= verdict.keys() or verdict["reason"]
    assert (tmp_path / "report.jsonl").read_text() == done.stdout


def test_gpu_check_without_a_gpu_names_the_cpu_form() -> None:
    done = run("--json")
    assert done.returncode == 2
    assert "add --cpu for the reduced form" in done.stderr


def test_verdicts_report_a_wrong_gradient_and_an_exception_as_failed(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(trainee, batch, device):
        loss, grads = original(trainee, batch, device)
        calls.append(1)
        if len(calls) == 2:  # the checked model, after the reference
            name = next(iter(grads))
            grads[name] = grads[name] * torch.linspace(0, 2, grads[name].numel()).view_as(grads[name])
        return loss, grads

    def raising(bench):
        raise RuntimeError("no memory")

    calls: list[int] = []
    original = script.gradients
    monkeypatch.setattr(script, "gradients", wrong)
    monkeypatch.setattr(script, "CHECKS", {"parity": script.parity(attention="grouped"), "broken": raising})
    base = script.build_small(tmp_path / "base", seed=0, shape=script.TINY)
    bench = script.Bench(torch.device("cpu"), base, tmp_path, [script.trajectory(seed) for seed in range(12)])
    parity, broken = script.verdicts(bench)
    assert parity["verdict"] == "failed" and parity["figure"] < 0.999
    assert broken["verdict"] == "failed" and broken["reason"] == "RuntimeError: no memory"
