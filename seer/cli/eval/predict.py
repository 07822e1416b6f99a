"""`seer eval predict` and `seer eval longbench`: predictions without and with scores; what all predicting commands share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seer.cli.command import AsJson
from seer.cli.eval.tables import show_scores
from seer.cli.options import (
    CodeRatio,
    LongBenchOptions,
    Postprocess,
    SystemOptions,
    load_policy,
    page_style,
    set_became_policy,
    with_options,
)
from seer.cli.progress import progress

if TYPE_CHECKING:
    from seer.evaluation.runs.loop import BenchmarkInput, LoopOptions, RunSummary
    from seer.reading.policy import ReadingPolicy
    from seer.systems.base import System

REASONING_TOKENS = 1024
"""The paper's model writes 381 tokens at the median, and a few samples run to any cap."""


@set_became_policy
@with_options(LongBenchOptions)
def predict(options: LongBenchOptions, as_json: AsJson = False) -> None:
    """Predict LongBench records with a system. The same command resumes an interrupted run; every input gets a result.

    Example: seer eval predict --data longbench/ --model path/to/checkpoint --out runs/mine
    Example: seer eval predict --data longbench/ --base-url http://127.0.0.1:8000/v1 --system text --out runs/text
    """
    show_summary(predict_longbench(options), options.out, as_json)


@set_became_policy
@with_options(LongBenchOptions)
def longbench(
    options: LongBenchOptions,
    postprocess: Postprocess = "official",
    code_ratio: CodeRatio = "difflib",
    as_json: AsJson = False,
) -> None:
    """Predict LongBench records with a system, then score. The same command resumes an interrupted run.

    Example: seer eval longbench --data longbench/ --model path/to/checkpoint --out runs/mine
    Example: seer eval longbench --data longbench/ --model path/to/checkpoint --selector bm25 --out runs/bm25
    """
    from seer.evaluation.runs.score import score_folder

    predict_longbench(options)
    show_scores(score_folder(options.out, postprocess=postprocess, code_ratio=code_ratio), as_json)


def predict_longbench(options: LongBenchOptions) -> RunSummary:
    """Predict LongBench records into the run's folder. Raises InputError or ConfigError for options that are wrong."""
    from seer.evaluation.benchmarks.longbench import read_data
    from seer.evaluation.benchmarks.tasks import load_templates
    from seer.evaluation.runs.plan_longbench import PredictOptions, matched_budgets, plan_run
    from seer.evaluation.scoring.pages import read_page_labels
    from seer.models.counting import load_counter
    from seer.systems.build import run_name

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
        in_place=fills_prompts(options),
        gold_pages=read_page_labels(options.labels) if options.labels else {},
        page_budgets=matched_budgets(options.match) if options.match else {},
    )
    policy = load_policy(options.policy)
    count = load_counter(options.model).count if options.max_context_tokens is not None else None
    name = run_name(options.system, options.selector)
    inputs, manifest = plan_run(records, name, rules, describe_run(options, policy), count)
    return run_system(options, policy, inputs, manifest, rules)


def fills_prompts(options: LongBenchOptions) -> bool:
    """Return whether the run sends the benchmark's own prompts with the document in its place, as published text
    baselines do: the system `text` with a file of prompts."""
    return options.system == "text" and options.prompts is not None


def run_system(
    options: SystemOptions,
    policy: ReadingPolicy,
    inputs: list[BenchmarkInput],
    manifest: Mapping[str, Any],
    rules: LoopOptions,
) -> RunSummary:
    """Check the run's folder, and only then load the model and predict.

    Raises ConfigError if the folder holds another run, InputError or ModelError if the engine cannot be built.
    """
    from seer.engines.build import build_engine, parse_engine_arguments
    from seer.evaluation.files import check_manifest
    from seer.evaluation.runs.loop import run_inputs
    from seer.systems.build import build_system
    from seer.systems.prompted import PromptedSystem

    check_manifest(options.out, manifest)
    engine = build_engine(
        options.engine,
        model=options.model,
        base_url=options.base_url,
        device=options.device,
        **parse_engine_arguments(options.engine_args),
    )
    if manifest.get("in_place"):
        system: System = PromptedSystem(engine)
    else:
        system = build_system(
            options.system,
            engine=engine,
            selector=options.selector,
            style=page_style(options.style, options.font),
            policy=policy,
            options=options.system_options or (),
        )
    with progress("predicting") as on_progress:
        summary = run_inputs(inputs, system, options.out, manifest, rules, on_progress)
    typer.echo(
        f"{summary.num_inputs} inputs: {summary.num_already_done} done before, {summary.num_predicted} predicted now, "
        f"{summary.num_failed} failed in total",
        err=True,
    )
    show_warnings(run_warnings(options.out))
    return summary


def run_warnings(run: Path) -> list[str]:
    """Return a warning if many inputs of a run were cut or ended inside the thinking, as a list of at most one."""
    from seer.evaluation.analysis.endings import ending_warnings
    from seer.evaluation.files import read_predictions, read_run_manifest

    tasks = read_run_manifest(run).get("num_inputs", {})
    files = [run / f"{task}.jsonl" for task in tasks if (run / f"{task}.jsonl").is_file()]
    return ending_warnings([(run.name, [one for file in files for one in read_predictions(file)])])


def show_warnings(warnings: Sequence[str]) -> None:
    """Print warnings in red on standard error."""
    for warning in warnings:
        typer.secho(f"warning: {warning}", fg=typer.colors.RED, bold=True, err=True)


def show_summary(summary: RunSummary, out: Path, as_json: bool) -> None:
    """Print the run's counts as JSON, if JSON was requested."""
    if as_json:
        typer.echo(json.dumps({"out": str(out), **asdict(summary)}))


def describe_run(options: SystemOptions, policy: ReadingPolicy) -> dict[str, Any]:
    """Return the part of a run's manifest that names model and system settings; the benchmark adds its own.

    Raises InputError if the engine's options contradict each other or the font is unknown.
    """
    from seer.engines.build import choose_engine
    from seer.models.checkpoint import weights_digest
    from seer.systems.build import read_system_options

    style = page_style(options.style, options.font)
    config = read_system_options(options.system, options.system_options or ())
    return {
        "engine": choose_engine(options.engine, base_url=options.base_url),
        "model": options.model,
        "selector": options.selector,
        **({"system_options": config.model_dump(mode="json")} if config is not None else {}),
        "style": style if isinstance(style, str) else style.model_dump(mode="json"),
        "weights": weights_digest(options.model),
        "policy": policy.model_dump(mode="json"),
    }


def reasoning_tokens(options: SystemOptions) -> int:
    """Return the reasoning tokens added to each task's limit, the same for all systems because baselines reason too."""
    return REASONING_TOKENS if options.reasoning_tokens is None else options.reasoning_tokens
