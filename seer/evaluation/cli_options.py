"""Options that several `seer eval` commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    Path, typer.Option(help="Folder of <task>.jsonl files in LongBench form; a benchmark.toml in it names other tasks.")
]
Out = Annotated[Path, typer.Option(help="Folder of the run: predictions and run.json.")]
SystemName = Annotated[
    str,
    typer.Option(
        "--system", help="seer, seer-k0 (no retrieval), visual, text, auto, or a forced selector such as bm25."
    ),
]
Engine = Annotated[str, typer.Option(help="hf, scripted (no model: selects page 1 and quotes it), …")]
Model = Annotated[str | None, typer.Option(help="Checkpoint folder, or the model's name where the engine has one.")]
Selector = Annotated[
    str, typer.Option(help="Who selects pages: model, bm25, dense, hybrid, first, random, all, oracle.")
]
Style = Annotated[str, typer.Option(help="Page style: seer, glyph, dense, large.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")]
Tasks = Annotated[str | None, typer.Option(help="Only these tasks, e.g. hotpotqa,trec. Default: all that are there.")]
Limit = Annotated[int | None, typer.Option(help="Only the first N inputs of each task.")]
BatchSize = Annotated[int, typer.Option(help="Inputs given to the system at once.")]
Concurrency = Annotated[int, typer.Option(help="Batches in flight at once.")]
RetryRounds = Annotated[int, typer.Option(help="Further rounds over inputs that failed (three is the paper's policy).")]
RetryFailed = Annotated[bool, typer.Option(help="Also do again what an earlier session recorded as failed.")]
ReasoningTokens = Annotated[
    int | None,
    typer.Option(help="Tokens granted on top of each task's limit. Default: 1024 where the system reasons, else 0."),
]
Prompts = Annotated[Path | None, typer.Option(help="Prompts in LongBench's dataset2prompt form, in place of our own.")]
MaxContext = Annotated[int | None, typer.Option(help="Text baselines: cut the middle out of longer documents.")]
Labels = Annotated[Path | None, typer.Option(help="Relevant pages by id (JSONL: id, pages), for oracle and report.")]
Match = Annotated[Path | None, typer.Option(help="Give selectors the page budget that this run used for each input.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Any field of the reading policy, e.g. --set rounds=3.")
]
PostprocessOption = Annotated[str, typer.Option("--postprocess", help="official, or glyph: white space collapsed.")]
CodeRatioOption = Annotated[str, typer.Option("--code-ratio", help="difflib, as in published figures, or indel.")]
Partial = Annotated[bool, typer.Option("--partial", help="Score a run that lacks inputs; every table says so.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the scores as one last line of JSON.")]
