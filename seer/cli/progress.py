"""A bar for commands that go through many inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(doing: str) -> Iterator[Callable[[int, int, int], None]]:
    """A bar on standard error, where that is a terminal. It is told the inputs done, all of them, and those failed."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(doing),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        line = bar.add_task(doing, total=None, failed=0)

        def show(done: int, total: int, failed: int) -> None:
            bar.update(line, completed=done, total=total, failed=failed)

        yield show
