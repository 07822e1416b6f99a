"""The three command lines have the same manners."""

from __future__ import annotations

import subprocess
import sys

import pytest

COMMANDS = {
    "seer.cli": ["ask", "none.txt", "q", "--engine", "scripted"],
    "train.cli": ["run", "none.toml"],
    "data_pipeline.cli": ["build", "none.toml"],
    "train.sft": ["none.toml"],
}


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", COMMANDS)
def test_bad_input_is_one_line_and_exit_code_2(module: str) -> None:
    if module.startswith("train.sft"):
        pytest.importorskip("torch")
    result = run(module, *COMMANDS[module])
    assert result.returncode == 2 and not result.stdout
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1, result.stderr
    assert "none." in result.stderr


@pytest.mark.parametrize("module", ["seer.cli", "train.cli", "data_pipeline.cli"])
@pytest.mark.parametrize("first", [True, False])
def test_debug_shows_the_traceback_wherever_it_stands(module: str, first: bool) -> None:
    arguments = ["--debug", *COMMANDS[module]] if first else [*COMMANDS[module], "--debug"]
    result = run(module, *arguments)
    assert result.returncode == 1 and "Traceback" in result.stderr
    assert "--debug" in run(module, "--help").stdout
