"""The commands of `seer eval` that ask a system: longbench, predict, docqa, harness."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seer.cli.command import AsJson
from seer.cli.eval.tables import show_scores
from seer.cli.options import (
    CodeRatioOption,
    DocQAOptions,
    Limit,
    LongBenchOptions,
    PostprocessOption,
    SystemOptions,
    takes,
)
from seer.cli.progress import progress

if TYPE_CHECKING:
    from seer.evaluation.runs.loop import Input, LoopOptions, RunSummary
    from seer.reading.policy import ReadingPolicy

REASONING_TOKENS = 1024
"""The paper's model writes 381 tokens at the median, and a few samples run to any cap."""


@takes(LongBenchOptions)
def longbench(
    options: LongBenchOptions,
    postprocess: PostprocessOption = "official",
    code_ratio: CodeRatioOption = "difflib",
    as_json: AsJson = False,
) -> None:
    """Predict with a system over LongBench records, then score.

    Example: seer eval longbench --data longbench/ --model path/to/checkpoint --out runs/mine
    """
    from seer.evaluation.benchmarks.longbench import score_folder

    predict_longbench(options)
    show_scores(score_folder(options.out, postprocess=postprocess, code_ratio=code_ratio), as_json)


@takes(LongBenchOptions)
def predict(options: LongBenchOptions, as_json: AsJson = False) -> None:
    """Predict only. The same command goes on with an interrupted run; every input gets a result.

    Example: seer eval predict --data longbench/ --model path/to/checkpoint --out runs/mine
    Example: seer eval predict --data longbench/ --base-url http://127.0.0.1:8000/v1 --system text --out runs/text
    """
    show_summary(predict_longbench(options), options.out, as_json)


@takes(DocQAOptions)
def docqa(options: DocQAOptions, as_json: AsJson = False) -> None:
    """Predict document QA (MMLongBench-Doc, LongDocURL): questions over PDFs. Score with `score --benchmark docqa`.

    Example: seer eval docqa --gold samples.json --documents pdfs/ --model path/to/checkpoint --out runs/docqa
    """
    from seer.evaluation.benchmarks.docqa import read_docqa
    from seer.evaluation.benchmarks.longbench import check_limit
    from seer.evaluation.runs.docqa import plan_docqa
    from seer.evaluation.runs.loop import LoopOptions
    from seer.systems.base import system_name

    check_limit(options.limit)
    policy = read_policy(options)
    inputs, manifest = plan_docqa(
        read_docqa(options.gold)[: options.limit],
        options.documents,
        system_name(options.system),
        reasoning_tokens=reasoning_tokens(options),
        style=options.style,
        dpi=options.dpi,
        ocr=options.ocr,
        describe=described(options, policy),
    )
    rules = LoopOptions(options.batch_size, options.concurrency, options.retry_rounds, options.retry_failed)
    show_summary(run_system(options, policy, inputs, manifest, rules), options.out, as_json)


def harness(
    base_url: Annotated[str, typer.Option(help="Where `seer serve` listens, e.g. http://127.0.0.1:8080/v1.")],
    out: Annotated[Path, typer.Option(help="Folder for results.json and every reply.")],
    tasks: Annotated[str, typer.Option(help="Tasks or groups of the harness.")] = "longbench",
    include: Annotated[Path | None, typer.Option(help="Folder of further task files of the harness.")] = None,
    model: Annotated[str, typer.Option(help="The name that the server serves.")] = "seer",
    limit: Limit = None,
    concurrency: Annotated[int, typer.Option(help="Requests in flight at once.")] = 8,
    reasoning_tokens: Annotated[int, typer.Option(help="Tokens granted on top of each task's limit.")] = 1024,
    timeout_s: Annotated[float, typer.Option(help="For one try of one request.")] = 600,
    document_field: Annotated[str, typer.Option(help="The field of a record that holds its document.")] = "context",
    as_json: AsJson = False,
) -> None:
    """Run lm-evaluation-harness with Seer as its model, through a running `seer serve`.

    Example: seer eval harness --base-url http://127.0.0.1:8080/v1 --tasks longbench --out runs/harness

    A key, where the server wants one, is read from SEER_API_KEY. Long questions, as repobench-p has them, may need
    `seer serve --set max_question_chars=40000`. The harness's prompts and metrics are its own: so are the figures.
    """
    from seer.evaluation.benchmarks.longbench import check_limit
    from seer.evaluation.harness.run import run_harness

    check_limit(limit)
    summary = run_harness(
        base_url,
        [name.strip() for name in tasks.split(",") if name.strip()],
        out,
        model=model,
        include=include,
        limit=limit,
        reasoning_tokens=reasoning_tokens,
        concurrency=concurrency,
        timeout_s=timeout_s,
        document_field=document_field,
    )
    for name, metrics in summary.results.items():
        shown = ", ".join(f"{key} {value:.4f}" for key, value in metrics.items() if isinstance(value, float))
        typer.echo(f"{name}: {shown}", err=as_json)
    failed = len(summary.failures)
    typer.echo(f"{summary.num_requests} requests, {failed} failed and stand as empty predictions", err=True)
    typer.echo(str(summary.path), err=as_json)
    if as_json:
        told = {"out": str(out), "requests": summary.num_requests, "failed": failed, "results": summary.results}
        typer.echo(json.dumps(told, default=str))


