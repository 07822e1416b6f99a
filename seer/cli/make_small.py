"""`seer make-small`: a small, untrained checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from seer.cli.command import AsJson
from seer.errors import InputError


def make_small(
    out: Annotated[Path, typer.Argument(help="Folder for the checkpoint.")],
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Make a small, untrained GLM-4V checkpoint (1.6 M parameters) to try every command with. Its answers are random.

    Example: seer make-small small/
    """
    from seer.models.small import build_small

    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise InputError(f"'{out}' exists already; give a folder that does not")
    made = build_small(out, seed=seed)
    typer.echo(json.dumps({"out": str(made)}) if as_json else f"{made}: an untrained model; its answers mean nothing")
