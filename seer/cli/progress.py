"""Progress bars on standard error, for commands that process many inputs or pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from seer.cli.command import report

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from seer.schema import Document


@contextmanager
def progress(description: str) -> Iterator[Callable[[int, int, int], None]]:
    """Show a bar if standard error is a terminal. Yields a function of the inputs done, their total, and those failed."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(description),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        line = bar.add_task(description, total=None, failed=0)

        def show(done: int, total: int, failed: int) -> None:
            bar.update(line, completed=done, total=total, failed=failed)

        yield show


@contextmanager
def open_bar(description: str, total: int | None, *, quiet: bool) -> Iterator[tuple[Progress, TaskID]]:
    """Show a bar that disappears when it is done, if standard error is a terminal and `quiet` is false."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        yield bar, bar.add_task(description, total=total)


def load_with_progress(file: str, style: str, options: Mapping[str, Any], *, quiet: bool) -> Document:
    """Load a document with `options` of `seer.rendering.load`, show how far it is, and print the document's warnings."""
    from seer.rendering.documents import load

    with open_bar("reading", None, quiet=quiet) as (bar, task):

        def show(done: int, total: int, doing: str) -> None:
            bar.update(task, completed=done, total=total, description=doing)

        document = load(file, style, progress=show, **options)
    print_warnings(document)
    return document


def print_warnings(document: Document) -> None:
    """Print the warnings of a document on standard error: one line for each message, with the pages that it concerns."""
    pages: dict[str, list[int]] = {}
    for warning in document.warnings:
        pages.setdefault(warning.message, []).extend([] if warning.page is None else [warning.page])
    for message, numbers in pages.items():
        listed = ", ".join(map(str, numbers[:10])) + (f" and {len(numbers) - 10} more" if len(numbers) > 10 else "")
        place = f"page{'' if len(numbers) == 1 else 's'} {listed}: " if numbers else ""
        report(f"{place}{message}", "warning")
