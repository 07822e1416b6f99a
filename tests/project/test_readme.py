"""Every command in README.md, CONTRIBUTING.md and docs/*.md runs here, or is checked as far as possible.

Commands run in a folder that contains the files they name (report.txt, path/to/checkpoint, longbench/ …), with further
options that keep them small. Commands that need a GPU, a server or an installation are parsed: every option must exist,
and so must every file. Scripts run with fakes for the programs they call. A command without a rule fails, and so does a
rule without a command.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import serving_fakes
from fixtures.data import teacher_server
from guides import APPS, COMMANDS, ROOT, find_command, known_extras, options_of_script
from typer.testing import CliRunner

TYPES = ("single", "paraphrase", "hop", "many", "unanswerable")
pytestmark = pytest.mark.usefixtures("run_in_folder")


@pytest.fixture(autouse=True)
def keep_miniature_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seer.miniature.controls.MAX_NEW_TOKENS", dict.fromkeys(TYPES, 8))


# ── Files that other commands make ───────────────────────────────────────────────────────────────

MADE_BY = {
    "runs/data/paper": "seer-data build configs/data-paper.toml",
    "runs/docqa/short.jsonl": "seer eval extract runs/docqa",
}
"""The command that makes a path, for paths that are not the value of its --out."""


def make_inputs(words: tuple[str, ...]) -> None:
    """Run the documented commands that make the files these words name, unless the files exist."""
    for word in words:
        if word in value_of(words, "--out") or not re.match(r"(runs|labels)/", word) or Path(word).exists():
            continue
        makers = {out: command for command in COMMANDS if command != words for out in outputs_of(command)}
        known = [out for out in makers if f"{word}/".startswith(f"{out}/")]
        assert known, f"no documented command makes '{word}', which '{' '.join(words)}' reads"
        apply_rule(makers[max(known, key=len)])


def outputs_of(command: tuple[str, ...]) -> list[str]:
    """The paths that a documented command makes."""
    made = [path for path, start in MADE_BY.items() if " ".join(command).startswith(start)]
    return [*(out.rstrip("/") for out in value_of(command, "--out")), *made]


def value_of(words: tuple[str, ...], option: str) -> tuple[str, ...]:
    """The value of an option, or nothing."""
    return (words[words.index(option) + 1],) if option in words else ()


# ── Rules: how a command is checked ──────────────────────────────────────────────────────────────

Rule = Callable[[tuple[str, ...]], None]


def runs(*more: str, codes: tuple[int, ...] = (0,)) -> Rule:
    """The command runs, with further options that keep it small."""

    def rule(words: tuple[str, ...]) -> None:
        make_inputs(words)
        result = CliRunner().invoke(APPS[words[0]], [*words[1:], *more])
        assert result.exit_code in codes, f"{result.exception!r}\n{result.output}"

    return rule


def parses(words: tuple[str, ...]) -> None:
    """The command accepts these words: every option exists, and no required one is missing."""
    command, rest = find_command(words)
    command.make_context(" ".join(words), rest)


def with_address(words: tuple[str, ...], address: str) -> tuple[str, ...]:
    place = words.index("--base-url") + 1
    return (*words[:place], address, *words[place + 1 :])


def runs_with_teacher(words: tuple[str, ...]) -> None:
    with teacher_server.serve(lambda body, n: teacher_server.Say("YES")) as teacher:
        runs()(with_address(words, teacher.base_url))
        assert teacher.asked


def asks(words: tuple[str, ...]) -> None:
    """`seer ask` answers; an address in the command is replaced by a fake server's."""
    rule = runs("--policy", "max_new_tokens=8", codes=(0, 1, 3))
    if "--base-url" not in words:
        rule(words)
        return
    (model,) = value_of(words, "--model")
    with serving_fakes.serve(reply_to_reader, {"id": model, "owned_by": "someone"}) as server:
        runs()(with_address(words, server.base_url))
        assert any("image_url" in json.dumps(body) for body in server.asked)


EVIDENCE_REPLY = {
    **{"analysis": "a", "pages": [1], "answer": "1749.98", "answerable": True, "findings": "f"},
    **{"quotes": [{"page": 1, "quote": "The total was 1749.98 dollars."}]},
    **{"caption": "c", "section": [], "entities": [], "concepts": {"topic": [], "entity": [], "structure": []}},
}
"""An object with the fields that DocLens and Trident ask for in any of their calls."""


