"""Child processes that end when this process ends, even if it is killed.

    leash = Leash()
    with leash.following():     # holds processes started through multiprocessing in this block
        engine = start()
    leash.release()             # after a normal shutdown

The engine of vLLM is a separate process. It outlives a parent that is killed and keeps its GPU memory. A killed process
cannot clean up, so a shell waits at the end of a pipe, which closes with this process.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PATIENCE_S = 10
"""Seconds between SIGTERM and SIGKILL."""
LOOK_EVERY_S = 0.2
SCRIPT = f"""
held=
while read -r process; do held="$held $process"; done
[ -n "$held" ] || exit 0
kill -s TERM $held
sleep {PATIENCE_S}
kill -s KILL $held
"""


class Leash:
    """Holds child processes."""

    def __init__(self) -> None:
        # a separate session: a signal to this process or its group must not reach the shell
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
            bufsize=1,
        )

    def hold(self, pid: int, *, group: bool = False) -> None:
        """End the process `pid` when this process ends. With `group`, end the whole group that it leads."""
        assert self._shell.stdin is not None
        with suppress(OSError):  # the shell was killed from outside: the process keeps running without it
            self._shell.stdin.write(f"{'-' if group else ''}{pid}\n")

    @contextmanager
    def following(self) -> Iterator[None]:
        """Hold every process that multiprocessing starts during the block, from shortly after its start."""
        before = {child.pid for child in multiprocessing.active_children()}
        done = threading.Event()

        def hold_new() -> None:
            for child in multiprocessing.active_children():
                if child.pid is not None and child.pid not in before:
                    before.add(child.pid)
                    self.hold(child.pid)

        def look() -> None:
            while not done.wait(LOOK_EVERY_S):
                hold_new()

        looking = threading.Thread(target=look, name="seer-leash", daemon=True)
        looking.start()
        try:
            yield
        finally:
            done.set()
            looking.join()
            hold_new()

    def release(self) -> None:
        """Stop holding all processes. May be called twice."""
        self._shell.kill()
        if self._shell.stdin is not None:
            with suppress(OSError):
                self._shell.stdin.close()
        self._shell.wait()
