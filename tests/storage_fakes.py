"""What the tests of files and folders share: a process to kill, and a file system without locks."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@contextmanager
def process(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A Python process that prints one line when it is ready; killed when the block ends."""
    command = [sys.executable, "-c", f"import os, sys, time\nfrom seer import storage\n{code}", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "ready\n"
            yield running
        finally:
            running.send_signal(signal.SIGKILL)


def names(folder: Path) -> list[str]:
    """The names in a folder, hidden ones included."""
    return sorted(path.name for path in folder.iterdir())


def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that has no locks."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
