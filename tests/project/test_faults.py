"""A full disk, an unwritable folder, a jumping clock: every command ends with one clear error, or is unaffected.

What a fault leaves behind is never taken for whole: the same command, run again, ends as if nothing had happened. A
limit on the size of files stands for the full disk; it holds for libraries that write outside of Python as well.
"""

from __future__ import annotations

import contextlib
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fixtures.data.world import write_world
from train_fakes import tiny_base, trajectories

import data_pipeline.cli
import seer.cli.main
import train.cli
from seer.evaluation.files import read_predictions
from seer.schema import Prediction

COLUMNS = "question=q,context=text,answers=a,evidence=quotes,document=doc"


@dataclass(frozen=True)
class Command:
    main: Callable[[], None]
    arguments: tuple[str, ...]
    """Without --out."""
    is_finished: Callable[[Path], bool]
    """True if a folder's content counts as complete."""
    written: tuple[str, ...]
    """Patterns of the files that equal runs write with equal bytes."""


def build(folder: Path) -> Command:
    data = write_world(folder / "train.jsonl", 6)
    arguments = ("build", "--input", str(data), "--map", COLUMNS)
    return Command(data_pipeline.cli.main, arguments, lambda out: (out / "train/manifest.json").exists(), ("train/*",))


def render(folder: Path) -> Command:
    document = folder / "report.txt"
    document.write_text("".join(f"Line {n} of the report says nothing of note.\n" for n in range(150)))
    return Command(seer.cli.main.main, ("render", str(document)), lambda out: (out / "manifest.json").exists(), ("*",))


def render_dataset(folder: Path) -> Command:
    drawn = render(folder)
    arguments = (*drawn.arguments, "--format", "hf")
    return Command(drawn.main, arguments, lambda out: (out / "data").exists(), ("data/*",))


def predict(folder: Path) -> Command:
    rows = [{"_id": f"q{n}", "input": "Who?", "context": f"Digger {n}\nfound it.", "answers": ["a"]} for n in range(6)]
    (folder / "data").mkdir()
    (folder / "data/hotpotqa.jsonl").write_text("".join(json.dumps({**row, "length": 3}) + "\n" for row in rows))
    arguments = ("eval", "predict", "--data", str(folder / "data"), "--engine", "scripted")
    return Command(seer.cli.main.main, arguments, lambda out: len(predictions(out / "hotpotqa.jsonl")) == len(rows), ())


def predictions(file: Path) -> list[Prediction]:
    return read_predictions(file, repair=True) if file.exists() else []


def fit(folder: Path) -> Command:
    (folder / "data.jsonl").write_text("".join(item.model_dump_json() + "\n" for item in trajectories(12)))
    (folder / "run.toml").write_text(
        f'steps = 4\n[data]\nsets = [{{ path = "{folder}/data.jsonl" }}]\n[model]\npath = "{tiny_base()}"\n'
        "[batching]\nglobal_batch = 2\nmax_tokens = 1024\n[parallel]\nthreads = 1\n[checkpoint]\nevery_steps = 2\n"
    )
    return Command(
        train.cli.main,
        ("run", str(folder / "run.toml")),
        lambda out: (out / "model/config.json").exists(),
        ("model/*.safetensors",),
    )


COMMANDS = {
    "seer-data build": build,
    "seer render": render,
    "seer render --format hf": render_dataset,
    "seer eval predict": predict,
    "seer-train run": fit,
}


@pytest.fixture(params=COMMANDS)
def command(request: pytest.FixtureRequest, tmp_path: Path) -> Command:
    return COMMANDS[request.param](tmp_path)


def run(command: Command, out: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    where = ("--set", f"out={out}") if command.main is train.cli.main else ("--out", str(out))
    monkeypatch.setattr(sys, "argv", ["command", *command.arguments, *where])
    with pytest.raises(SystemExit) as ended:
        command.main()
    return int(ended.value.code or 0)


def contents(command: Command, out: Path) -> dict[str, bytes]:
    files = (path for pattern in command.written for path in out.glob(pattern) if path.is_file())
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def check_said(said: str, *words: str) -> None:
    """The last line is the only error; lines before it show progress."""
    *before, last = said.strip().splitlines()
    assert last.startswith("error: "), said
    assert not any(line.startswith("error: ") or "Traceback" in line for line in before), said
    assert any(word in last for word in words), said


@contextlib.contextmanager
def full_disk(free_bytes: int) -> Iterator[None]:
    """Limit every file to this many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("share", [0, 0.1, 0.7])
def test_command_on_full_disk_reports_one_error_and_recovers(command, share, tmp_path, monkeypatch, capsys):
    """Either nothing can be written, or the larger files cannot."""
    assert run(command, tmp_path / "undisturbed", monkeypatch) == 0
    capsys.readouterr()
    largest = max(path.stat().st_size for path in (tmp_path / "undisturbed").rglob("*"))
    with full_disk(int(share * largest)):
        assert run(command, tmp_path / "out", monkeypatch) != 0
    check_said(capsys.readouterr().err, "too large")
    assert not command.is_finished(tmp_path / "out")
    assert run(command, tmp_path / "out", monkeypatch) == 0
    assert command.is_finished(tmp_path / "out")
    assert contents(command, tmp_path / "out") == contents(command, tmp_path / "undisturbed")


def test_command_with_unwritable_folder_reports_one_error(command, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("in the way")
    assert run(command, tmp_path / "file" / "out", monkeypatch) != 0
    check_said(capsys.readouterr().err, "file")
    assert (tmp_path / "file").read_text() == "in the way"


def test_command_with_jumping_clock_writes_equal_results(command, tmp_path, monkeypatch):
    assert run(command, tmp_path / "undisturbed", monkeypatch) == 0
    generator = random.Random(0)

    def jumping(*_: Any) -> float:
        return generator.choice([0.0, 1e9, 4e9])

    monkeypatch.setattr(time, "time", jumping)
    assert run(command, tmp_path / "out", monkeypatch) == 0
    assert contents(command, tmp_path / "out") == contents(command, tmp_path / "undisturbed")
