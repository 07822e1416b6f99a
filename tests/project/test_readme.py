"""README keeps its word: every command and example in it is run here, or checked as far as a small machine can.

Commands run in a folder that holds what README's own words name (report.txt, path/to/checkpoint, longbench/ …), as they
stand, with options behind them that make them small. What needs a GPU, a server or an installation is parsed: every
option is one that the command has, every file named is there. Scripts run with stand-ins for the programs they call.
A command that no rule covers fails, and so does a rule that covers nothing.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fixtures.data.teacher_server import Say, serve
from serving_fakes import listening
from typer.main import get_command
from typer.testing import CliRunner

import data_pipeline.cli
import seer.cli.main
import train.cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
LINES = [line for language, block in BLOCKS if language == "sh" for line in block.splitlines()]
COMMANDS = [words for line in LINES if (words := tuple(shlex.split(line, comments=True)))]
EXAMPLES = [block for language, block in BLOCKS if language == "python"]
TREE = next(block for language, block in BLOCKS if block.startswith("seer/\n"))
MENTIONED = sorted(set(re.findall(r"`((?:seer|seer-data|seer-train|bash|scripts/\S+\.py)(?: [^`]+)?)`", README)))
APPS = {"seer": seer.cli.main.app, "seer-train": train.cli.app, "seer-data": data_pipeline.cli.app}


# ── What README's words name ─────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, small_checkpoint_dir: Path) -> Path:
    """Where a reader of README would stand: a document, a checkpoint, two benchmarks, the configurations."""
    from reportlab.pdfgen.canvas import Canvas

    here = tmp_path_factory.mktemp("readme")
    text = "The laptop costs 1299.99 dollars.\nThe total was 1749.98 dollars.\n"
    (here / "report.txt").write_text(text)
    (here / "path/to").mkdir(parents=True)
    (here / "path/to/checkpoint").symlink_to(small_checkpoint_dir)
    for name in ("configs", "seer"):
        (here / name).symlink_to(ROOT / name)
    (here / "longbench").mkdir()
    record = {"_id": "1", "input": "What was the total?", "context": text, "answers": ["1749.98"]}
    (here / "longbench/hotpotqa.jsonl").write_text(json.dumps(record) + "\n")
    asked = {"question": "What was the total?", "answer": "1749.98", "doc_id": "report.pdf", "doc_type": "report"}
    told = {"evidence_pages": "[1]", "evidence_sources": "[]", "answer_format": "Float"}
    (here / "samples.json").write_text(json.dumps([asked | told]))
    (here / "pdfs").mkdir()
    canvas = Canvas(str(here / "pdfs/report.pdf"), pagesize=(300, 200))
    canvas.drawString(20, 150, "The total was 1749.98 dollars.")
    canvas.save()
    other = "The harbour of Orla was dredged in 1904.\n"  # nothing of the benchmark, which builds are guarded from
    sample = {"id": "1", "question": "When was it dredged?", "context": other, "answers": ["1904"], "evidence": [other]}
    (here / "questions.jsonl").write_text(json.dumps(sample) + "\n")
    return here


@pytest.fixture(autouse=True)
def standing_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


# ── Rules: how a command is held to its word ─────────────────────────────────────────────────────

Rule = Callable[[tuple[str, ...]], None]


def runs(*more: str, codes: tuple[int, ...] = (0,)) -> Rule:
    """The command itself, with options that make it small."""

    def rule(words: tuple[str, ...]) -> None:
        result = CliRunner().invoke(APPS[words[0]], [*words[1:], *more])
        assert result.exit_code in codes, f"{result.exception!r}\n{result.output}"

    return rule


def find_command(words: tuple[str, ...]) -> tuple[Any, list[str]]:
    """The command that these words call, and its arguments."""
    command, rest = get_command(APPS[words[0]]), list(words[1:])
    while rest and rest[0] in getattr(command, "commands", ()):
        command = command.commands[rest.pop(0)]
    return command, rest


def parses(words: tuple[str, ...]) -> None:
    """The command takes these words: nothing that it needs is missing, every option is one of its own."""
    command, rest = find_command(words)
    command.make_context(" ".join(words), rest)


def asks_a_teacher(words: tuple[str, ...]) -> None:
    with serve(lambda body, n: Say("YES")) as teacher:
        address = words.index("--base-url") + 1
        runs()((*words[:address], teacher.base_url, *words[address + 1 :]))
        assert teacher.asked


def trains(words: tuple[str, ...]) -> None:
    """The command is whole and its configuration can be read."""
    from seer.config import load_config
    from train.config import TrainConfig

    if words[0] == "torchrun":
        from torch.distributed.run import get_args_parser

        launched = get_args_parser().parse_args(list(words[1:]))
        assert launched.module and importlib.util.find_spec(launched.training_script)
        (config,) = launched.training_script_args
    else:
        parses(words)
        config = words[2]
    load_config(TrainConfig, Path(config), ())


def known_extras() -> set[str]:
    return set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def installs(words: tuple[str, ...]) -> None:
    """What is asked of this project is among its extras."""
    extras = {extra for word in words if word.startswith(".[") for extra in word[2:-1].split(",")}
    assert extras <= known_extras()


RECORDER = """#!/bin/sh
cat > /dev/null  # what is piped here is taken, or who writes it may be ended by a signal
{ printf '%s' "${0##*/}"; [ $# -eq 0 ] || printf '\\037%s' "$@"; printf '\\036'; } >> "$CALLS"
"""
ENVIRONMENT = 'set -euo pipefail\ncd "$(dirname "${BASH_SOURCE[0]}")/.."\necho "$1" >> "$EXTRAS"\n'


def runs_with_stand_ins(words: tuple[str, ...]) -> None:
    """The script itself, where the programs it calls only note how they were called; and those calls are looked at."""
    house = Path("house")
    shutil.rmtree(house, ignore_errors=True)
    shutil.copytree(ROOT / "scripts", house / "scripts")
    (house / "scripts/environment.sh").write_text(ENVIRONMENT)
    for name in ("configs", "seer"):
        (house / name).symlink_to(ROOT / name)
    (house / "bin").mkdir()
    for name in (*APPS, "python", "ruff", "mypy"):
        (house / "bin" / name).write_text(RECORDER)
        (house / "bin" / name).chmod(0o755)
    calls, extras = (house / "calls").absolute(), (house / "extras").absolute()
    path = f"{(house / 'bin').absolute()}{os.pathsep}{os.environ['PATH']}"
    noted = {"PATH": path, "CALLS": str(calls), "EXTRAS": str(extras)}
    done = subprocess.run(
        words, cwd=house, env=os.environ | noted, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    known = known_extras()
    assert set(extras.read_text().replace(",", " ").split()) <= known
    called = [call.split("\x1f") for call in calls.read_text().split("\x1e")[:-1]]
    assert called
    for program, *arguments in called:
        if program in APPS:
            parses((program, *arguments))
        elif program == "python" and arguments[0] == "-m":
            assert importlib.util.find_spec(arguments[1]), arguments
        elif program == "python" and arguments[0] != "-c":
            assert (ROOT / arguments[0]).is_file(), arguments


SMALL_RUN = ("--reasoning-tokens", "0")
RULES: dict[str, Rule] = {
    "bash": runs_with_stand_ins,
    "seer render": runs(),
    "seer plan": runs(),
    "seer ask": runs("--policy", "max_new_tokens=8", codes=(0, 1, 3)),
    "seer check": runs(),
    "seer eval longbench": runs(*SMALL_RUN),
    "seer eval docqa": runs(*SMALL_RUN),
    "seer eval label": asks_a_teacher,
    "seer eval miniature": runs("--n", "10"),
    "seer eval frontier": runs("--n", "10", "--max-pages", "1", *SMALL_RUN),
    "seer eval harness": parses,  # downloads its tasks
    "seer serve": parses,
    "seer-data build": runs(
        *("--input", "questions.jsonl", "--map", "evidence=evidence"),
        *("--judge", "gold", "--set", 'reason.kind="template"', "--set", 'guard.benchmark="longbench"'),
    ),
    "seer-train plan": runs(),
    "seer-train run": trains,
    "pip install": installs,
    "torchrun": trains,
}


def rule_of(words: tuple[str, ...]) -> str:
    found = [key for key in RULES if tuple(key.split()) == words[: len(key.split())]]
    assert found, f"README has '{' '.join(words)}', and no rule of this test covers it: add one to RULES"
    return max(found, key=len)


# ── The tests ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_does_what_readme_says(words, monkeypatch):
    monkeypatch.setattr("seer.miniature.controls.MAX_NEW_TOKENS", dict.fromkeys(KINDS, 8))
    RULES[rule_of(words)](words)


KINDS = ("single", "paraphrase", "hop", "many", "unanswerable")


def test_no_rule_is_left_over():
    assert {rule_of(words) for words in COMMANDS} == set(RULES)


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_python_example_runs(example, monkeypatch, capsys):
    from seer.reading.policy import ReadingPolicy

    monkeypatch.setattr("seer.reading.reader.ReadingPolicy", functools.partial(ReadingPolicy, max_new_tokens=8))
    with served_at(SERVER, example) as told:
        exec(compile(told, "README.md", "exec"), {})
    assert capsys.readouterr().out


SERVER = "http://127.0.0.1:8080"


@contextmanager
def served_at(address: str, example: str) -> Iterator[str]:
    """The example, with a server of this package where it asks one."""
    if address not in example:
        yield example
        return
    pytest.importorskip("uvicorn")
    from seer.engines.build import build_engine, make_concurrent
    from seer.reading.policy import ReadingPolicy
    from seer.serving.server import create_app
    from seer.serving.settings import ServeSettings

    app = create_app(make_concurrent(build_engine("scripted")), ReadingPolicy(), ServeSettings())
    with listening(app) as there:
        yield example.replace(address, there)


@pytest.mark.parametrize("mention", MENTIONED)
def test_a_command_named_in_passing_is_there_with_its_options(mention):
    words = tuple(shlex.split(mention))
    options: set[str] = set()
    if words[0].endswith(".py"):
        calls = [node for node in ast.walk(ast.parse((ROOT / words[0]).read_text())) if isinstance(node, ast.Call)]
        options = {node.args[0].value for node in calls if node.args and isinstance(node.args[0], ast.Constant)}
    elif words[0] == "bash":
        assert (ROOT / words[1]).is_file()
        return
    else:
        command, _ = find_command(words)
        shown = [one for one in command.params if not getattr(one, "hidden", False)]
        options = {name for one in shown for name in (*one.opts, *one.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= options


def test_the_tree_and_the_links_lead_somewhere():
    for line in TREE.splitlines():
        parent = ROOT / "seer" if line.startswith(" ") else ROOT
        for name in line.strip().partition("  ")[0].split():
            assert list(parent.glob(name.rstrip("/"))), f"the tree names {name}"
    for target in re.findall(r"\]\(((?!https?:)[^)]+)\)", README):
        assert (ROOT / target).exists(), target
