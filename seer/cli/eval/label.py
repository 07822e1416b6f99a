"""`seer eval label`: page labels from a teacher."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from seer.cli.command import AsJson
from seer.cli.eval.tables import show_labels
from seer.cli.options import (
    BenchmarkStyle,
    Data,
    Font,
    Limit,
    Tasks,
    TeacherModel,
    TeacherOptions,
    TeacherUrl,
    load_teacher,
    page_style,
    set_became_teacher_option,
)
from seer.cli.progress import progress


@set_became_teacher_option
def label(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for labels.jsonl, its counts, and every reply.")],
    model: TeacherModel,
    base_url: TeacherUrl = "",
    style: BenchmarkStyle = "seer",
    font: Font = None,
    reasks: Annotated[int, typer.Option(help="Further requests after a reply that is neither YES nor NO.")] = 2,
    against: Annotated[
        Path | None, typer.Option(help="Reference labels (JSONL: id, pages) to measure the agreement with.")
    ] = None,
    tasks: Tasks = None,
    limit: Limit = None,
    teacher_options: TeacherOptions = None,
    as_json: AsJson = False,
) -> None:
    """Label relevant pages: a teacher sees each page alone with the question and the gold answer, and replies YES or NO.

    Example: seer eval label --data longbench/ --base-url http://127.0.0.1:8000/v1 --model judge --out labels

    Pass OUT/labels.jsonl as --labels to other commands, for runs with the same page style. The same command resumes
    where it was interrupted; a finished call is not repeated. Exit code 4: some inputs failed with an error that a retry may fix.
    """
    from seer.evaluation.benchmarks.longbench import read_data
    from seer.evaluation.runs.labels import LABELS_NAME, label_pages
    from seer.evaluation.runs.score import EXIT_GAPS
    from seer.evaluation.scoring.pages import read_page_labels

    spec = load_teacher(model, base_url, teacher_options or [])
    records, benchmark = read_data(data, tasks.split(",") if tasks else None, limit)
    reference = read_page_labels(against) if against else None
    with progress("labelling") as on_progress:
        report = label_pages(
            records,
            spec,
            out,
            benchmark=benchmark,
            style=page_style(style, font),
            reasks=reasks,
            reference=reference,
            on_progress=on_progress,
        )
    show_labels(report, as_json)
    typer.echo(str(out / LABELS_NAME), err=as_json)
    if as_json:
        typer.echo(json.dumps(report.to_json()))
    if report.failed:
        raise typer.Exit(EXIT_GAPS)
