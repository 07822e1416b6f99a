"""Every way a command ends: one line and an exit code, or the traceback with --debug."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from seer.cli import command
from seer.errors import EngineError


def failing(error: BaseException) -> Any:
    def application(prog_name: str) -> None:
        raise error

    return application


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (EngineError("the server is away"), 1, "error: the server is away"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (BrokenPipeError(), command.PIPE_CLOSED, ""),
        (OSError(28, "No space left on device"), command.REFUSED_BY_THE_SYSTEM, "error: No space left on device"),
        (
            PermissionError(13, "Permission denied", "out"),
            command.REFUSED_BY_THE_SYSTEM,
            "error: 'out': Permission denied",
        ),
        (OSError("gone"), command.REFUSED_BY_THE_SYSTEM, "error: gone"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_run_maps_every_error_to_an_exit_code_and_one_line(monkeypatch, capsys, error, code, message) -> None:
    monkeypatch.setattr(sys, "argv", ["seer"])
    with pytest.raises(SystemExit) as ended:
        command.run(failing(error), "seer")
    assert (ended.value.code, capsys.readouterr().err.strip()) == (code, message)
    monkeypatch.setattr(sys, "argv", ["seer", "--debug"])
    if not isinstance(error, KeyboardInterrupt | BrokenPipeError):
        with pytest.raises(type(error)):
            command.run(failing(error), "seer")


def test_report_prints_one_line_without_control_characters(capsys) -> None:
    command.report("'a\nb\x1b[2J.pdf' is not a pdf file", "warning")
    assert capsys.readouterr().err == "warning: 'a b [2J.pdf' is not a pdf file\n"


@pytest.mark.parametrize(("number", "expected"), [(0, "0 pages"), (1, "1 page"), (2, "2 pages"), (1200, "1,200 pages")])
def test_counted_uses_singular_for_one(number, expected) -> None:
    assert command.counted(number, "page") == expected
