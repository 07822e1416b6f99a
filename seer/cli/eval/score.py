"""`seer eval score`: scores of a run that is complete on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from seer.cli.command import AsJson
from seer.cli.eval.tables import show_docqa, show_scores
from seer.cli.options import CodeRatio, Partial, Postprocess, check_choice
from seer.errors import InputError


def score(
    run: Annotated[Path, typer.Argument(help="Folder of a run; for docqa also a JSONL file with id and pred.")],
    benchmark: Annotated[str, typer.Option(help="longbench, or docqa: MMLongBench-Doc and LongDocURL.")] = "longbench",
    postprocess: Postprocess = "official",
    code_ratio: CodeRatio = "difflib",
    partial: Partial = False,
    gold: Annotated[Path | None, typer.Option(help="docqa: the benchmark's file of questions and answers.")] = None,
    protocol: Annotated[
        str, typer.Option(help="docqa: mmlongbench, mmlongbench-official or longdocurl-official.")
    ] = "mmlongbench",
    as_json: AsJson = False,
) -> None:
    """Score a run of Seer or a published run. Failed inputs score 0 and count in the average.

    Example: seer eval score runs/mine --json
    Example: seer eval score runs/docqa/short.jsonl --benchmark docqa --gold samples.json
    """
    from seer.evaluation.runs.score import EXIT_GAPS, score_folder

    if check_choice("--benchmark", benchmark, ("longbench", "docqa")) == "docqa":
        _score_docqa(run, gold, protocol, as_json)
        return
    report = score_folder(run, postprocess=postprocess, code_ratio=code_ratio, partial=partial)
    show_scores(report, as_json)
    if report.gaps:
        raise typer.Exit(EXIT_GAPS)


def _score_docqa(predictions: Path, gold: Path | None, protocol: str, as_json: bool) -> None:
    from seer.evaluation.benchmarks.docqa import read_docqa
    from seer.evaluation.runs.score_docqa import read_docqa_predictions, score_docqa
    from seer.evaluation.scoring.short_answers import DocProtocol

    if gold is None:
        raise InputError("docqa needs the benchmark's own file; give it with --gold")
    check_choice("--protocol", protocol, tuple(DocProtocol))
    report = score_docqa(read_docqa(gold), read_docqa_predictions(predictions), DocProtocol(protocol))
    show_docqa(report, as_json)
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False))
