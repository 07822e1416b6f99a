"""Options that several commands share: single options, and the records of options that `seer eval` commands take.

Each option that overrides fields has one meaning everywhere: `--policy` changes the reading policy, `--style-option` the
page style, `--server-option` the server, `--teacher-option` the teacher, `--engine-arg` the engine. `--set` overrides a
configuration file, in `seer-train` and `seer-data` only.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from seer.errors import InputError

if TYPE_CHECKING:
    from seer.reading.policy import ReadingPolicy
    from seer.schema import PageStyle
    from seer.teaching.settings import TeacherSpec

Command = Callable[..., None]

# ── What runs ────────────────────────────────────────────────────────────────────────────────────

System = Annotated[
    str,
    typer.Option(
        "--system",
        help="How documents are read: seer (look, select, retrieve, reason), seer-k0 (without retrieval), visual (pages "
        "only), text (full text only), auto (seer or text, whichever needs fewer tokens), or doclens, docmemo or trident, "
        "which work with any chat model that reads images.",
    ),
]
SystemOption = Annotated[
    list[str] | None,
    typer.Option(
        "--system-option",
        help="Set an option of doclens, docmemo or trident, e.g. --system-option answer_samples=4. Repeat for several.",
        metavar="KEY=VALUE",
    ),
]
Selector = Annotated[
    str,
    typer.Option(
        help="How pages are selected: model, model+bm25, bm25, dense, hybrid, first, random, all, passages, oracle."
    ),
]
Policy = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        help="Set a field of the reading policy, e.g. --policy rounds=3. Repeat for several.",
        metavar="KEY=VALUE",
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        help="hf, vllm, openai (a server), or scripted (no model: selects page 1 and quotes it). Default: openai with "
        "--base-url, else hf."
    ),
]
BaseUrl = Annotated[
    str | None, typer.Option(help="Base URL of an OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1.")
]
EngineArgs = Annotated[
    list[str] | None,
    typer.Option(
        "--engine-arg",
        help="Set an argument of the engine, e.g. --engine-arg max_model_len=32768. Repeat for several.",
        metavar="KEY=VALUE",
    ),
]
Model = Annotated[
    str | None, typer.Option(help="Checkpoint folder of a GLM-4V-family model, or its name at --base-url.")
]
Device = Annotated[str, typer.Option(help="Device of the hf engine: auto, cpu, cuda, cuda:1 …")]

# ── Documents and pages ──────────────────────────────────────────────────────────────────────────

File = Annotated[str, typer.Argument(help="A document: .txt .md .html .docx .pdf, code, an image, or - for stdin.")]
Style = Annotated[str, typer.Option(help="Page style: seer, paper, glyph, dense, large, or auto: the cheapest layout.")]
StyleOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--style-option",
        help="Set a field of the page style, e.g. --style-option font_size_pt=8. Repeat for several.",
        metavar="KEY=VALUE",
    ),
]
Font = Annotated[
    str | None,
    typer.Option(
        help="Font before those of the style: the name of an installed font, e.g. Verdana as in the paper, or the path "
        "of a font file."
    ),
]
Encoding = Annotated[str | None, typer.Option(help="Encoding of a text file that is not UTF-8, e.g. gb18030.")]
Pages = Annotated[str | None, typer.Option(help="Read only these pages, e.g. 10-40,52.")]
Reflow = Annotated[bool, typer.Option("--reflow", help="Lay out the text of a PDF instead of showing its own pages.")]
Ocr = Annotated[
    Literal["auto", "always", "never"],
    typer.Option(help="Recognise text in scans: auto (on pages without usable text), always, never."),
]
Password = Annotated[str | None, typer.Option(help="Password of an encrypted PDF.", envvar="SEER_PDF_PASSWORD")]

# ── Benchmarks and runs ──────────────────────────────────────────────────────────────────────────

Data = Annotated[
    Path, typer.Option(help="Folder of <task>.jsonl files in LongBench form; a benchmark.toml in it names other tasks.")
]
Out = Annotated[Path, typer.Option(help="Folder of the run: predictions and run.json.")]
BenchmarkStyle = Annotated[
    str, typer.Option(help="Page style: seer, paper (each task's newlines as in the paper), glyph, dense, large.")
]
Tasks = Annotated[
    str | None, typer.Option(help="Read only these tasks, e.g. hotpotqa,trec. Default: all tasks in the folder.")
]
Limit = Annotated[int | None, typer.Option(help="Read only the first N inputs of each task.")]
BatchSize = Annotated[int, typer.Option(help="Inputs passed to the system at once.")]
Concurrency = Annotated[int, typer.Option(help="Batches in flight at once.")]
RetryRounds = Annotated[int, typer.Option(help="Further rounds over failed inputs (the paper uses three).")]
RetryFailed = Annotated[bool, typer.Option(help="Also retry inputs that an earlier call recorded as failed.")]
ReasoningTokens = Annotated[
    int | None,
    typer.Option(help="Reasoning tokens in addition to each task's limit. Default: 1024, also for baselines."),
]
Prompts = Annotated[
    Path | None, typer.Option(help="A file of prompts in LongBench's dataset2prompt form, instead of Seer's.")
]
MaxContext = Annotated[int | None, typer.Option(help="Text baselines: remove the middle of longer documents.")]
Labels = Annotated[
    Path | None, typer.Option(help="Relevant pages by id (JSONL: id, pages), for the oracle selector and the report.")
]
Match = Annotated[
    Path | None, typer.Option(help="Run folder; selectors get the page budget that it used for each input.")
]
Postprocess = Annotated[str, typer.Option("--postprocess", help="official, or glyph (collapses white space).")]
CodeRatio = Annotated[str, typer.Option("--code-ratio", help="difflib, as in published figures, or indel.")]
Partial = Annotated[
    bool, typer.Option("--partial", help="Score a run even if inputs are missing; tables are marked as partial.")
]

# ── Teachers ─────────────────────────────────────────────────────────────────────────────────────

TeacherModel = Annotated[
    str, typer.Option("--model", help="The teacher's name at --base-url; without --base-url, vLLM loads it here.")
]
TeacherUrl = Annotated[
    str,
    typer.Option(
        "--base-url", help="Base URL of the teacher's OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1."
    ),
]
TeacherOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--teacher-option",
        help="Set a field of the teacher, e.g. --teacher-option concurrency=16. Repeat for several.",
        metavar="KEY=VALUE",
    ),
]


# ── Values from options ──────────────────────────────────────────────────────────────────────────


def load_policy(overrides: Sequence[str] | None) -> ReadingPolicy:
    """Return the reading policy with the fields that `--policy` sets.

    Raises InputError if `mode` is among them, which the system sets; ConfigError for an unknown field or a bad value.
    """
    from seer.config import load_config
    from seer.reading.policy import ReadingPolicy
    from seer.systems.build import system_of_mode

    for override in overrides or ():
        key, _, value = override.partition("=")
        if key.strip() == "mode":
            system = system_of_mode(value.strip(" \"'"))
            raise InputError(f"--policy {override}: the system sets the mode; use --system {system}")
    return load_config(ReadingPolicy, None, overrides or ())


def style_changes(overrides: Sequence[str] | None, font: str | None = None) -> dict[str, Any]:
    """Return the fields of the page style that `--style-option` and `--font` set, as validated values.

    Raises ConfigError for an unknown field or a bad value, InputError or DocumentNotFound for an unknown font.
    """
    from seer.config import load_config
    from seer.rendering.styles import with_font
    from seer.schema import PageStyle

    if not overrides and font is None:
        return {}
    style = load_config(PageStyle, None, overrides or ())
    changes = {key: getattr(style, key) for key in (one.partition("=")[0].strip() for one in overrides or ())}
    return changes if font is None else changes | {"fonts": with_font(style, font).fonts}


def page_style(style: str, font: str | None) -> str | PageStyle:
    """Return the style that `--style` names, with `--font` before its fonts.

    Raises InputError or DocumentNotFound if the font is unknown, or InputError if the style is "auto" and a font is
    given.
    """
    from seer.rendering.styles import with_font

    if style == "auto" and font is not None:
        raise InputError(f"--font {font}: '--style auto' chooses its own layouts here; name another style")
    return style if font is None else with_font(style, font)


def load_teacher(model: str, base_url: str, overrides: Sequence[str]) -> TeacherSpec:
    """Return the judge that `--model` and `--base-url` name, with the fields that `--teacher-option` sets.

    Raises ConfigError for an unknown field or a bad value.
    """
    from seer.config import load_config
    from seer.teaching.settings import TeacherSpec

    named = [f"model={json.dumps(model)}", f"base_url={json.dumps(base_url)}"]
    return load_config(TeacherSpec, None, [*named, *overrides])


def check_choice(what: str, value: str, allowed: Sequence[str]) -> str:
    """Return `value`. Raises InputError if it is not one of `allowed`."""
    if value not in allowed:
        raise InputError(f"{what} is '{value}'; use {', '.join(allowed[:-1])} or {allowed[-1]}")
    return value


# ── Records of options ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class SystemOptions:
    """Which system predicts, and how inputs are passed through it."""

    out: Out
    system: System = "seer"
    system_options: SystemOption = None
    selector: Selector = "model"
    policy: Policy = None
    engine: Engine = None
    model: Model = None
    base_url: BaseUrl = None
    engine_args: EngineArgs = None
    style: BenchmarkStyle = "seer"
    font: Font = None
    device: Device = "auto"
    limit: Limit = None
    batch_size: BatchSize = 8
    concurrency: Concurrency = 1
    retry_rounds: RetryRounds = 3
    retry_failed: RetryFailed = False
    reasoning_tokens: ReasoningTokens = None


@dataclass(frozen=True, kw_only=True)
class LongBenchOptions(SystemOptions):
    """Options of the commands that predict records in LongBench's form."""

    data: Data
    tasks: Tasks = None
    prompts: Prompts = None
    max_context_tokens: MaxContext = None
    labels: Labels = None
    match: Match = None


