"""scripts/environment.sh: its calls of pip and its messages, with a stand-in for Python and pip."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/environment.sh"
PYTHON = """#!/bin/sh
printf '%s\\n' "$*" >> "$CALLS"
case "$*" in
  *"pip list"*) cat "$LISTED" ;;
  *"pip install"*) echo "a warning of a build backend" >&2
    while [ $# -gt 0 ]; do [ "$1" = -c ] && cat "$2" > "$HELD"; shift; done
    exit "$PIP_ENDS" ;;
esac
"""


class House:
    """A checkout that holds only this script, and an environment whose Python records its arguments."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "scripts").mkdir()
        shutil.copy(SCRIPT, place / "scripts")
        (place / "pyproject.toml").write_text("")
        (place / "venv/bin").mkdir(parents=True)
        (place / "venv/bin/python").write_text(PYTHON)
        (place / "venv/bin/python").chmod(0o755)

    def source(self, listed: str = "", pip_ends: int = 0) -> subprocess.CompletedProcess[str]:
        (self.place / "listed").write_text(listed)
        for name in ("calls", "held"):
            (self.place / name).write_text("")
        there = {name.upper(): str(self.place / name) for name in ("calls", "listed", "held")}
        path = f"{self.place / 'venv/bin'}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-c", 'source scripts/environment.sh "model,train" && echo ready'],
            cwd=self.place,
            env=os.environ | there | {"VIRTUAL_ENV": str(self.place / "venv"), "PATH": path, "PIP_ENDS": str(pip_ends)},
            capture_output=True,
            text=True,
            check=False,
        )

    def read(self, name: str) -> str:
        return (self.place / name).read_text()


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_environment_installs_once_and_prints_nothing_on_success(house: House) -> None:
    done = house.source()
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "ready" and not done.stderr
    assert "-e .[model,train]" in house.read("calls") and not house.read("held")
    again = house.source()
    assert again.stdout == "ready\n" and not house.read("calls")


def test_environment_shows_pip_output_on_failure_and_retries(house: House) -> None:
    for _ in range(2):
        failed = house.source(pip_ends=1)
        assert failed.returncode == 1 and "ready" not in failed.stdout
        assert "a warning of a build backend" in failed.stderr
        assert failed.stderr.splitlines()[-1].startswith("error: pip could not install seer-vlm[model,train]")


def test_environment_keeps_cpu_builds_of_torch_and_torchvision(house: House) -> None:
    done = house.source("numpy==2.3.1\ntorch==2.13.0+cpu\ntorchvision==0.28.0+cpu\n")
    assert done.returncode == 0, done.stderr
    assert house.read("held") == "torch==2.13.0+cpu\ntorchvision==0.28.0+cpu\n"


def test_environment_may_replace_a_cuda_build(house: House) -> None:
    assert house.source("torch==2.13.0\ntorchvision==0.28.0\n").returncode == 0
    assert not house.read("held")


def test_environment_rejects_cpu_torch_without_torchvision(house: House) -> None:
    refused = house.source("torch==2.13.0+cpu\ntorchvision==0.28.0\n")
    assert refused.returncode == 2 and "ready" not in refused.stdout
    assert "install the CPU build of torchvision" in refused.stderr and "venv/bin/pip" in refused.stderr
    assert "pip install -" not in house.read("calls")
