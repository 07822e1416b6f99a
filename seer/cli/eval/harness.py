"""`seer eval harness`: lm-evaluation-harness with a running `seer serve` as its model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from seer.cli.command import AsJson
from seer.cli.options import Limit


def harness(
    base_url: Annotated[str, typer.Option(help="Address of `seer serve`, e.g. http://127.0.0.1:8080/v1.")],
    out: Annotated[Path, typer.Option(help="Folder for results.json and every reply.")],
    tasks: Annotated[str, typer.Option(help="Tasks or groups of the harness.")] = "longbench",
    include: Annotated[Path | None, typer.Option(help="Folder of further task files of the harness.")] = None,
    model: Annotated[str, typer.Option(help="The name of the served model.")] = "seer",
    limit: Limit = None,
    concurrency: Annotated[int, typer.Option(help="Requests in flight at once.")] = 8,
    reasoning_tokens: Annotated[int, typer.Option(help="Reasoning tokens in addition to each task's limit.")] = 1024,
    timeout_s: Annotated[float, typer.Option(help="Seconds for one attempt of one request.")] = 600,
    document_field: Annotated[str, typer.Option(help="The field of a record that holds its document.")] = "context",
    as_json: AsJson = False,
) -> None:
    """Run lm-evaluation-harness with Seer as its model, through a running `seer serve`.

    Example: seer eval harness --base-url http://127.0.0.1:8080/v1 --tasks longbench --out runs/harness

    If the server requires a key, it is read from SEER_API_KEY. Long questions, such as those of repobench-p, may need
    `seer serve --server-option max_question_chars=40000`. Prompts and metrics are the harness's own, so the scores are
    not comparable with those of `seer eval longbench`.
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
    typer.echo(f"{summary.num_requests} requests, {failed} failed and count as empty predictions", err=True)
    typer.echo(str(summary.path), err=as_json)
    if as_json:
        record = {"out": str(out), "requests": summary.num_requests, "failed": failed, "results": summary.results}
        typer.echo(json.dumps(record, default=str))