def reply_to_reader(body: dict[str, Any], number: int) -> serving_fakes.Say:
    """A stock model that selects page 1 and answers when it has seen the text."""
    if "Reply with one JSON object" in json.dumps(body["messages"]):
        return serving_fakes.Say(text=json.dumps(EVIDENCE_REPLY))
    has_text = "1749.98" in json.dumps(body["messages"])
    return serving_fakes.Say(text="1749.98" if has_text else '{"name": "select", "indices": [1]}')


def trains(words: tuple[str, ...]) -> None:
    """The launcher accepts the command, and the configuration loads."""
    from seer.config import load_config
    from train.config import TrainConfig

    overrides: tuple[str, ...] = ()
    if words[0] in ("torchrun", "accelerate"):
        module, arguments = launched(words)
        if module.startswith("verl."):
            assert Path(arguments[1], f"{arguments[3]}.yaml").is_file(), arguments
            return
        assert importlib.util.find_spec(module), module
        (config,) = arguments
    elif words[0] == "sbatch":
        script = next(word for word in words if word.endswith(".sbatch"))
        config = words[-1]
        done = subprocess.run(
            ["bash", script, config], env=os.environ | {"SEER_DRY_RUN": "1"}, capture_output=True, text=True, check=True
        )
        assert f"-m train.sft {config}" in done.stdout
    else:
        parses(words)
        config = words[2]
        overrides = tuple(words[n + 1] for n, word in enumerate(words) if word == "--set")
    load_config(TrainConfig, Path(config), overrides)


def reproduces(words: tuple[str, ...]) -> None:
    """The plan holds the documented runs; commands that need none of the models run."""
    from seer.evaluation.paper.models import load_models
    from seer.evaluation.paper.plan import choose_runs, plan_runs

    if "--dry-run" in words or "--report-only" in words:
        runs()(words)
        return
    parses(words)
    (models,) = value_of(words, "--models")
    only = [name for value in value_of(words, "--only") for name in value.split(",")]
    # Predictions of other programs are made elsewhere, so their folder is missing here.
    missing = {run.name for run in choose_runs(plan_runs(load_models(models)), only) if run.missing}
    assert missing <= {"foreign-rlm"}


def admits(words: tuple[str, ...]) -> None:
    """The command lists the documented build's set, which is too small for a validation part."""
    make_inputs((*words, "runs/data/paper/train"))
    runs("--set", "data.held_out=[]")(words)


def launched(words: tuple[str, ...]) -> tuple[str, list[str]]:
    """The module that torchrun or accelerate starts, and its arguments."""
    if words[0] == "torchrun":
        from torch.distributed.run import get_args_parser

        parsed = get_args_parser().parse_args(list(words[1:]))
    else:
        from accelerate.commands.launch import launch_command_parser

        assert words[1] == "launch"
        parsed = launch_command_parser().parse_args(list(words[2:]))
    assert parsed.module
    return parsed.training_script, parsed.training_script_args


def installs(words: tuple[str, ...]) -> None:
    """The extras of this project that are installed exist."""
    extras = {extra for word in words if word.startswith(".[") for extra in word[2:-1].split(",")}
    assert extras <= known_extras()


def makes_environment(words: tuple[str, ...]) -> None:
    assert words in {("python3", "-m", "venv", ".venv"), ("source", ".venv/bin/activate")}


def downloads(words: tuple[str, ...]) -> None:
    """The command of the model hub stores a repository in the folder that a configuration of this project names."""
    assert words[:2] == ("hf", "download") and re.fullmatch(r"[\w.-]+/[\w.-]+", words[2]), words
    (folder,) = value_of(words, "--local-dir")
    configurations = [path.read_text(encoding="utf-8") for path in (ROOT / "configs").glob("*.toml")]
    assert any(f'"{folder}"' in text for text in configurations), folder


def runs_script(words: tuple[str, ...]) -> None:
    """A Python script exists and defines the options of the command."""
    assert {word for word in words if word.startswith("--")} <= options_of_script(words[1])


RECORDER = """#!/bin/sh
cat > /dev/null  # read standard input, or a signal may end the program that writes to it
{ printf '%s' "${0##*/}"; [ $# -eq 0 ] || printf '\\037%s' "$@"; printf '\\036'; } >> "$CALLS"
"""
ENVIRONMENT = 'set -euo pipefail\ncd "$(dirname "${BASH_SOURCE[0]}")/.."\necho "$1" >> "$EXTRAS"\n'


def runs_with_fakes(words: tuple[str, ...]) -> None:
    """The script runs with fakes that record how it calls its programs, and each recorded call is valid."""
    checkout = Path("checkout")
    shutil.rmtree(checkout, ignore_errors=True)
    shutil.copytree(ROOT / "scripts", checkout / "scripts")
    (checkout / "scripts/environment.sh").write_text(ENVIRONMENT)
    for name in ("configs", "seer"):
        (checkout / name).symlink_to(ROOT / name)
    (checkout / "bin").mkdir()
    for name in (*APPS, "python", "ruff", "mypy"):
        (checkout / "bin" / name).write_text(RECORDER)
        (checkout / "bin" / name).chmod(0o755)
    calls, extras = (checkout / "calls").absolute(), (checkout / "extras").absolute()
    path = f"{(checkout / 'bin').absolute()}{os.pathsep}{os.environ['PATH']}"
    records = {"PATH": path, "CALLS": str(calls), "EXTRAS": str(extras)}
    done = subprocess.run(
        words,
        cwd=checkout,
        env=os.environ | records,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(extras.read_text().replace(",", " ").split()) <= known_extras()
    called = [call.split("\x1f") for call in calls.read_text().split("\x1e")[:-1]]
    assert called
    for program, *arguments in called:
        if program in APPS:
            parses((program, *arguments))
        elif program == "python" and arguments[0] == "-m":
            assert importlib.util.find_spec(arguments[1]), arguments
        elif program == "python" and arguments[0] != "-c":
            assert (ROOT / arguments[0]).is_file(), arguments


SMALL_RUN = ("--reasoning-tokens", "0", "--batch-size", "1")
RULES: dict[str, Rule] = {
    "bash": runs_with_fakes,
    "seer render": runs(),
    "seer plan": runs(),
    "seer cache": runs(),
    "seer make-small": runs(),
    "seer ask": asks,
    "seer check": runs(),
    "seer eval longbench": runs(*SMALL_RUN),
    "seer eval predict": runs(*SMALL_RUN),
    "seer eval score": runs(codes=(0, 4)),  # 4: the run lacks inputs
    "seer eval docqa": runs(*SMALL_RUN),
    "seer eval extract": runs_with_teacher,
    "seer eval label": runs_with_teacher,
    "seer eval report": runs(codes=(0, 4)),
    "seer eval tokens": runs(),
    "seer eval probe": runs(),
    "seer eval miniature": runs("--n", "10"),
    "seer eval frontier": runs("--n", "10", "--max-pages", "1", *SMALL_RUN),
    "seer eval paper": reproduces,
    "seer eval harness": parses,  # downloads its tasks
    "seer serve": parses,
    "seer-data build": runs(
        *("--input", "questions.jsonl", "--map", "evidence=evidence", "--judge", "gold", "--force"),
        *("--set", 'reason.kind="template"', "--set", 'guard.benchmark="longbench"'),
        *("--set", 'tokenizer="path/to/checkpoint"'),
    ),
    "seer-data sources": runs(),
    "seer-data serve-teachers": runs("--print"),
    "seer-data guard": runs(),
    "seer-data verify": runs(),
    "seer-data stats": runs(),
    "seer-data show": runs(),
    "seer-data export": runs(),
    "seer-train admit": admits,
    "seer-train plan": runs(),
    "seer-train inspect": runs(),
    "seer-train run": trains,
    "pip install": installs,
    "hf download": downloads,
    "python": runs_script,
    "python3 -m venv": makes_environment,
    "source": makes_environment,
    "torchrun": trains,
    "accelerate": trains,
    "sbatch": trains,
}


def without_variables(words: tuple[str, ...]) -> tuple[str, ...]:
    """The command without the environment variables before it."""
    return words[1:] and without_variables(words[1:]) if re.match(r"[A-Z_]+=", words[0]) else words


def rule_of(words: tuple[str, ...]) -> str:
    found = [key for key in RULES if tuple(key.split()) == words[: len(key.split())]]
    assert found, f"no rule covers '{' '.join(words)}': add one to RULES"
    return max(found, key=len)


def apply_rule(words: tuple[str, ...]) -> None:
    command = without_variables(words)
    RULES[rule_of(command)](command)


# ── The tests ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_command_runs_as_documented(words):
    apply_rule(words)


def test_rules_each_cover_a_command():
    assert {rule_of(without_variables(words)) for words in COMMANDS} == set(RULES)