@dataclass(frozen=True, kw_only=True)
class DocQAOptions(SystemOptions):
    """Options of the command that predicts questions over document files."""

    gold: Annotated[Path, typer.Option(help="The benchmark's file of questions: samples.json, or JSON lines.")]
    documents: Annotated[Path, typer.Option(help="Folder with the files that the questions name.")]
    dpi: Annotated[float, typer.Option(help="Resolution at which pages of PDFs are drawn.")] = 96
    ocr: Ocr = "auto"


def with_options(record: type[Any]) -> Callable[[Command], Command]:
    """Turn a command whose first parameter is a record of options into one with an option for every field."""
    hints = get_type_hints(record, include_extras=True)
    fields = [one.replace(annotation=hints[one.name]) for one in inspect.signature(record).parameters.values()]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(**values: Any) -> None:
            options = record(**{field.name: values.pop(field.name) for field in fields})
            command(options, **values)

        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        return _with_parameters(run, [*fields, *own])

    return decorate


def replaced_option(old: str, new: Callable[[str], str]) -> Callable[[Command], Command]:
    """Add a hidden option to a command that only tells its users the new spelling.

    Args:
        old: The option's former name, e.g. `--set`.
        new: Returns the new spelling for a value of the old option.

    A command line with the old option fails with InputError.
    """

    def refuse(values: list[str]) -> None:
        if values:
            raise InputError(f"{old} {values[0]}: this option was replaced; use {new(values[0])}")

    option = typer.Option(old, hidden=True, is_eager=True, callback=refuse)
    name = f"old_{old.strip('-')}"
    hidden = inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, option]
    )

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(**values: Any) -> None:
            values.pop(name, None)
            command(**values)

        return _with_parameters(run, [*inspect.signature(command, eval_str=True).parameters.values(), hidden])

    return decorate


set_became_policy = replaced_option("--set", "--policy {}".format)
set_became_style_option = replaced_option("--set", "--style-option {}".format)
set_became_server_option = replaced_option("--set", "--server-option {}".format)
set_became_teacher_option = replaced_option("--set", "--teacher-option {}".format)


def _system_for(mode: str) -> str:
    from seer.systems.build import system_of_mode

    return f"--system {system_of_mode(mode)}"


mode_became_system = replaced_option("--mode", _system_for)


def _with_parameters(command: Command, parameters: list[inspect.Parameter]) -> Command:
    """Give a function that takes any keywords the parameters that typer reads, required ones first."""
    ordered = sorted(parameters, key=lambda one: one.default is not one.empty)
    keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in ordered]
    command.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in keywords}
    return command
