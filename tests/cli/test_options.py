"""Options that commands share: one meaning each, and former spellings that name the new one."""

from __future__ import annotations

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from seer.cli.main import app
from seer.cli.options import load_policy, style_changes
from seer.errors import ConfigError, InputError
from seer.reading.policy import ReadingPolicy

FORMER = {
    "--set": {
        "ask": "--policy",
        "eval predict": "--policy",
        "eval longbench": "--policy",
        "eval docqa": "--policy",
        "eval frontier": "--policy",
        "eval label": "--teacher-option",
        "eval extract": "--teacher-option",
        "render": "--style-option",
        "plan": "--style-option",
        "serve": "--server-option",
    },
    "--mode": {"ask": "--system"},
}
CASES = [(old, command, new) for old, commands in FORMER.items() for command, new in commands.items()]


def find(name: str):
    command = get_command(app)
    for word in name.split():
        command = command.commands[word]
    return command


def all_commands(command, name=""):
    for part, below in getattr(command, "commands", {}).items():
        yield from all_commands(below, f"{name} {part}".strip())
    if not hasattr(command, "commands"):
        yield name, command


@pytest.mark.parametrize(("old", "command", "new"), CASES)
def test_former_option_is_refused_with_its_replacement(old, command, new):
    result = CliRunner().invoke(app, [*command.split(), old, "key=3"])
    assert isinstance(result.exception, InputError), result.output
    assert result.exception.exit_code == 2
    assert str(result.exception) == f"{old} key=3: this option was replaced; use {new} key=3"


@pytest.mark.parametrize(("old", "command", "new"), CASES)
def test_former_option_is_hidden_and_its_replacement_is_shown(old, command, new):
    shown = {name for one in find(command).params if not getattr(one, "hidden", False) for name in one.opts}
    assert new in shown and old not in shown


def test_no_other_command_has_a_former_option():
    for name, command in all_commands(get_command(app)):
        for old, commands in FORMER.items():
            assert (old in {written for one in command.params for written in one.opts}) == (name in commands), name


@pytest.mark.parametrize(
    ("mode", "system"), [("select", "seer"), ("visual", "visual"), ("text", "text"), ("auto", "auto")]
)
def test_mode_is_refused_with_the_system_that_sets_it(mode, system):
    result = CliRunner().invoke(app, ["ask", "a.txt", "q", "--mode", mode])
    assert str(result.exception) == f"--mode {mode}: this option was replaced; use --system {system}"
    for override in (f"mode={mode}", f'mode = "{mode}"'):
        with pytest.raises(InputError, match=f"the system sets the mode; use --system {system}"):
            load_policy([override])


def test_load_policy_sets_fields_and_names_near_keys():
    assert load_policy(["rounds=3", "max_pages=2"]) == ReadingPolicy(rounds=3, max_pages=2)
    assert load_policy(None) == ReadingPolicy()
    with pytest.raises(ConfigError, match="did you mean 'max_pages'"):
        load_policy(["max_page=2"])


def test_style_changes_holds_only_the_fields_that_were_set():
    assert style_changes(["font_size_pt=8"]) == {"font_size_pt": 8.0}
    assert style_changes(None) == {}
