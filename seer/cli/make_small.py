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
    """Make a small, untrained GLM-4V checkpoint (1.6 M parameters) for trying commands. Its answers are random.

    Example: seer make-small small/
    """
    from seer.models.small import build_small

    _check_empty(out)
    made = build_small(out, seed=seed)
    typer.echo(json.dumps({"out": str(made)}) if as_json else f"{made}: an untrained model; its answers mean nothing")


def _check_empty(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir() if folder.is_dir() else [folder]):
        raise InputError(f"'{folder}' exists already; give a new or empty folder")
