"""The `seer` command: render, plan, ask, serve, evaluate, check.

Every command prints one clear error and ends with exit code 2 on bad input (1 where an engine failed, 3 where the
document does not answer the question); `--debug` anywhere in it shows the traceback.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from seer import __version__
from seer.cli import demo as demo_cli
from seer.cli import render as rendering
from seer.cli import serve as serving_cli
from seer.cli.command import AsJson, Commands, command_line, run
from seer.cli.eval.main import app as evaluation
from seer.cli.options import BaseUrl, Device, Engine, EngineArgs, Selector, Settings

app = command_line(
    "seer",
    "Long documents read as page images; exact text where a question needs it.\n\n"
    "Beside it: seer-data builds trajectories, seer-train trains on them.",
)
EXIT_CODES = {"failed": 1, "not_answerable": 3}
"""Of `seer ask`, by the answer's status where it is not answered."""


def main() -> NoReturn:
    """Run the command line; the errors of `seer.errors` become one line and an exit code."""
    run(app, "seer")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"seer {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=False)
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Nothing but `--version` comes before a command."""


def ask(
    files: Annotated[
        list[str], typer.Argument(help="Documents (paths, globs, or '-' for standard input), then the question.")
    ],
    model: Annotated[str | None, typer.Option(help="Checkpoint folder of a GLM-4V-family model.")] = None,
    engine: Engine = "hf",
    base_url: BaseUrl = None,
    engine_args: EngineArgs = None,
    selector: Selector = "model",
    style: rendering.StyleOption = "seer",
    pages: rendering.PagesOption = None,
    reflow: rendering.ReflowOption = False,
    ocr: rendering.OcrOption = "auto",
    password: rendering.PasswordOption = None,
    mode: Annotated[
        str, typer.Option(help="select, visual, text, or auto: the cheaper of select and text.")
    ] = "select",
    settings: Settings = None,
    gold_pages: Annotated[str | None, typer.Option(help="Pages for the oracle selector, e.g. 1,3.")] = None,
    device: Device = "auto",
    stream: Annotated[bool, typer.Option("--stream", help="Print the answer's text as it is generated.")] = False,
    as_json: AsJson = False,
    save_trace: Annotated[
        Path | None, typer.Option(help="Folder for report.html, report.md, answer.json and the pages.")
    ] = None,
) -> None:
    """Ask a question about one document or several.

    Example: seer ask report.txt "What was the total?" --model path/to/checkpoint

    Exit codes: 0 answered, 1 the engine failed, 2 bad input, 3 the document does not answer the question.
    """
    from rich.console import Console

    from seer.cli.display import TracePrinter, print_outcome
    from seer.config import load_config
    from seer.errors import InputError
    from seer.reading.policy import ReadingPolicy
    from seer.reading.reader import Reader
    from seer.rendering import load
    from seer.rendering.collection import combine
    from seer.selection.base import build_selector
    from seer.systems.base import build_engine, engine_at, parse_engine_arguments

    if len(files) < 2:
        raise InputError(f"only '{files[0]}' arrived; give a document and then the question in quotes")
    *paths, question = files
    policy = load_config(ReadingPolicy, None, [f"mode={mode}", *(settings or [])])
    if not question.strip():
        raise InputError("the question is empty; ask something")
    engine = engine_at(engine, base_url)
    gold = _page_numbers(gold_pages)
    reading: dict[str, Any] = {"pages": pages, "reflow": reflow, "ocr": ocr, "password": password}
    chosen = build_selector(selector, gold=(lambda document, asked: gold) if gold else None)
    document = combine([load(path, style, **reading) for path in expand_paths(paths)])
    if beyond := [number for number in gold if not 1 <= number <= len(document.pages)]:
        raise InputError(
            f"--gold-pages {gold_pages}: the document has no page {beyond[0]}, only 1 to {len(document.pages)}"
        )
    options = parse_engine_arguments(engine_args or [])
    if base_url is not None:
        options |= {"base_url": base_url}
    reader = Reader(build_engine(engine, model=model, device=device, **options), chosen, policy)
    console = Console(stderr=as_json, highlight=False, markup=False)
    printer = TracePrinter(console, document)
    answer = reader.ask(document, question, printer, printer.text if stream else None)
    print_outcome(console, document, answer)
    if save_trace is not None:
        from seer.web.trace import write_trace

        write_trace(save_trace, document, question, answer)
    if as_json:
        typer.echo(json.dumps({"question": question, **answer.model_dump(mode="json")}, ensure_ascii=False))
    raise typer.Exit(EXIT_CODES.get(answer.status, 0))


def make_small(
    out: Annotated[Path, typer.Argument(help="Folder for the checkpoint.")],
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Make a small, untrained GLM-4V checkpoint (1.6 M parameters): real in every part, but it knows nothing.

    Example: seer make-small small/
    """
    from seer.errors import InputError
    from seer.models.small import build_small

    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise InputError(f"'{out}' exists already; give a folder that does not")
    made = build_small(out, seed=seed)
    typer.echo(json.dumps({"out": str(made)}) if as_json else f"{made}: an untrained model; its answers mean nothing")


def check(
    model: Annotated[str, typer.Argument(help="Checkpoint folder.")],
    weights: Annotated[bool, typer.Option(help="Also load the weights and compare positions.")] = True,
    as_json: AsJson = False,
) -> None:
    """Is this checkpoint fit for Seer? Looks at tokens, stops, template, processor and positions, and says what it found.

    Example: seer check path/to/checkpoint

    Exit codes: 0 fit, 2 not.
    """
    from seer.models.checks import check_model

    results = []
    for result in check_model(model, weights=weights):
        results.append(result)
        if not as_json:
            typer.echo(f"{'ok  ' if result.ok else 'FAIL'}  {result.name}: {result.detail}")
    if as_json:
        checks = [{"name": r.name, "ok": r.ok, "detail": r.detail} for r in results]
        typer.echo(json.dumps({"model": model, "ok": all(r.ok for r in results), "checks": checks}))
    if not all(result.ok for result in results):
        raise typer.Exit(2)


def expand_paths(patterns: list[str]) -> list[str]:
    """Paths and globs → paths, sorted within each glob. A name that exists is taken as it is, whatever it holds."""
    import glob

    from seer.errors import DocumentNotFound

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


def _page_numbers(text: str | None) -> tuple[int, ...]:
    from seer.errors import InputError

    if not text:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"'{text}' are no page numbers; write them as 1,3") from None


for command in (ask, rendering.render, rendering.plan, check, serving_cli.serve, demo_cli.demo):
    app.command()(command)
app.add_typer(evaluation, name="eval", cls=Commands)
app.command("make-small")(make_small)
app.command()(rendering.cache)

if __name__ == "__main__":
    main()
