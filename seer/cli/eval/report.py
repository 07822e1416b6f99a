"""`seer eval report`: several runs compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from seer.cli.command import AsJson
from seer.cli.options import CodeRatio, Labels, Partial, Postprocess


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs; the others are compared with the first.")],
    out: Annotated[Path, typer.Option(help="Folder for report.html, report.md and report.json.")],
    title: Annotated[str | None, typer.Option(help="Heading of the report. Default: the benchmark.")] = None,
    labels: Labels = None,
    data: Annotated[
        Path | None,
        typer.Option(help="With --labels: the benchmark's records, to run other selectors on them for comparison."),
    ] = None,
    postprocess: Postprocess = "official",
    code_ratio: CodeRatio = "difflib",
    partial: Partial = False,
    seed: Annotated[int, typer.Option(help="Seed of bootstrap intervals and permutation tests.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare runs: tables, plots, intervals and cases in HTML, Markdown and JSON.

    Example: seer eval report runs/mine runs/visual runs/bm25 --out report
    """
    from seer.evaluation.analysis.scored_run import load_run
    from seer.evaluation.benchmarks.longbench import read_data
    from seer.evaluation.reports.build import build_report, write_report
    from seer.evaluation.runs.score import EXIT_GAPS
    from seer.evaluation.scoring.pages import read_page_labels

    loaded = [load_run(path, postprocess=postprocess, code_ratio=code_ratio, partial=partial) for path in runs]
    gold = read_page_labels(labels) if labels else None
    records = read_data(data)[0] if data and labels else ()
    built = build_report(loaded, title=title, gold_pages=gold, records=records, seed=seed)
    paths = [str(path) for path in write_report(built, out)]
    typer.echo(json.dumps({"out": str(out), "reports": paths}) if as_json else "\n".join(paths))
    if any(run.report.gaps for run in loaded):
        raise typer.Exit(EXIT_GAPS)
