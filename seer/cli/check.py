"""`seer check`: whether a checkpoint can be used."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from seer.cli.command import AsJson


def check(
    model: Annotated[str, typer.Argument(help="Checkpoint folder.")],
    weights: Annotated[bool, typer.Option(help="Also load the weights and compare positions.")] = True,
    as_json: AsJson = False,
) -> None:
    """Check that a checkpoint works with Seer: control and stop tokens, chat template, image processor and positions.

    A note says what a stock checkpoint lacks and Seer supplies itself, such as the chat template and the stop tokens.

    Example: seer check path/to/checkpoint

    Exit codes: 0 the checkpoint can be used, perhaps with notes; 2 a check failed.
    """
    from seer.models.checks import check_model

    results = []
    for result in check_model(model, weights=weights):
        results.append(result)
        if not as_json:
            typer.echo(f"{result.status:<4}  {result.name}: {result.detail}")
    if as_json:
        checks = [{"name": one.name, "ok": one.ok, "note": one.note, "detail": one.detail} for one in results]
        typer.echo(json.dumps({"model": model, "ok": all(one.ok for one in results), "checks": checks}))
    if not all(result.ok for result in results):
        raise typer.Exit(2)