def predict_longbench(options: LongBenchOptions) -> RunSummary:
    from seer.evaluation.benchmarks.longbench import read_data
    from seer.evaluation.benchmarks.tasks import load_templates
    from seer.evaluation.runs.longbench import PredictOptions, plan_run
    from seer.evaluation.scoring.pages import matched_budgets, read_page_labels
    from seer.models.counting import load_counter
    from seer.systems.base import system_name

    records, benchmark = read_data(options.data, options.tasks.split(",") if options.tasks else None, options.limit)
    rules = PredictOptions(
        benchmark=benchmark,
        batch_size=options.batch_size,
        concurrency=options.concurrency,
        retry_rounds=options.retry_rounds,
        retry_failed=options.retry_failed,
        reasoning_tokens=reasoning_tokens(options),
        max_context_tokens=options.max_context_tokens,
        templates=load_templates(options.prompts) if options.prompts else None,
        gold_pages=read_page_labels(options.labels) if options.labels else {},
        page_budgets=matched_budgets(options.match) if options.match else {},
    )
    policy = read_policy(options)
    count = load_counter(options.model).count if options.max_context_tokens is not None else None
    inputs, manifest = plan_run(records, system_name(options.system), rules, described(options, policy), count)
    return run_system(options, policy, inputs, manifest, rules)


def run_system(
    options: SystemOptions,
    policy: ReadingPolicy,
    inputs: list[Input],
    manifest: Mapping[str, Any],
    rules: LoopOptions,
) -> RunSummary:
    """Check the run's folder, and only then load the model and predict."""
    from seer.evaluation.files import check_manifest
    from seer.evaluation.runs.loop import run_inputs
    from seer.systems.base import build_system

    check_manifest(options.out, manifest)
    system = build_system(
        options.system,
        engine=options.engine,
        model=options.model,
        selector=options.selector,
        style=options.style,
        policy=policy,
        device=options.device,
        **engine_options(options.base_url, options.engine_args),
    )
    with progress("predicting") as on_progress:
        summary = run_inputs(inputs, system, options.out, manifest, rules, on_progress)
    typer.echo(
        f"{summary.num_inputs} inputs: {summary.num_already_done} done before, {summary.num_predicted} predicted now, "
        f"{summary.num_failed} failed in all",
        err=True,
    )
    return summary


def show_summary(summary: RunSummary, out: Path, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"out": str(out), **asdict(summary)}))


def described(options: SystemOptions, policy: ReadingPolicy) -> dict[str, Any]:
    """What makes a run what it is, beside its benchmark."""
    from seer.models.checkpoint import weights_digest

    named = {name: getattr(options, name) for name in ("engine", "model", "selector", "style")}
    return {**named, "weights": weights_digest(options.model), "policy": policy.model_dump(mode="json")}


def read_policy(options: SystemOptions) -> ReadingPolicy:
    from seer.config import load_config
    from seer.reading.policy import ReadingPolicy

    return load_config(ReadingPolicy, None, options.settings or [])


def reasoning_tokens(options: SystemOptions) -> int:
    if options.reasoning_tokens is not None:
        return options.reasoning_tokens
    return 0 if options.system in ("visual", "text") else REASONING_TOKENS


def engine_options(base_url: str | None, arguments: Sequence[str] | None) -> dict[str, Any]:
    """What an engine is given beside its model. Raises InputError for an argument that is none."""
    from seer.systems.base import parse_engine_arguments

    return {**({} if base_url is None else {"base_url": base_url}), **parse_engine_arguments(arguments or ())}
