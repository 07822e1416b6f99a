"""`seer demo`: a small trained model reads a document in the terminal."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="Folder for traces, the scored run and report.html.")] = Path("runs/demo"),
    model: Annotated[Path | None, typer.Option(help="Checkpoint folder. Default: the packaged one.")] = None,
    document: Annotated[
        Path | None,
        typer.Option(help="A text file with 4 to 24 lines such as 'doctor 482139' or 'lawyer → rabbit'."),
    ] = None,
    report: Annotated[bool, typer.Option(help="Write the report.")] = True,
) -> None:
    """Watch a small trained model look, select, retrieve and answer, on a CPU; then score it on 100 held-out questions.

    Example: seer demo --document mine.txt
    """
    from rich.console import Console

    from seer.cli.display import TracePrinter
    from seer.cli.progress import progress
    from seer.miniature.controls import find_model
    from seer.miniature.demo import run_demo

    console = Console(highlight=False, markup=False)
    run_demo(
        find_model(model),
        document,
        out,
        console,
        make_printer=partial(TracePrinter, console),
        report=report,
        progress=progress,
    )
