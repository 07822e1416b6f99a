"""`seer eval extract`: short answers out of long ones, before document QA is scored."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from seer.cli.command import AsJson
from seer.cli.options import TeacherModel, TeacherOptions, TeacherUrl, load_teacher, set_became_teacher_option

_GREEDY = ("temperature=0", "max_tokens=256")


@set_became_teacher_option
def extract(
    run: Annotated[Path, typer.Argument(help="A run of `seer eval docqa`.")],
    gold: Annotated[Path, typer.Option(help="The benchmark's file of questions and answers.")],
    model: TeacherModel,
    base_url: TeacherUrl = "",
    teacher_options: TeacherOptions = None,
    as_json: AsJson = False,
) -> None:
    """Extract the short answer from each long one with a model, as the document-QA benchmarks do before they score.

    Example: seer eval extract runs/docqa --gold samples.json --base-url http://127.0.0.1:8000/v1 --model judge

    Writes RUN/short.jsonl, for `seer eval score RUN/short.jsonl --benchmark docqa`. A finished call is not repeated.
    """
    from seer.evaluation.benchmarks.docqa import read_docqa
    from seer.evaluation.runs.extract import extract_answers

    spec = load_teacher(model, base_url, [*_GREEDY, *(teacher_options or [])])
    report = extract_answers(read_docqa(gold), run, spec)
    typer.echo(
        f"{report.num_answers} answers: {report.num_failed_before} had failed before, {report.num_unread} could not be "
        "shortened and count as failed",
        err=True,
    )
    typer.echo(str(report.path), err=as_json)
    if as_json:
        typer.echo(json.dumps(asdict(report), default=str))
