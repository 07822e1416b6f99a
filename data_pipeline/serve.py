"""Start the vLLM servers of a build's teachers, or print the commands that start them.

    for server in teacher_servers(config):
        print(server.line)                # CUDA_VISIBLE_DEVICES=0 vllm serve MODEL --port 8001 …
    run_servers(teacher_servers(config))  # until interrupted, or until one of them ends

The servers start one after another: a server that shares a GPU measures the free memory when it starts, so the others
must have taken theirs.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from urllib.parse import urlsplit

from data_pipeline.settings import BuildConfig, ServerSpec
from seer.errors import ConfigError, ModelError
from seer.teaching.settings import TeacherSpec

START_TIMEOUT_S = 3600.0
"""Loading a model includes its download and compilation."""
_POLL_S = 1.0
_END_TIMEOUT_S = 30.0
_LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "0.0.0.0", "::1"})


@dataclass(frozen=True)
class TeacherServer:
    """One server: its command, the GPUs that it sees, and its address."""

    roles: tuple[str, ...]
    command: tuple[str, ...]
    gpus: str
    host: str
    port: int

    @property
    def line(self) -> str:
        """The command as a shell runs it."""
        prefix = f"CUDA_VISIBLE_DEVICES={shlex.quote(self.gpus)} " if self.gpus else ""
        return prefix + shlex.join(self.command)

    @property
    def health_url(self) -> str:
        """The address that responds with status 200 once the model is loaded."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/health"


def teacher_servers(config: BuildConfig) -> list[TeacherServer]:
    """Return the servers of the teachers whose addresses are on this machine, the judge's first.

    Two phases with the same address share a server. Raises ConfigError if no phase has a teacher on this machine, two
    models claim one address, an address has no port, or a context is too short for the teacher's reply.
    """
    parts = (("judge", config.judge, config.serve.judge), ("reason", config.reason, config.serve.reason))
    servers: dict[int, TeacherServer] = {}
    for role, phase, spec in parts:
        teacher = phase.teacher
        if phase.kind != "teacher" or teacher is None or not teacher.base_url:
            continue
        address = urlsplit(teacher.base_url)
        if address.hostname not in _LOCAL_HOSTS:
            continue
        if address.port is None:
            raise ConfigError(
                f"{role}.teacher.base_url '{teacher.base_url}' has no port; write http://127.0.0.1:8001/v1"
            )
        server = _server(role, teacher, spec, address.hostname or "", address.port)
        shared = servers.get(address.port)
        if shared is None:
            servers[address.port] = server
        elif shared.command == server.command:
            servers[address.port] = TeacherServer(
                (*shared.roles, role), server.command, shared.gpus, shared.host, shared.port
            )
        else:
            raise ConfigError(
                f"{' and '.join((*shared.roles, role))} have one address, '{teacher.base_url}', and different models or "
                "settings; give each its own port"
            )
    if not servers:
        raise ConfigError(
            "no phase has a teacher with an address on this machine; set base_url to http://127.0.0.1:PORT/v1"
        )
    return list(servers.values())


def _server(role: str, teacher: TeacherSpec, spec: ServerSpec, host: str, port: int) -> TeacherServer:
    if spec.context_tokens and spec.context_tokens <= teacher.max_tokens:
        raise ConfigError(
            f"serve.{role}.context_tokens={spec.context_tokens}: must exceed {role}.teacher.max_tokens, "
            f"{teacher.max_tokens}, because a reply is part of the context"
        )
    command = ["vllm", "serve", teacher.model, "--host", host, "--port", str(port)]
    if spec.context_tokens:
        command += ["--max-model-len", str(spec.context_tokens)]
    return TeacherServer((role,), (*command, *spec.args), spec.gpus, host, port)


def run_servers(
    servers: Sequence[TeacherServer], say: Callable[[str], None] = print, start_timeout_s: float = START_TIMEOUT_S
) -> None:
    """Start the servers one after another and keep them running until SIGINT or SIGTERM.

    Raises ModelError if vLLM is not installed, a server ends, or one is not ready within `start_timeout_s`. All servers
    have ended when this function returns or raises.
    """
    if shutil.which("vllm") is None:
        raise ModelError("serving teachers needs the command 'vllm'; install the extra 'vllm', or use --print")
    running: list[subprocess.Popen[bytes]] = []
    with _stops_by_signal():
        try:
            for server in servers:
                say(server.line)
                environment = os.environ | ({"CUDA_VISIBLE_DEVICES": server.gpus} if server.gpus else {})
                # A separate session, so that its worker processes can be ended with it.
                running.append(subprocess.Popen(server.command, env=environment, start_new_session=True))
                _wait_until_ready(server, running, start_timeout_s)
                say(f"{' and '.join(server.roles)}: ready at port {server.port}")
            while True:
                _check_running(servers, running)
                time.sleep(_POLL_S)
        except KeyboardInterrupt:
            say("stopping the servers")
        finally:
            _end(running)


def _wait_until_ready(server: TeacherServer, running: Sequence[subprocess.Popen[bytes]], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if running[-1].poll() is not None:
            raise ModelError(f"'{server.line}' ended with exit status {running[-1].returncode}; its messages are above")
        try:
            with urllib.request.urlopen(server.health_url, timeout=5) as response:
                if response.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass  # not listening yet
        time.sleep(_POLL_S)
    raise ModelError(f"'{server.line}' is not ready after {timeout_s:g} s; start it by hand to see why (--print)")


def _check_running(servers: Sequence[TeacherServer], running: Sequence[subprocess.Popen[bytes]]) -> None:
    for server, process in zip(servers, running, strict=True):
        if process.poll() is not None:
            raise ModelError(f"the server of {' and '.join(server.roles)} ended with exit status {process.returncode}")


def _end(running: Sequence[subprocess.Popen[bytes]]) -> None:
    """End every server and its worker processes: politely first, then by force."""
    for process in running:
        _signal_group(process, signal.SIGTERM)
    deadline = time.monotonic() + _END_TIMEOUT_S
    for process in running:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, deadline - time.monotonic()))
        _signal_group(process, signal.SIGKILL)
        process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # the whole group may have ended
        os.killpg(process.pid, number)


@contextmanager
def _stops_by_signal() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that both end the servers."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
