"""`seer serve` as a command, and a server with the transformers engine and a small model."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

openai = pytest.importorskip("openai")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

import httpx  # noqa: E402
from serving_fakes import listening  # noqa: E402

from seer.cli.serve import serve  # noqa: E402
from seer.engines.batched import BatchedEngine  # noqa: E402
from seer.engines.hf.engine import HFEngine  # noqa: E402
from seer.errors import InputError  # noqa: E402
from seer.reading.policy import ReadingPolicy  # noqa: E402
from seer.serving.selfcheck import check_engine  # noqa: E402
from seer.serving.server import create_app  # noqa: E402
from seer.serving.settings import ServeSettings  # noqa: E402

TEXT = "".join(f"Line {n} says {n * n}.\n" for n in range(120))
MESSAGES = [{"role": "user", "content": [{"type": "text", "text": part} for part in (TEXT, "What says line 7?")]}]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_server_with_the_transformers_engine_answers_and_streams(small_checkpoint):
    engine = BatchedEngine(HFEngine(small_checkpoint))
    app = create_app(engine, ReadingPolicy(max_new_tokens=24), ServeSettings())
    with listening(app) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=120)
        whole = client.chat.completions.create(model="seer", messages=MESSAGES)
        chunks = list(client.chat.completions.create(model="seer", messages=MESSAGES, stream=True))
    seer = whole.model_dump()["seer"]
    assert seer["deviations"] == []
    assert seer["tokens"]["cached"] > 0  # the second stage reuses the first
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert len([delta for delta in deltas if delta.content]) > 1
    streamed = "".join(delta.content or "" for delta in deltas)
    assert streamed.strip("\n") == whole.choices[0].message.content.strip("\n")


def test_self_check_passes_a_correct_engine_and_fails_a_wrong_one(small_checkpoint, small_checkpoint_dir):
    engine = HFEngine(small_checkpoint)
    checks = list(check_engine(engine, str(small_checkpoint_dir)))
    assert [check.name for check in checks] == ["greedy tokens", "select call", "second stage"]
    assert all(check.ok for check in checks), checks

    class Wrong(HFEngine):
        """Starts its answers from the second-best token."""

        def _decode(self, rows, logits, cache, mask):
            logits = logits.scatter(1, logits.argmax(1, keepdim=True), float("-inf"))
            return super()._decode(rows, logits, cache, mask)

    failed = next(iter(check_engine(Wrong(small_checkpoint), str(small_checkpoint_dir))))
    assert not failed.ok
    assert "must agree in all" in failed.detail


def test_serve_logs_requests_and_stops_on_sigterm():
    port = free_port()
    command = [sys.executable, "-m", "seer.cli.main", "serve", "--engine", "scripted", "--port", str(port)]
    environment = {**os.environ, "SEER_SERVER_KEYS": "a-long-and-random-key-1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            for _ in range(1200):
                try:
                    health = httpx.get(f"http://127.0.0.1:{port}/health")
                    break
                except httpx.HTTPError:
                    time.sleep(0.05)
            assert health.json()["status"] == "ok"
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="a-long-and-random-key-1")
            assert [model.id for model in client.models.list()] == ["seer"]
        finally:
            process.send_signal(signal.SIGTERM)
            _, stderr = process.communicate(timeout=60)
    lines = [json.loads(line) for line in stderr.splitlines() if line.startswith("{")]
    assert [line["route"] for line in lines][-1] == "/v1/models"
    assert process.returncode in (0, -signal.SIGTERM)
    assert "Traceback" not in stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "no.such.host.invalid"])
def test_serve_rejects_an_unusable_address_before_the_engine_starts(host):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InputError, match="give another --port"):
        serve(engine="no such engine", host=host, port=taken.getsockname()[1])
