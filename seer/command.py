"""The manners of every command line: what was raised on purpose is one line and an exit code; `--debug` shows where."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from seer.errors import SeerError

DEBUG = "--debug"
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one last line of JSON.")]
EPILOG = "With --debug anywhere in the command, an error shows its traceback."
REFUSED_BY_THE_SYSTEM, INTERRUPTED, PIPE_CLOSED = 1, 130, 141


def run(application: typer.Typer, name: str) -> NoReturn:
    """Run a command line by `sys.argv`, as `name`."""
    debug = DEBUG in sys.argv
    sys.argv[:] = [argument for argument in sys.argv if argument != DEBUG]
    try:
        application(prog_name=name)
    except SeerError as error:
        if debug:
            raise
        _report(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.exit(PIPE_CLOSED)
    except OSError as error:  # a full disk, a folder that may not be written: the system's own words
        if debug:
            raise
        place = f"'{error.filename}': " if error.filename else ""
        _report(f"{place}{error.strerror or error}")
        sys.exit(REFUSED_BY_THE_SYSTEM)
    sys.exit(0)


def _report(message: str) -> None:
    """One line, whatever stands in it: names and documents may hold line breaks and escape sequences."""
    typer.echo("error: " + "".join(c if c.isprintable() else " " for c in message), err=True)
