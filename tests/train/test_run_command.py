"""`seer-train run`: what it prints, for people and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from train_fakes import tiny_base, trajectories
from typer.testing import CliRunner

from train.cli import app


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    """A run of one step on trajectories in a file."""
    data = tmp_path / "data.jsonl"
    data.write_text("".join(item.model_dump_json() + "\n" for item in trajectories(4)))
    path = tmp_path / "run.toml"
    path.write_text(
        f'out = "{tmp_path / "run"}"\nsteps = 1\n[data]\nsets = [{{ path = "{data}" }}]\nprefetch_steps = 0\n'
        f'[model]\npath = "{tiny_base()}"\n[batching]\nglobal_batch = 2\nmax_tokens = 1024\n'
        "[parallel]\nthreads = 1\n[checkpoint]\nexport = false\n"
    )
    return path


def test_run_prints_a_summary_and_as_json_the_same_figures(configuration: Path) -> None:
    shown = CliRunner().invoke(app, ["run", str(configuration)])
    assert shown.exit_code == 0, shown.output
    out = configuration.parent / "run"
    logged = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert shown.stdout.startswith("1 steps in ")
    assert f"loss {logged[-1]['loss']:.4f}; results are in '{out}'" in shown.stdout

    printed = CliRunner().invoke(
        app, ["run", str(configuration), "--json", "--set", f"out={configuration.parent / 'b'}"]
    )
    assert printed.exit_code == 0, printed.output
    summary = json.loads(printed.stdout.splitlines()[-1])
    assert summary["out"] == str(configuration.parent / "b")
    assert (summary["steps"], summary["last"]["loss"]) == (1, logged[-1]["loss"])
