"""Options that several commands share, one by one and, for `seer eval`, as records."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from seer.cli.render import OcrOption

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
Engine = Annotated[
    str, typer.Option(help="hf, vllm, openai (an address), or scripted (no model: selects page 1 and quotes it).")
]
BaseUrl = Annotated[str | None, typer.Option(help="Address for the openai engine, e.g. http://127.0.0.1:8000/v1.")]
EngineArgs = Annotated[
    list[str] | None, typer.Option("--engine-arg", help="Any argument of the engine, e.g. max_model_len=32768.")
]
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


class EngineByAddress:
    """Options that name an engine: an address takes the engine that has one."""

    engine: str
    base_url: str | None

    def __post_init__(self) -> None:
        from seer.systems.base import engine_at

        object.__setattr__(self, "engine", engine_at(self.engine, self.base_url))


@dataclass(frozen=True, kw_only=True)
class SystemOptions(EngineByAddress):
    """Which system predicts, and how inputs are driven through it."""

    out: Out
    system: SystemName = "seer"
    engine: Engine = "hf"
    model: Model = None
    base_url: BaseUrl = None
    engine_args: EngineArgs = None
    selector: Selector = "model"
    style: Style = "seer"
    device: Device = "auto"
    limit: Limit = None
    batch_size: BatchSize = 8
    concurrency: Concurrency = 1
    retry_rounds: RetryRounds = 3
    retry_failed: RetryFailed = False
    reasoning_tokens: ReasoningTokens = None
    settings: Settings = None


@dataclass(frozen=True, kw_only=True)
class LongBenchOptions(SystemOptions):
    """What predicts records in LongBench's form."""

    data: Data
    tasks: Tasks = None
    prompts: Prompts = None
    max_context_tokens: MaxContext = None
    labels: Labels = None
    match: Match = None


@dataclass(frozen=True, kw_only=True)
class DocQAOptions(SystemOptions):
    """What predicts questions over documents that are files."""

    gold: Annotated[Path, typer.Option(help="The benchmark's file of questions: samples.json, or JSON lines.")]
    documents: Annotated[Path, typer.Option(help="Folder with the files that the questions name.")]
    dpi: Annotated[float, typer.Option(help="Resolution at which pages of PDFs are drawn.")] = 96
    ocr: OcrOption = "auto"


def takes(kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """For a command whose first argument is a record of options: typer sees every field of it as an option."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        hints = get_type_hints(kind, include_extras=True)
        taken = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=hints[field.name],
            )
            for field in sorted(fields(kind), key=lambda field: field.default is not MISSING)
        ]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            record = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            command(record, **given)

        parameters = [*taken, *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate
