"""Help, errors, exit codes and options that the three command lines share."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer import Context
from typer.main import get_command

import data_pipeline.cli
import seer.cli.main
import train.cli

APPS = {"seer": seer.cli.main.app, "seer-train": train.cli.app, "seer-data": data_pipeline.cli.app}
COMMANDS = {
    "seer.cli.main": ["ask", "none.txt", "q", "--engine", "scripted"],
    "train.cli": ["run", "none.toml"],
    "data_pipeline.cli": ["build", "none.toml"],
    "train.sft": ["none.toml"],
}


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", COMMANDS)
def test_command_rejects_bad_input_with_one_line_and_exit_code_2(module: str) -> None:
    if module.startswith("train.sft"):
        pytest.importorskip("torch")
    result = run(module, *COMMANDS[module])
    assert result.returncode == 2 and not result.stdout
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1, result.stderr
    assert "none." in result.stderr


@pytest.mark.parametrize("module", ["seer.cli.main", "train.cli", "data_pipeline.cli"])
@pytest.mark.parametrize("first", [True, False])
def test_debug_anywhere_shows_the_traceback(module: str, first: bool) -> None:
    arguments = ["--debug", *COMMANDS[module]] if first else [*COMMANDS[module], "--debug"]
    result = run(module, *arguments)
    assert result.returncode == 1 and "Traceback" in result.stderr
    assert "--debug" in run(module, "--help").stdout


@pytest.mark.parametrize("command", ["run", "plan"])
def test_trainer_rejects_a_wrong_configuration_before_torch_is_imported(command: str) -> None:
    """Importing torch takes five seconds."""
    program = "import sys, runpy\ntry: runpy.run_module('train.cli', run_name='__main__')\nfinally: print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program, command, "none.toml"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "False\n")


def every_command(command: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, options by their spelling) of this command and every command below it."""
    for part, under in getattr(command, "commands", {}).items():
        yield from every_command(under, f"{name} {part}")
    if not hasattr(command, "commands"):
        yield name, {written: option for option in command.params for written in option.opts if written.startswith("-")}


def find_command(program: str, words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that these words call, and its arguments."""
    command = get_command(APPS[program])
    while words and words[0] in getattr(command, "commands", ()):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def command_at(name: str) -> Any:
    program, *words = name.split()
    return find_command(program, words)[0]


EVERY = dict(pair for name, app in APPS.items() for pair in every_command(get_command(app), name))


def test_commands_with_a_result_have_json_output() -> None:
    silent = {name for name, options in EVERY.items() if "--json" not in options}
    assert silent == {"seer serve", "seer demo", "seer-train inspect"}, (
        "these run until stopped, or print for people only"
    )
    assert {options["--json"].help for options in EVERY.values() if "--json" in options} == {
        "Print the result as one last line of JSON."
    }


HELPS = {name: command_at(name).get_help(Context(command_at(name), info_name=name)) for name in EVERY}


def test_help_of_every_command_has_a_valid_example() -> None:
    for name, text in HELPS.items():
        examples = re.findall(r"^ *Example: (.*)$", text, re.MULTILINE)
        for example in examples:
            program, *words = shlex.split(example)
            command, rest = find_command(program, words)
            command.make_context(example, rest)
            assert example.startswith(name), "an example of another command"
        assert examples, f"{name} shows no example"


@pytest.mark.parametrize("name", [*APPS, "seer eval"])
def test_help_lists_commands_with_whole_sentences(name: str) -> None:
    command = command_at(name)
    text = command.get_help(Context(command, info_name=name))
    assert "│" not in text
    shown = " ".join(text.split())
    for part, under in command.commands.items():
        sentence = under.get_short_help_str(10_000)
        assert sentence and sentence[-1] in ".?" and f"{part} {sentence}" in shown


OVERRIDES = {
    "--policy": {
        "seer ask",
        "seer serve",
        *(f"seer eval {name}" for name in ("longbench", "predict", "docqa", "frontier")),
    },
    "--style-option": {"seer render", "seer plan"},
    "--server-option": {"seer serve"},
    "--teacher-option": {"seer eval label", "seer eval extract"},
}


@pytest.mark.parametrize("option", [*OVERRIDES, "--set", "--engine-arg"])
def test_override_option_can_be_repeated_wherever_it_is(option):
    takers = {name for name, options in EVERY.items() if option in options and not options[option].hidden}
    assert takers and all(EVERY[name][option].multiple for name in takers)
    if option in OVERRIDES:
        assert takers == OVERRIDES[option]
    if option == "--set":
        assert takers and all(name.startswith(("seer-data ", "seer-train ")) for name in takers)


def test_memory_options_have_one_unit():
    for name, options in EVERY.items():
        assert "--count" not in options and not {"--gpu-gb", "--gpu-memory"} & set(options), name


def test_error_with_control_characters_is_one_line() -> None:
    result = run("seer.cli.main", "render", "none\n\x1b[31m\u202e.txt")
    assert result.returncode == 2 and result.stderr.startswith("error: no document at 'none  [31m .txt'")
    assert result.stderr.count("\n") == 1 and result.stderr.strip().isprintable()
