"""`seer eval miniature`: the paper's controls on a small synthetic world whose answers are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seer.cli.command import AsJson
from seer.cli.options import Device
from seer.cli.progress import progress
from seer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

Seed = Annotated[int, typer.Option(help="Seed of the held-out test world and of the random selector.")]


def miniature(
    model: Annotated[Path | None, typer.Option(help="Checkpoint folder. Default: the packaged one.")] = None,
    iso_model: Annotated[
        Path | None,
        typer.Option(help="Checkpoint trained on the same data without select turns. Default: the packaged one."),
    ] = None,
    n: Annotated[int, typer.Option("--n", help="Number of questions of the held-out test world.")] = 500,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the world, the runs and the report.")] = None,
    world_only: Annotated[
        bool, typer.Option("--world-only", help="Only write the world's questions, for `seer eval predict --data`.")
    ] = False,
    report: Annotated[bool, typer.Option("--report", help="Also write report.html, .md and .json.")] = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Run the paper's controls in miniature: ten runs over a held-out world whose answers are known.

    The questions are 40 % single facts, 20 % paraphrases, 15 % with two hops, 10 % over many pages and 15 % without an
    answer; about a quarter is Chinese. Runs that are complete in the folder are not repeated.

    Example: seer eval miniature --n 60 --seed 3 --report
    """
    from seer.evaluation.benchmarks.longbench import read_data
    from seer.miniature import controls as world
    from seer.models.checkpoint import check_folder, weights_digest

    if world_only:
        typer.echo(str(world.write_world(_require_folder(out), n, seed)))
        return
    chosen = world.find_model(model)
    iso = check_folder(iso_model) if iso_model else world.shipped_iso()
    folder = out or Path("runs") / f"miniature-{weights_digest(chosen)}-n{n}-seed{seed}"
    data = world.write_world(folder / world.DATA, n, seed)
    world.run_controls(data, folder, model=chosen, iso_model=iso, seed=seed, device=device, progress=progress)
    runs, gold = world.load_controls(folder), world.gold_pages(data)
    found = world.figures(runs, gold, n=n, seed=seed)
    if report:
        from seer.evaluation.reports.build import write_report
        from seer.miniature.report import miniature_report

        built = miniature_report(runs, gold, read_data(data)[0], found, checkpoint=chosen)
        for path in write_report(built, folder):
            typer.echo(str(path), err=as_json)
    show_figures(found, as_json)


def _require_folder(out: Path | None) -> Path:
    if out is None:
        raise InputError("--world-only needs a folder to write to; give it with --out")
    return out


def show_figures(found: Mapping[str, Any], as_json: bool) -> None:
    """Print the figures as a table, on standard error if standard output is reserved for JSON."""
    from rich.console import Console
    from rich.table import Table

    from seer.miniature.report import MEANINGS

    table = Table(title=f"The miniature: {found['n']} questions, seed {found['seed']}")
    table.add_column("figure")
    table.add_column("value", justify="right", no_wrap=True)
    for key, meaning in MEANINGS.items():
        value = found[key]
        table.add_row(meaning, "–" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value))
    Console(stderr=as_json, highlight=False, markup=False).print(table)
    if as_json:
        typer.echo(json.dumps(found))
