"""The command `seer-train`.

seer-train run CONFIG [--set a.b=value ...]      train
seer-train plan CONFIG --gpus 2 --gpu-gib 80     will it fit?
seer-train inspect DATA --model DIR              what is learned, token by token
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from seer.errors import SeerError

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help="Train Seer models.")

ConfigPath = Annotated[Path, typer.Argument(help="A TOML file; see configs/.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="key=value, e.g. optimizer.lr=1e-6; may be repeated.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


@app.command()
def run(config: ConfigPath, overrides: Overrides = None, debug: Debug = False) -> None:
    """Train as a configuration says; continue where an earlier run of it stopped."""
    with reporting(debug):
        from seer.config import load_config
        from train.config import TrainConfig
        from train.sft import fit

        resolved = load_config(TrainConfig, config, overrides or ())
        summary = fit(resolved)
        if int(os.environ.get("RANK", 0)) == 0:
            loss = summary.last.get("loss")
            typer.echo(
                f"{summary.steps} steps in {summary.seconds:.0f} s ({summary.reason})"
                + (f", loss {loss:.4f}" if loss is not None else "")
                + f"; everything is in '{resolved.out}'"
            )


@app.callback()
def _commands() -> None:
    """Keeps `run` a subcommand."""


class reporting:  # noqa: N801  reads as a statement
    """Print a SeerError as one line and exit with its code; let everything else through."""

    def __init__(self, debug: bool) -> None:
        self.debug = debug

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SeerError) and not self.debug:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(error.exit_code) from None
        if isinstance(error, KeyboardInterrupt):
            raise typer.Exit(130) from None


def main() -> None:
    app(prog_name="seer-train")


if __name__ == "__main__":
    sys.exit(main())
