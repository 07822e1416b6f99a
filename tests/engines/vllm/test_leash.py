"""Child processes end with this process, even if it is killed and cannot clean up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seer.engines.vllm.leash import Leash

WAIT_S = 30
STARTS = """
import multiprocessing, subprocess, sys, time
from seer.engines.vllm.leash import Leash

def rest():
    time.sleep(600)

if __name__ == "__main__":
    leash = Leash()
    with leash.following():
        child = multiprocessing.get_context("spawn").Process(target=rest)
        child.start()
        {during}
    group = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 600 & echo $!; wait"], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    leash.hold(group.pid, group=True)
    print(child.pid, group.pid, group.stdout.readline(), flush=True)
    time.sleep(600)
"""


def is_there(pid: int) -> bool:
    """True if a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int) -> bool:
    deadline = time.monotonic() + WAIT_S
    while is_there(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_there(pid)


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")


@contextmanager
def started(folder: Path, during: str) -> Iterator[subprocess.Popen[str]]:
    script = folder / "starts.py"
    script.write_text(STARTS.format(during=during))
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        try:
            yield parent
        finally:
            parent.kill()


@needs_proc
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_leash_ends_children_of_a_killed_parent(tmp_path, how) -> None:
    with started(tmp_path, during="pass") as parent:
        assert parent.stdout is not None
        child, leader, other = map(int, parent.stdout.readline().split())
        assert all(map(is_there, (child, leader, other)))
        parent.send_signal(how)
        parent.wait(WAIT_S)
        assert all(map(gone, (child, leader, other)))


@needs_proc
def test_leash_ends_children_of_a_parent_killed_during_start(tmp_path) -> None:
    with started(tmp_path, during="print(child.pid, flush=True); time.sleep(600)") as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        time.sleep(1)
        assert is_there(child)
        parent.kill()
        assert gone(child)


@needs_proc
def test_leash_release_keeps_children_alive() -> None:
    leash = Leash()
    with subprocess.Popen(["sleep", "600"]) as other:
        leash.hold(other.pid)
        leash.release()
        leash.release()
        time.sleep(0.5)
        assert is_there(other.pid)
        os.kill(other.pid, signal.SIGTERM)


def test_leash_with_a_killed_shell_raises_nothing() -> None:
    leash = Leash()
    leash._shell.kill()
    leash._shell.wait()
    leash.hold(os.getpid())
    leash.release()
