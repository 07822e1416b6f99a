"""`seer eval`: label, predict, score and compare.

    seer eval longbench --data DIR --model DIR --out RUN      predict and score in one
    seer eval predict   --data DIR --model DIR --out RUN      only predict; run it again to go on
    seer eval score     --benchmark longbench RUN --json      only score; reads files, needs no model
    seer eval docqa     --gold FILE --documents DIR --out RUN predict questions over PDFs
    seer eval label     --data DIR --model NAME --out LABELS  which pages answers need, as a teacher judges
    seer eval harness   --base-url URL --out RUN              lm-evaluation-harness, answered by `seer serve`
    seer eval report    RUN [RUN …] --out DIR                 compare any number of runs
    seer eval probe     RUN --data DIR                        time prefill apart, for the report
    seer eval tokens    --data DIR                            what prompts would hold, without a model
    seer eval miniature --report                              the paper's controls on a small world of known truth
    seer eval frontier  --data DIR --model DIR                score against prompt tokens, by density and budget

Exit codes: 0 done, 2 bad input, 4 inputs are missing from a run (also where --partial scored the rest). Failed inputs
are results: they are counted and shown, and leave the exit code at 0.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from seer.cli.command import AsJson
from seer.cli.eval.frontier import frontier
from seer.cli.eval.miniature import miniature
from seer.cli.eval.predict import docqa, engine_options, harness, longbench, predict
from seer.cli.eval.tables import show_docqa, show_scores, show_tokens
from seer.cli.eval.teacher import extract, label
from seer.cli.options import (
    BaseUrl,
    CodeRatioOption,
    Data,
    Device,
    EngineArgs,
    Labels,
    Limit,
    Partial,
    PostprocessOption,
    Style,
    Tasks,
)
from seer.cli.progress import progress

app = typer.Typer(
    name="eval",
    help="Predict, score and compare on benchmarks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command()(longbench)
app.command()(predict)
app.command()(docqa)
app.command()(harness)
app.command()(label)
app.command()(extract)
app.command()(miniature)
app.command()(frontier)


@app.command()
def score(
    run: Annotated[Path, typer.Argument(help="Folder of a run; for docqa also a JSONL file with id and pred.")],
    benchmark: Annotated[str, typer.Option(help="longbench, or docqa: MMLongBench-Doc and LongDocURL.")] = "longbench",
    postprocess: PostprocessOption = "official",
    code_ratio: CodeRatioOption = "difflib",
    partial: Partial = False,
    gold: Annotated[Path | None, typer.Option(help="docqa: the benchmark's file of questions and answers.")] = None,
    protocol: Annotated[
        str, typer.Option(help="docqa: mmlongbench, mmlongbench-official or longdocurl-official.")
    ] = "mmlongbench",
    as_json: AsJson = False,
) -> None:
    """Score a run, ours or a published one. Failures stay in the denominator.

    Example: seer eval score runs/mine --json
    Example: seer eval score runs/docqa/short.jsonl --benchmark docqa --gold samples.json
    """
    from seer.errors import InputError
    from seer.evaluation.benchmarks.longbench import EXIT_GAPS, score_folder

    if benchmark == "docqa":
        _score_docqa(run, gold, protocol, as_json)
        return
    if benchmark != "longbench":
        raise InputError(f"no benchmark '{benchmark}' to score; known: longbench, docqa")
    report = score_folder(run, postprocess=postprocess, code_ratio=code_ratio, partial=partial)
    show_scores(report, as_json)
    if report.gaps:
        raise typer.Exit(EXIT_GAPS)


def _score_docqa(predictions: Path, gold: Path | None, protocol: str, as_json: bool) -> None:
    from seer.errors import InputError
    from seer.evaluation.benchmarks.docqa import read_docqa, read_docqa_predictions, score_docqa
    from seer.evaluation.scoring.docqa import DocProtocol

    if gold is None:
        raise InputError("docqa needs the benchmark's own file; give it with --gold")
    if protocol not in set(DocProtocol):
        raise InputError(f"no protocol '{protocol}'; known: {', '.join(DocProtocol)}")
    report = score_docqa(read_docqa(gold), read_docqa_predictions(predictions), DocProtocol(protocol))
    show_docqa(report, as_json)
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False))


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs; the first is what others are compared with.")],
    out: Annotated[Path, typer.Option(help="Folder for report.html, report.md and report.json.")],
    title: Annotated[str | None, typer.Option(help="Heading of the report. Default: the benchmark.")] = None,
    labels: Labels = None,
    data: Annotated[
        Path | None,
        typer.Option(help="With --labels: the benchmark's records, to run other selectors beside each run."),
    ] = None,
    postprocess: PostprocessOption = "official",
    code_ratio: CodeRatioOption = "difflib",
    partial: Partial = False,
    seed: Annotated[int, typer.Option(help="For bootstrap intervals and permutation tests.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare runs: tables, plots, intervals and cases in HTML, Markdown and JSON.

    Example: seer eval report runs/mine runs/visual runs/bm25 --out report
    """
    from seer.evaluation.analysis.runs import load_run
    from seer.evaluation.benchmarks.longbench import EXIT_GAPS, read_data
    from seer.evaluation.reports.report import build_report, write_report
    from seer.evaluation.scoring.pages import read_page_labels

    loaded = [load_run(path, postprocess=postprocess, code_ratio=code_ratio, partial=partial) for path in runs]
    gold = read_page_labels(labels) if labels else None
    records = read_data(data)[0] if data and labels else ()
    built = build_report(loaded, title=title, gold_pages=gold, records=records, seed=seed)
    paths = [str(path) for path in write_report(built, out)]
    typer.echo(json.dumps({"out": str(out), "reports": paths}) if as_json else "\n".join(paths))
    if any(run.report.gaps for run in loaded):
        raise typer.Exit(EXIT_GAPS)


