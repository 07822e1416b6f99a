"""A server started by Seer: it is awaited, its failure is reported in its own words, and it ends with all its children.

A few lines of Python play `vllm serve` here; `test_serving_vllm` starts the real one.
"""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Callable, Sequence

import pytest

from seer.engines.vllm import serve as vllm_serve
from seer.errors import EngineError

HEALTHY = """
import http.server, subprocess, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())
    def log_message(self, *_):
        pass
stubborn = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); held = open(sys.argv[1], 'w')"
worker = subprocess.Popen([sys.executable, "-c", stubborn + "; print('up', file=held, flush=True); signal.pause()", sys.argv[1]])
http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""


@pytest.fixture
def played_by(monkeypatch) -> Callable[..., None]:
    def set_program(program: str, *arguments: str) -> None:
        def command(model: str, port: int, more: Sequence[str]) -> list[str]:
            return [sys.executable, "-c", program, *arguments, str(port), model, *more]

        monkeypatch.setattr(vllm_serve, "check_version", lambda: "0.32.0")
        monkeypatch.setattr(vllm_serve, "command", command)

    return set_program


def test_serving_answers_in_its_block_and_ends_all_processes(played_by, tmp_path):
    """Workers that ignore SIGTERM end as well: they would hold GPU memory."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    played_by(HEALTHY, str(pipe))
    with vllm_serve.serving("some/model") as address:
        assert address.endswith("/v1")
        with urllib.request.urlopen(f"{address}/models", timeout=30) as reply:
            assert reply.read() == b"/v1/models"
        worker = pipe.open()
        assert worker.readline() == "up\n"
    # a pipe ends once all its writers have ended; otherwise this waits for the time limit
    with worker:
        assert worker.read() == ""
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{address}/models", timeout=30)


def test_serving_reports_the_cause_of_an_early_exit(played_by):
    played_by("import sys; print('a trace'); sys.exit('no such model: ' + sys.argv[2])")
    said = r"^vllm serve ended with code 1: no such model: some/model$"
    with pytest.raises(EngineError, match=said), vllm_serve.serving("some/model"):
        pass


def test_serving_reports_a_silent_exit(played_by):
    played_by("import sys; sys.exit(3)")
    with pytest.raises(EngineError, match=r"^vllm serve ended with code 3: $"), vllm_serve.serving("some/model"):
        pass


def test_serving_ends_a_server_that_does_not_start_in_time(played_by, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    played_by("import signal, sys; held = open(sys.argv[1], 'w'); signal.pause()", str(pipe))
    with pytest.raises(EngineError, match=r"was not ready after 0.6 s"), vllm_serve.serving("m", start_s=0.6):
        pass
    assert os.read(reader, 1) == b""  # nobody has it open for writing
    os.close(reader)


def test_serve_command_holds_required_and_given_flags():
    words = vllm_serve.command("some/model", 8000, ["--dtype", "float32"])
    assert words[0] == sys.executable
    assert words[words.index("--model") + 1] == "some/model"
    assert words[words.index("--limit-mm-per-prompt") + 1] == '{"image": 512, "video": 0}'
    assert {"--enable-prefix-caching", "--enable-prompt-tokens-details"} < set(words)
    assert words[-2:] == ["--dtype", "float32"]
