"""The `seer` command: one module of this package for each of its commands.

Every command ends with exit code 2 and a one-line error on bad input (1 if an engine failed, 3 if the document does not
answer the question). `--debug` anywhere in a command shows the traceback.
"""

from __future__ import annotations

from typing import Annotated, NoReturn

import typer

from seer import __version__
from seer.cli.ask import ask
from seer.cli.cache import cache
from seer.cli.check import check
from seer.cli.command import Commands, command_line, run
from seer.cli.demo import demo
from seer.cli.eval.main import app as evaluation
from seer.cli.make_small import make_small
from seer.cli.plan import plan
from seer.cli.render import render
from seer.cli.serve import serve

app = command_line(
    "seer",
    "Read long documents as page images, and retrieve exact text where a question needs it.\n\n"
    "See also: seer-data builds training data, seer-train trains on it.",
)


def main() -> NoReturn:
    """Run the command line. An error of `seer.errors` becomes one line and an exit code."""
    run(app, "seer")


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"seer {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=False)
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Accept the option `--version`, the only one before a command."""


for command in (ask, render, plan, check, serve, demo):
    app.command()(command)
app.add_typer(evaluation, name="eval", cls=Commands)
app.command("make-small")(make_small)
app.command()(cache)

if __name__ == "__main__":
    main()
