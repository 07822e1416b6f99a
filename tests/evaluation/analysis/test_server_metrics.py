"""Latency at the server: vLLM's histograms before and after a run."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from seer.errors import InputError
from seer.evaluation.analysis.server_metrics import (
    FILE_NAME,
    ServerMetrics,
    add_to_run,
    parse_metrics,
    read_of_run,
    read_server_metrics,
)

TEXT = """# HELP vllm:time_to_first_token_seconds Histogram of time to first token in seconds.
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="m"} 0.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 3.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 1.5e+00
vllm:time_to_first_token_seconds_count{engine="1",model_name="m"} 1.0
vllm:time_to_first_token_seconds_sum{engine="1",model_name="m"} 0.5
vllm:time_per_output_token_seconds_sum{engine="0"} 2.0
vllm:time_per_output_token_seconds_count{engine="0"} 100
vllm:num_requests_running{engine="0"} 1.0
process_cpu_seconds_total 12.5
"""


def test_parse_metrics_adds_engines_and_knows_older_names():
    metrics = parse_metrics(TEXT)
    assert metrics.mean("ttft") == pytest.approx(0.5) and metrics.mean("itl") == pytest.approx(0.02)
    assert metrics.mean("e2e") is None
    assert parse_metrics("nonsense\n{}\n") == ServerMetrics()


def test_since_takes_the_difference_and_notices_a_restart():
    before, after = ServerMetrics({"ttft": 2.0}, {"ttft": 4}), ServerMetrics({"ttft": 5.0}, {"ttft": 5})
    assert after.since(before).mean("ttft") == pytest.approx(3.0)
    assert before.since(after) == before


@contextmanager
def server(body: bytes, status: int = 200) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_address[1]}/v1"
    finally:
        running.shutdown()
        running.server_close()


def test_read_server_metrics_asks_beside_the_address():
    with server(TEXT.encode()) as address:
        metrics = read_server_metrics(address)
        assert metrics is not None and metrics.counts["ttft"] == 4
    with server(b"up 1\n") as address:
        assert read_server_metrics(address) is None
    with server(b"", 500) as address:
        assert read_server_metrics(address) is None
    assert read_server_metrics("http://127.0.0.1:9/v1") is None
    assert read_server_metrics("not an address") is None


def test_run_keeps_the_metrics_of_all_its_sessions(tmp_path):
    assert read_of_run(tmp_path) is None
    add_to_run(tmp_path, ServerMetrics({"ttft": 1.0}, {"ttft": 2}))
    add_to_run(tmp_path, ServerMetrics({"ttft": 2.0, "e2e": 4.0}, {"ttft": 1, "e2e": 1}))
    assert read_of_run(tmp_path) == ServerMetrics({"e2e": 4.0, "ttft": 3.0}, {"e2e": 1, "ttft": 3})
    (tmp_path / FILE_NAME).write_text('{"sums": 3}')
    with pytest.raises(InputError, match=f"{FILE_NAME}' is damaged"):
        read_of_run(tmp_path)
