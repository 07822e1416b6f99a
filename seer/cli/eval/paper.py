"""`seer eval paper`: every table of the paper, from one plan of resumable runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seer.cli.command import AsJson
from seer.cli.eval.predict import show_warnings
from seer.cli.options import Data, Device, Limit, RetryFailed, Tasks
from seer.cli.progress import progress

if TYPE_CHECKING:
    from seer.evaluation.paper.estimate import Estimate
    from seer.evaluation.paper.execute import Outcome
    from seer.evaluation.paper.plan import PlannedRun


def paper(
    data: Data,
    models: Annotated[Path, typer.Option(help="models.toml: checkpoints, addresses, judge and foreign predictions.")],
    out: Annotated[Path, typer.Option(help="Folder for the runs and the report.")] = Path("runs/paper"),
    only: Annotated[
        str | None,
        typer.Option(help="Only these tables, figures or runs and what they need, e.g. table1,figure3,forced-bm25."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the runs with their estimated tokens and cost.")
    ] = False,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Make no run; write the report of the runs in the folder.")
    ] = False,
    tasks: Tasks = None,
    limit: Limit = None,
    retry_failed: RetryFailed = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Reproduce the paper's tables: plan all runs, make those that are not complete, and write one report.

    Every run has a folder of its own, so any part can run on another machine; put the folders together and use
    --report-only. A run that is missing is marked in the report. Exit code 4: a planned run could not be made.

    Example: seer eval paper --data longbench/ --models models.toml --out runs/paper --dry-run
    Example: seer eval paper --data longbench/ --models models.toml --only table1,table17 --limit 20
    """
    from seer.evaluation.benchmarks.longbench import read_data
    from seer.evaluation.paper.execute import Engines, Reproduction
    from seer.evaluation.paper.loaded import load_reproduction
    from seer.evaluation.paper.models import load_models
    from seer.evaluation.paper.plan import choose_runs, plan_runs
    from seer.evaluation.paper.report import paper_report, warnings_of
    from seer.evaluation.reports.build import write_report
    from seer.evaluation.runs.score import EXIT_GAPS

    spec = load_models(models)
    plan = plan_runs(spec)
    chosen = choose_runs(plan, [name.strip() for name in (only or "").split(",") if name.strip()])
    records, benchmark = read_data(data, tasks.split(",") if tasks else None, limit)
    if dry_run:
        from seer.evaluation.paper.estimate import estimate, measure_tasks

        sizes = measure_tasks(records, benchmark, spec)
        _show_plan([(run, estimate(run, records, sizes, spec)) for run in chosen], as_json)
        return
    work = Reproduction(spec, records, benchmark, out, Engines(device), retry_failed, progress)
    outcomes = [] if report_only else _execute(chosen, work)
    reasons = {one.name: one.reason for one in outcomes if one.status == "not run"}
    loaded = load_reproduction(out, plan, spec, records, benchmark, reasons)
    for path in write_report(paper_report(loaded), out):
        typer.echo(str(path), err=as_json)
    if as_json:
        typer.echo(json.dumps({"out": str(out), "runs": {one.name: one.status for one in outcomes}}))
    show_warnings(warnings_of(loaded))
    if any(reasons.get(run.name) and not run.missing for run in chosen):
        raise typer.Exit(EXIT_GAPS)


def _execute(chosen: Sequence[PlannedRun], work: object) -> list[Outcome]:
    from seer.evaluation.paper.execute import Reproduction, execute

    assert isinstance(work, Reproduction)
    outcomes = []
    try:
        for run in chosen:
            outcome = execute(run, work)
            reason = f": {outcome.reason}" if outcome.reason else ""
            typer.echo(f"{outcome.name}: {outcome.status}{reason}", err=True)
            outcomes.append(outcome)
    finally:
        work.engines.close()
    return outcomes


def places_in_short(places: Sequence[str]) -> str:
    """Return tables by number and figures with an F, e.g. `1 10 F2`."""
    return " ".join(place.removeprefix("table").replace("figure", "F") for place in places)


def _show_plan(rows: Sequence[tuple[PlannedRun, Estimate]], as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Planned runs", caption="tokens estimated from two records of each task")
    table.add_column("run", no_wrap=True)
    table.add_column("model", overflow="fold")
    table.add_column("tables and figures")
    for name in ("inputs", "prompt tokens", "completion tokens", "USD"):
        table.add_column(name, justify="right")
    for run, size in rows:
        if run.missing:
            table.add_row(run.name, run.missing, places_in_short(run.places))
            continue
        figures = (
            f"{size.num_inputs:,}",
            f"{size.prompt_tokens:,.0f}",
            f"{size.completion_tokens:,.0f}",
            f"{size.usd:,.2f}",
        )
        table.add_row(run.name, run.model, places_in_short(run.places), *figures)
    sums = [sum(getattr(size, name) for _, size in rows) for name in ("prompt_tokens", "completion_tokens", "usd")]
    table.add_row("all", "", "", "", f"{sums[0]:,.0f}", f"{sums[1]:,.0f}", f"{sums[2]:,.2f}", style="bold")
    console = Console(stderr=as_json, highlight=False, markup=False)
    if not console.is_terminal:
        # In a file or a pipe, 80 columns would shorten the figures.
        console.width = max(console.width, 120)
    console.print(table)
    if as_json:
        runs = [
            {
                **{"name": run.name, "job": run.job, "model": run.model, "places": run.places, "needs": run.needs},
                **{"missing": run.missing, "inputs": size.num_inputs, "prompt_tokens": size.prompt_tokens},
                **{"completion_tokens": size.completion_tokens, "usd": size.usd},
            }
            for run, size in rows
        ]
        typer.echo(json.dumps({"runs": runs}))
