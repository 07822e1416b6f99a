"""The commands of `seer eval` that ask a teacher: label, extract."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seer.cli.command import AsJson
from seer.cli.eval.tables import show_labels
from seer.cli.options import Data, Limit, Style, Tasks
from seer.cli.progress import progress

if TYPE_CHECKING:
    from seer.teaching.settings import TeacherSpec


TeacherModel = Annotated[
    str, typer.Option("--model", help="The teacher's name at --base-url; without that, vLLM loads it here.")
]
TeacherUrl = Annotated[
    str, typer.Option("--base-url", help="The teacher's OpenAI-compatible address, e.g. http://127.0.0.1:8000/v1.")
]
TeacherSettings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any field of the teacher: concurrency=16, temperature=0.3, api_key_env=MY_KEY …"),
]


def label(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for labels.jsonl, its counts, and every reply.")],
    model: TeacherModel,
    base_url: TeacherUrl = "",
    style: Style = "seer",
    reasks: Annotated[int, typer.Option(help="How often a reply that is neither YES nor NO is asked for again.")] = 2,
    against: Annotated[
        Path | None, typer.Option(help="Other labels (JSONL: id, pages), to count the agreement with.")
    ] = None,
    tasks: Tasks = None,
    limit: Limit = None,
    settings: TeacherSettings = None,
    as_json: AsJson = False,
) -> None:
    """Label pages: a teacher sees each page alone with question and gold answer, and says YES or NO.

    Example: seer eval label --data longbench/ --base-url http://127.0.0.1:8000/v1 --model judge --out labels

    The labels in OUT/labels.jsonl are for `--labels` of the other commands, with runs of the same page style. The same
    command goes on where it was stopped: no call is made twice. Exit code 4: some inputs failed in a way that may pass.
    """
    from seer.evaluation.benchmarks.longbench import EXIT_GAPS, read_data
    from seer.evaluation.runs.labels import LABELS_NAME, label_pages
    from seer.evaluation.scoring.pages import read_page_labels

    spec = _teacher(model, base_url, settings)
    records, benchmark = read_data(data, tasks.split(",") if tasks else None, limit)
    reference = read_page_labels(against) if against else None
    with progress("labelling") as on_progress:
        report = label_pages(
            records,
            spec,
            out,
            benchmark=benchmark,
            style=style,
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


def extract(
    run: Annotated[Path, typer.Argument(help="A run of `seer eval docqa`.")],
    gold: Annotated[Path, typer.Option(help="The benchmark's file of questions and answers.")],
    model: TeacherModel,
    base_url: TeacherUrl = "",
    settings: TeacherSettings = None,
    as_json: AsJson = False,
) -> None:
    """Document QA: have a model draw the short answer out of each long one, as the benchmarks do before they score.

    Example: seer eval extract runs/docqa --gold samples.json --base-url http://127.0.0.1:8000/v1 --model judge

    Writes RUN/short.jsonl, for `seer eval score RUN/short.jsonl --benchmark docqa`. No call is made twice.
    """
    from seer.evaluation.benchmarks.docqa import read_docqa
    from seer.evaluation.runs.extract import extract_answers

    greedy = ["temperature=0", "max_tokens=256"]
    report = extract_answers(read_docqa(gold), run, _teacher(model, base_url, [*greedy, *(settings or [])]))
    typer.echo(
        f"{report.num_answers} answers: {report.num_failed_before} had failed before, {report.num_unread} could not be "
        "made short and count as failed",
        err=True,
    )
    typer.echo(str(report.path), err=as_json)
    if as_json:
        typer.echo(json.dumps(asdict(report), default=str))


def _teacher(model: str, base_url: str, settings: list[str] | None) -> TeacherSpec:
    from seer.config import load_config
    from seer.teaching.settings import TeacherSpec

    named = [f"model={json.dumps(model)}", f"base_url={json.dumps(base_url)}"]
    return load_config(TeacherSpec, None, [*named, *(settings or [])])
