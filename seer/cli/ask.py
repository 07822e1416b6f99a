"""`seer ask`: one question about one or more documents."""

from __future__ import annotations

import glob
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from seer.cli.command import AsJson
from seer.cli.options import (
    BaseUrl,
    Device,
    Encoding,
    Engine,
    EngineArgs,
    Font,
    Model,
    Ocr,
    Pages,
    Password,
    Policy,
    Reflow,
    Selector,
    Style,
    System,
    SystemOption,
    load_policy,
    mode_became_system,
    set_became_policy,
    style_changes,
)
from seer.errors import DocumentNotFound, InputError

EXIT_CODES = {"failed": 1, "not_answerable": 3}
"""Exit codes by the answer's status; every other status ends with 0."""


@set_became_policy
@mode_became_system
def ask(
    files: Annotated[
        list[str], typer.Argument(help="Documents (paths, globs, or '-' for standard input), then the question.")
    ],
    model: Model = None,
    system: System = "seer",
    system_options: SystemOption = None,
    selector: Selector = "model",
    policy: Policy = None,
    engine: Engine = None,
    base_url: BaseUrl = None,
    engine_args: EngineArgs = None,
    device: Device = "auto",
    style: Style = "seer",
    font: Font = None,
    encoding: Encoding = None,
    pages: Pages = None,
    reflow: Reflow = False,
    ocr: Ocr = "auto",
    password: Password = None,
    gold_pages: Annotated[str | None, typer.Option(help="Pages for the oracle selector, e.g. 1,3.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print the answer's text as it is generated.")] = False,
    as_json: AsJson = False,
    save_trace: Annotated[
        Path | None, typer.Option(help="Folder for report.html, report.md, answer.json and the pages.")
    ] = None,
) -> None:
    """Ask a question about one or more documents.

    Example: seer ask report.txt "What was the total?" --model path/to/checkpoint
    Example: seer ask report.txt "What was the total?" --model path/to/checkpoint --system auto --selector bm25

    Example: seer ask report.pdf "What was the total?" --base-url http://127.0.0.1:8000/v1 --system doclens

    Exit codes: 0 answered, 1 the engine failed, 2 bad input, 3 the document does not answer the question.
    """
    from rich.console import Console

    from seer.cli.display import TracePrinter, print_outcome
    from seer.cli.progress import print_warnings
    from seer.engines.build import build_engine, choose_engine, parse_engine_arguments
    from seer.reading.reader import Reader
    from seer.rendering import load
    from seer.rendering.collection import combine
    from seer.selection.base import build_selector
    from seer.systems.build import build_evidence_system, check_system, read_system_options, system_policy

    paths, question = _split_question(files)
    check_system(system, selector)
    rules = system_policy(system, load_policy(policy))
    config = read_system_options(system, system_options or ())
    _check_stream(stream, system, config)
    choose_engine(engine, base_url=base_url)
    arguments = parse_engine_arguments(engine_args)
    gold = _page_numbers(gold_pages)
    chosen = build_selector(selector, gold=(lambda document, question: gold) if gold else None)
    # All options have been checked: only now are documents read and a model loaded.
    reading: dict[str, Any] = {"encoding": encoding, "pages": pages, "reflow": reflow, "ocr": ocr, "password": password}
    reading["changes"] = style_changes(None, font)
    document = combine([load(path, style, **reading) for path in expand_paths(paths)])
    print_warnings(document)
    _check_gold(gold, len(document.pages))
    built = build_engine(engine, model=model, base_url=base_url, device=device, **arguments)
    console = Console(stderr=as_json, highlight=False, markup=False)
    printer = TracePrinter(console, document)
    if config is not None:
        answer = build_evidence_system(system, built, config, style=style).ask(document, question, printer)
    else:
        answer = Reader(built, chosen, rules).ask(document, question, printer, printer.text if stream else None)
    print_outcome(console, document, answer)
    if save_trace is not None:
        from seer.web.trace import write_trace

        write_trace(save_trace, document, question, answer)
    if as_json:
        warnings = [warning.model_dump(mode="json") for warning in document.warnings]
        record = {"question": question, **answer.model_dump(mode="json"), "warnings": warnings}
        typer.echo(json.dumps(record, ensure_ascii=False))
    raise typer.Exit(EXIT_CODES.get(answer.status, 0))


def expand_paths(patterns: list[str]) -> list[str]:
    """Expand globs into paths, sorted within each glob.

    The name of an existing file is taken literally, whatever characters it holds. Raises DocumentNotFound if no file
    matches a glob.
    """
    paths: list[str] = []
    for pattern in patterns:
        if pattern == "-" or not glob.has_magic(pattern) or Path(pattern).exists():
            paths.append(pattern)
            continue
        found = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())
        if not found:
            raise DocumentNotFound(f"no file matches '{pattern}'; check the pattern")
        paths += found
    return paths


def _split_question(files: list[str]) -> tuple[list[str], str]:
    if len(files) < 2:
        raise InputError(f"only '{files[0]}' was given; give a document and then the question in quotes")
    *paths, question = files
    if not question.strip():
        raise InputError("the question is empty; give a question in quotes after the documents")
    return paths, question


def _check_stream(stream: bool, system: str, config: object) -> None:
    if stream and config is not None:
        raise InputError(f"--stream: the system '{system}' makes several calls and streams none; leave --stream out")


def _check_gold(gold: tuple[int, ...], num_pages: int) -> None:
    if beyond := [number for number in gold if not 1 <= number <= num_pages]:
        raise InputError(f"--gold-pages: the document has no page {beyond[0]}, only 1 to {num_pages}")


def _page_numbers(text: str | None) -> tuple[int, ...]:
    if not text:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--gold-pages {text}: not page numbers; write them as 1,3") from None
