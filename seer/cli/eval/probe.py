"""`seer eval probe`: prefill timed separately."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from seer.cli.command import AsJson
from seer.cli.options import BaseUrl, Data, Device, EngineArgs
from seer.cli.progress import progress


def probe(
    run: Annotated[Path, typer.Argument(help="A run of Seer, made with --batch-size 1, whose inputs are timed.")],
    data: Data,
    base_url: BaseUrl = None,
    engine_args: EngineArgs = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Time prefill separately: one token for each input of a run, on a cold cache (the paper's A.7). Writes into the run folder.

    Example: seer eval probe runs/mine --data longbench/
    """
    from seer.config import build_config
    from seer.engines.build import parse_engine_arguments
    from seer.evaluation.analysis.scored_run import read_style
    from seer.evaluation.benchmarks.longbench import read_data
    from seer.evaluation.files import require_manifest
    from seer.evaluation.runs.probing import probe_run
    from seer.reading.policy import ReadingPolicy
    from seer.systems.build import build_system

    manifest = require_manifest(run)
    records, _ = read_data(data, list(manifest["num_inputs"]))
    system, _, forced = manifest["system"].partition("+")
    built = build_system(
        system,
        engine=manifest["engine"],
        model=manifest["model"],
        base_url=base_url,
        selector=forced or manifest["selector"],
        style=read_style(manifest["style"]),
        policy=build_config(ReadingPolicy, manifest["policy"], where=f"the policy of '{run}'"),
        device=device,
        **parse_engine_arguments(engine_args),
    )
    with progress("probing") as on_progress:
        number = probe_run(records, built, run, lambda done, total: on_progress(done, total, 0))
    typer.echo(f"{number} prefill probes added to {run}", err=True)
    if as_json:
        typer.echo(json.dumps({"out": str(run), "probes": number}))
