"""What every command line of the project shares: help, exit codes, and errors as one line (`--debug` shows tracebacks).

app = command_line("seer", "Long documents read as page images.")
run(app, "seer")
"""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from seer.errors import SeerError

DEBUG = "--debug"
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one last line of JSON.")]
EPILOG = "With --debug anywhere in the command, an error shows its traceback."
REFUSED_BY_THE_SYSTEM, INTERRUPTED, PIPE_CLOSED = 1, 130, 141


class Commands(TyperGroup):
    """A command with subcommands, whose help shows whole sentences and each example on one line, ready to copy."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for command in self.commands.values():
            command.help = keep_examples(command.help or "")

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands with their first sentences, however long these are."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(10_000)) for name, one in self.commands.items()])


def command_line(name: str, help: str) -> typer.Typer:
    """Return an empty command line with the settings that all of the project's command lines share."""
    return typer.Typer(
        name=name,
        help=help,
        cls=Commands,
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


def keep_examples(text: str) -> str:
    """Return a help text in which no paragraph that starts with `Example` is wrapped: one line an example."""
    paragraphs = text.split("\n\n")
    for number, paragraph in enumerate(paragraphs):
        if paragraph.startswith("Example"):
            examples = re.split(r"\n(?=Example)", paragraph)
            paragraphs[number] = "\b\n" + "\n".join(" ".join(example.split()) for example in examples)
    return "\n\n".join(paragraphs)


def run(application: typer.Typer, name: str) -> NoReturn:
    """Run a command line with the arguments of `sys.argv` under the program name `name`, then exit.

    An error of the package becomes one line on standard error and the error's exit code. With `--debug` among the
    arguments it is raised instead.
    """
    debug = DEBUG in sys.argv
    sys.argv[:] = [argument for argument in sys.argv if argument != DEBUG]
    try:
        application(prog_name=name)
    except SeerError as error:
        if debug:
            raise
        report(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.exit(PIPE_CLOSED)
    except OSError as error:  # e.g. a full disk or a read-only folder: the system's message describes it best
        if debug:
            raise
        place = f"'{error.filename}': " if error.filename else ""
        report(f"{place}{error.strerror or error}")
        sys.exit(REFUSED_BY_THE_SYSTEM)
    sys.exit(0)


def counted(number: int, thing: str) -> str:
    """Return a number with its noun: `1 page`, `1,200 pages`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """Return text of a document for a terminal: control characters become spaces."""
    return "".join(character if character.isprintable() else " " for character in text)


def report(message: str, kind: str = "error") -> None:
    """Print one line on standard error. Line breaks and escape sequences in names and documents become spaces."""
    typer.echo(f"{kind}: " + printable(message), err=True)
