"""The manners of every command line: what was raised on purpose is one line and an exit code; `--debug` shows where."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from seer.errors import SeerError

DEBUG = "--debug"
EPILOG = "With --debug anywhere in the command, an error shows its traceback."
INTERRUPTED, PIPE_CLOSED = 130, 141


def run(application: typer.Typer, name: str) -> NoReturn:
    """Run a command line by `sys.argv`, as `name`."""
    debug = DEBUG in sys.argv
    sys.argv[:] = [argument for argument in sys.argv if argument != DEBUG]
    try:
        application(prog_name=name)
    except SeerError as error:
        if debug:
            raise
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.exit(PIPE_CLOSED)
    sys.exit(0)
