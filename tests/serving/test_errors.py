"""Errors of `seer serve` that need no upstream server: statuses, headers and codes."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import httpx
import pytest

from seer.engines.base import Generation, Request
from seer.errors import EngineBusy, EngineError, EngineTimeout, EngineUnavailable, InputError, PromptTooLong, SeerError
from seer.schema import Failure
from seer.serving.errors import ReadingFailed, error_headers, error_response, failure_of, log_fields
from seer.serving.files import FileStore
from seer.serving.stream import Stream
from tests.serving.test_server import KEY, Running, chat, running

HEADERS = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as one:
        yield one


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/v1/chat/completions", {"POST"}), ("DELETE", "/v1/models", {"GET", "HEAD"}), ("PUT", "/health", {"GET"})],
)
def test_wrong_method_gets_405_with_allowed_methods(server, method, path, allowed):
    reply = httpx.request(method, f"{server.base}{path}", headers=HEADERS)
    assert reply.status_code == 405
    assert allowed <= {one.strip() for one in reply.headers["allow"].split(",")}
    assert reply.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/embeddings", "/v1/responses"])
def test_unknown_address_gets_404_with_known_addresses(server, path):
    reply = httpx.post(f"{server.base}{path}", headers=HEADERS, json={})
    assert reply.status_code == 404
    assert "/v1/chat/completions" in reply.json()["error"]["message"]


def test_missing_key_gets_401_with_the_scheme(server):
    reply = httpx.get(f"{server.base}/v1/models")
    assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize("system", ["text", "visual"])
@pytest.mark.parametrize("stream", [False, True])
def test_too_long_prompt_is_the_clients_error(system, stream):
    """A status of 500 or above would make clients retry it."""
    with running() as server:
        server.engine.max_positions = 300
        server.engine.generate = lambda requests: [too_long(request) for request in requests]
        body = {"model": "seer", "messages": chat(), "seer": {"system": system}, "stream": stream}
        reply = httpx.post(f"{server.base}/v1/chat/completions", json=body, headers=HEADERS)
        error = reply.json()["error"]
        assert (reply.status_code, error["type"]) == (400, "invalid_request_error")
        assert error["code"] == "context_length_exceeded"


def too_long(request: Request) -> Generation:
    return Generation.failed(PromptTooLong("the prompt takes 9,999 positions"))


@pytest.mark.parametrize("name", ["stop", "frequency_penalty", "presence_penalty", "top_logprobs"])
def test_unsupported_parameter_is_rejected_unless_null(server, name):
    body = {"model": "seer", "messages": chat(), name: ["\n"] if name == "stop" else 1}
    reply = httpx.post(f"{server.base}/v1/chat/completions", json=body, headers=HEADERS)
    assert (reply.status_code, f"'{name}' is not supported" in reply.text) == (400, True)
    body[name] = None
    assert httpx.post(f"{server.base}/v1/chat/completions", json=body, headers=HEADERS).status_code == 200


def test_stream_whose_client_left_before_the_first_byte_cancels_its_reading():
    async def reading() -> None:
        stream.listener().on_text("text")
        await asyncio.sleep(60)

    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def stuck(_: object) -> None:
        await asyncio.sleep(60)

    async def serve() -> None:
        nonlocal stream
        stream = Stream("id", 0, "seer", False)
        task = asyncio.create_task(reading())
        stream.follow(task)
        await stream.begun()
        await stream.response()({"type": "http", "asgi": {"spec_version": "2.3"}}, gone, stuck)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)

    stream: Stream
    asyncio.run(serve())


def test_upload_to_a_full_disk_leaves_no_file(monkeypatch):
    store = FileStore(1 << 20, ttl_s=60)
    kept = store.add("kept.txt", b"whole", "", "")
    write = Path.write_bytes

    def cut(path: Path, data: bytes) -> int:
        write(path, data[:2])
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(Path, "write_bytes", cut)
    with pytest.raises(OSError, match="no space"):
        store.add("cut.txt", b"never whole", "", "")
    assert [path.name for path in store._folder.iterdir()] == [kept.id]
    assert store.owned_by("") == [kept]
    store.close()


def test_engine_exception_is_logged_with_its_place_and_without_its_text(caplog):
    def failing(request: Request) -> str:
        raise ZeroDivisionError(request.prompt.turns[0].text)

    with running() as server:
        server.engine.script = failing
        body = {"model": "seer", "messages": chat("a private question?")}
        reply = httpx.post(f"{server.base}/v1/chat/completions", json=body, headers=HEADERS)
    assert reply.status_code == 502
    assert reply.json()["error"]["message"] == "the model engine failed"
    assert "ZeroDivisionError" in caplog.text
    assert "in failing" in caplog.text
    assert "private" not in caplog.text + reply.text


# ── Errors as values ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", get_args(Failure.model_fields["kind"].annotation))
def test_error_response_knows_every_kind_of_failure(kind):
    failure = Failure(kind=kind, public="what clients may read", retryable=kind in ("busy", "unavailable"))
    status, body = error_response(ReadingFailed(failure, "http://10.0.0.7:8000/v1 answered"))
    assert body["error"]["message"] == "what clients may read"
    is_clients = kind in ("busy", "too_long", "refused", "input")
    assert (400 <= status < 500) == is_clients
    assert (body["error"]["type"] == "server_error") != is_clients


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        (EngineBusy("full"), {"Retry-After": "1"}),
        (EngineBusy("full", retry_after_s=2.1), {"Retry-After": "3"}),
        (EngineUnavailable("starting", retry_after_s=9), {"Retry-After": "9"}),
        (EngineUnavailable("wrong key", retryable=False), {"X-Should-Retry": "false"}),
        (EngineTimeout("slow"), {}),
        (EngineError("broken", retryable=True), {}),
        (EngineError("broken"), {"X-Should-Retry": "false"}),
        (PromptTooLong("long"), {}),
        (TimeoutError(), {}),
    ],
)
def test_error_headers_follow_status_and_retryable(error, headers):
    assert error_headers(error, error_response(error)[0]) == headers


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (
            EngineUnavailable("http://me:pass@host/v1 answered 503: a private text"),
            "unavailable: http://host/v1 answered 503",
        ),
        (EngineError("the engine\nfailed: a private text"), "engine: the engine failed"),
        (ReadingFailed(Failure.of(EngineTimeout("")), "late: a private text"), "timeout: late"),
        (EngineBusy("x" * 1000), "busy: " + "x" * 200),
        (InputError("'a private text' is empty"), "invalid_input"),
        (ReadingFailed(Failure.of(InputError("a private text")), "a private text"), "invalid_input"),
        (TimeoutError(), "timeout"),
        (KeyError("a private text"), "KeyError"),
    ],
)
def test_log_fields_keep_the_cause_and_leave_foreign_text_out(error, cause):
    fields = log_fields(error)
    assert fields["cause"] == cause
    assert fields["error"] == error_response(error)[1]["error"]["code"]
    assert "private" not in str(fields) and "pass@" not in str(fields)


def test_failure_of_an_error_that_no_engine_raised_is_none():
    assert failure_of(SeerError("other")) is None
    assert failure_of(TimeoutError()) is None


def test_file_store_forgets_files_after_their_time_and_rejects_empty_ones(monkeypatch):
    store = FileStore(1 << 20, ttl_s=60)
    try:
        with pytest.raises(InputError, match="the file is empty; upload one with at least one byte"):
            store.add("a.txt", b"", "owner", "")
        stored = store.add("a.txt", b"text", "owner", "")
        assert store.find(stored.id, "owner") == stored and store.read(stored) == b"text"
        monkeypatch.setattr("seer.serving.files.time.time", lambda: stored.created_at + 61)
        assert store.find(stored.id, "owner") is None and store.owned_by("owner") == []
        assert not list(store._folder.iterdir())
    finally:
        store.close()
