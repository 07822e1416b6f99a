"""Processes that end when this one has ended, however that came about.

    leash = Leash()
    with leash.following():     # processes that are started here through multiprocessing are held
        engine = start()
    leash.release()             # once they have been ended in an orderly way

vLLM's engine is a process of its own, which outlives a parent that is killed, and keeps the memory of its GPU. Nothing can
be done by who is killed: a shell waits at the end of a pipe, which closes with this process.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PATIENCE_S = 10
"""Between asking a process to end and ending it."""
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
    def __init__(self) -> None:
        # in a session of its own: what interrupts this process, or ends its whole group, must leave the shell to its work
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
        """`group`: the process leads a group, all of which is meant."""
        assert self._shell.stdin is not None
        with suppress(OSError):  # somebody has ended the shell: what is started here is no worse for that
            self._shell.stdin.write(f"{'-' if group else ''}{pid}\n")

    @contextmanager
    def following(self) -> Iterator[None]:
        """Hold every process that multiprocessing starts during the block, from soon after it has begun."""
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
        """Let go of all. May be called twice."""
        self._shell.kill()
        if self._shell.stdin is not None:
            with suppress(OSError):
                self._shell.stdin.close()
        self._shell.wait()