@app.command()
def probe(
    run: Annotated[Path, typer.Argument(help="A run of ours, made with --batch-size 1; its inputs are probed.")],
    data: Data,
    base_url: BaseUrl = None,
    engine_args: EngineArgs = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Time prefill apart: one token for each input of a run, on a cold cache (the paper's A.7). Adds to the run.

    Example: seer eval probe runs/mine --data longbench/
    """
    from seer.config import build_config
    from seer.evaluation.analysis.runs import read_style
    from seer.evaluation.benchmarks.longbench import read_data
    from seer.evaluation.files import require_manifest
    from seer.evaluation.runs.probing import probe_run
    from seer.reading.policy import ReadingPolicy
    from seer.systems.base import build_system

    told = require_manifest(run)
    records, _ = read_data(data, list(told["num_inputs"]))
    built = build_system(
        told["system"].removeprefix("seer+"),
        engine=told["engine"],
        model=told["model"],
        selector=told["selector"],
        style=read_style(told["style"]),
        policy=build_config(ReadingPolicy, told["policy"], where=f"the policy of '{run}'"),
        device=device,
        **engine_options(base_url, engine_args),
    )
    with progress("probing") as on_progress:
        number = probe_run(records, built, run, lambda done, total: on_progress(done, total, 0))
    typer.echo(f"{number} prefill probes added to {run}", err=True)
    if as_json:
        typer.echo(json.dumps({"out": str(run), "probes": number}))


@app.command()
def tokens(
    data: Data,
    model: Annotated[str | None, typer.Option(help="Checkpoint folder to count with. Default: tekken.")] = None,
    style: Style = "seer",
    tasks: Tasks = None,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """What reading would cost, without a model: prompts are built and counted as pictures, with pages, as text.

    Example: seer eval tokens --data longbench/ --style glyph
    """
    from dataclasses import asdict

    from seer.evaluation.benchmarks.longbench import read_data
    from seer.evaluation.runs.dryrun import dry_token_tables
    from seer.models.checkpoint import load_encoder
    from seer.models.counting import tekken_encoder

    records, benchmark = read_data(data, tasks.split(",") if tasks else None, limit)
    encoder = load_encoder(model)[0] if model else tekken_encoder()
    with progress("counting") as on_progress:
        tables = dry_token_tables(
            records, encoder, style, benchmark=benchmark, on_progress=lambda done, total: on_progress(done, total, 0)
        )
    show_tokens(tables, len(records), model or "tekken", style, as_json)
    if as_json:
        typer.echo(
            json.dumps({"counter": model or "tekken", **{name: asdict(table) for name, table in tables.items()}})
        )
