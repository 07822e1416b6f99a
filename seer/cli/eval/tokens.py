"""`seer eval tokens`: what reading costs, without a model."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from seer.cli.command import AsJson
from seer.cli.eval.tables import show_tokens
from seer.cli.options import BenchmarkStyle, Data, Font, Limit, Tasks, page_style
from seer.cli.progress import progress


def tokens(
    data: Data,
    model: Annotated[str | None, typer.Option(help="Checkpoint folder to count with. Default: tekken.")] = None,
    style: BenchmarkStyle = "seer",
    font: Font = None,
    tasks: Tasks = None,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Count what reading costs, without a model: prompts with pages as images, with retrieved text, and as full text.

    Example: seer eval tokens --data longbench/ --style glyph
    """
    from seer.evaluation.analysis.dryrun import dry_token_tables
    from seer.evaluation.benchmarks.longbench import read_data
    from seer.models.checkpoint import load_encoder
    from seer.models.counting import tekken_encoder

    records, benchmark = read_data(data, tasks.split(",") if tasks else None, limit)
    encoder = load_encoder(model)[0] if model else tekken_encoder()
    with progress("counting") as on_progress:
        tables = dry_token_tables(
            records,
            encoder,
            page_style(style, font),
            benchmark=benchmark,
            on_progress=lambda done, total: on_progress(done, total, 0),
        )
    show_tokens(tables, len(records), model or "tekken", style, as_json)
    if as_json:
        typer.echo(
            json.dumps({"counter": model or "tekken", **{name: asdict(table) for name, table in tables.items()}})
        )
