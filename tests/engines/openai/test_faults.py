"""Faults of a server: which the openai engine retries, how it names them, and how it starts and ends."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest
from fakes import error_text
from openai_fakes import CALL, DOCUMENT, FREE, PAGES, PROMPT, engine_for
from pyreqwest.exceptions import ConnectError as PyreqwestConnectError
from serving_fakes import Say, serve

from seer.engines.base import Conversation, Request
from seer.engines.openai import http
from seer.engines.openai.engine import OpenAIEngine
from seer.engines.openai.http import Http
from seer.errors import (
    EngineBusy,
    EngineError,
    EngineTimeout,
    EngineUnavailable,
    InputError,
    PromptTooLong,
    RequestRefused,
)
from seer.reading.conversation import converse
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import Reader, read_one
from seer.schema import Turn


def reading_script(body: dict[str, Any], number: int) -> Say:
    """Selects pages 1 and 3, then answers."""
    if body["messages"][-1]["role"] == "user":
        return Say('<tool_call>{"name": "select", "indices": [1, 3]}</tool_call>')
    return Say("<think>1299.99 + 449.99</think>\n$1,749.98")


PASSING = [
    Say(status=429, headers={"Retry-After": "0"}),
    Say(status=500),
    Say(status=503),
    Say(raw=b"<html>proxy</html>"),
    Say(raw=b""),
    Say(raw=b'{"choices": []}'),
    Say(raw=b'{"choices": [{"message": "x"}]}'),
    Say(hang_up=True),
]


@pytest.mark.parametrize("fault", PASSING, ids=lambda say: str(say.status if say.status != 200 else say.raw))
def test_passing_fault_is_retried(fault):
    with engine_for(lambda body, n: fault if n < 2 else Say("fine")) as (engine, server):
        (said,) = engine.generate([FREE])
    assert said.raw == "fine"
    assert len(server.asked) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_lasting_fault_is_not_retried(status):
    with engine_for(lambda body, n: Say(status=status)) as (engine, server):
        (said,) = engine.generate([FREE])
    assert said.finish == "error"
    assert str(status) in error_text(said)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (413, "too large"),
        (400, "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens."),
        (400, "The decoder prompt (length 9000) is longer than the maximum model length of 8192."),
        (400, '"code": "context_length_exceeded"'),
    ],
)
def test_context_error_becomes_prompt_too_long(status, message):
    raw = json.dumps({"error": {"message": message}}).encode()
    with engine_for(lambda body, n: Say(status=status, raw=raw)) as (engine, server):
        (said,) = engine.generate([FREE])
        answer = Reader(engine, policy=ReadingPolicy(mode="visual")).ask(DOCUMENT, "q")
    assert isinstance(said.error, PromptTooLong) and not said.retryable
    assert answer.failure is not None and answer.failure.kind == "too_long"
    assert len(server.asked) == 2


CLASSES = [
    (400, RequestRefused, False),
    (401, EngineUnavailable, False),
    (404, EngineUnavailable, False),
    (307, EngineUnavailable, False),
    (408, EngineTimeout, True),
    (409, EngineError, True),
    (415, RequestRefused, False),
    (429, EngineBusy, True),
    (500, EngineError, True),
    (502, EngineUnavailable, True),
    (503, EngineUnavailable, True),
    (504, EngineTimeout, True),
]


@pytest.mark.parametrize(("status", "kind", "retryable"), CLASSES)
def test_status_becomes_its_error_class(status, kind, retryable):
    with engine_for(lambda body, n: Say(status=status, headers={"Retry-After": "7"}), attempts=1) as (engine, server):
        (failed,) = engine.generate([FREE])
    error = failed.error
    assert type(error) is kind and failed.retryable == retryable
    assert error.retry_after_s == (7.0 if retryable else 0.0)
    assert f"answered {status}: told to fail" in str(error)
    assert server.base_url not in error.public and "told to fail" not in error.public


def test_status_of_a_stream_keeps_its_error_class():
    request = Request(FREE.prompt, "s", on_text=print)
    with engine_for(lambda body, n: Say(status=429, headers={"Retry-After": "7"}), attempts=1) as (engine, _):
        (failed,) = engine.generate([request])
    assert type(failed.error) is EngineBusy and failed.error.retry_after_s == 7.0


def test_retry_waits_as_long_as_the_server_requests():
    script = lambda body, n: Say(status=503, headers={"Retry-After": "0.3"}) if n == 0 else Say("fine")  # noqa: E731
    with engine_for(script) as (engine, server):
        (answer,) = engine.generate([FREE])
    assert answer.raw == "fine" and len(server.asked) == 2
    assert answer.seconds >= 0.3


@pytest.mark.parametrize(
    ("sent", "cause"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "end of file before message length reached"),
        (b"SSH-2.0-OpenSSH\r\n", "invalid HTTP version"),
        (b"", "connection"),
    ],
)
def test_server_that_hangs_up_is_named_with_its_cause(sent, cause):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(sent)

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        with pytest.raises(EngineUnavailable, match=cause) as raised:
            OpenAIEngine(address, attempts=1)
        thread.join()
    assert raised.value.retryable


@pytest.mark.parametrize(
    ("address", "cause"),
    [("http://no.such.host.invalid/v1", "lookup"), ("http://127.0.0.1:9/v1", "refused"), ("https://{}/v1", "corrupt")],
)
def test_unreachable_address_is_named_with_its_cause(address, cause):
    with serve(lambda body, n: Say("x")) as server:
        host = server.base_url.removeprefix("http://").removesuffix("/v1")
        with pytest.raises(EngineUnavailable, match=cause) as raised:
            OpenAIEngine(address.format(host), attempts=1)
    assert raised.value.retryable and "127.0.0.1" not in raised.value.public


@pytest.mark.parametrize("address", ["", "nonsense", "/v1", "localhost:8000/v1", "http://127.0.0.1:99999/v1"])
def test_malformed_address_is_rejected(address):
    with pytest.raises(InputError, match="is not an address"):
        OpenAIEngine(address)


@pytest.mark.parametrize("stream", [False, True])
def test_endless_reply_is_not_held(monkeypatch, stream):
    monkeypatch.setattr(http, "MAX_REPLY_BYTES", 1 << 16)
    endless = Say(raw=b"data: " + b"x" * (1 << 20), headers={"Content-Type": "text/event-stream"} if stream else {})
    request = Request(FREE.prompt, "s", on_text=print) if stream else FREE
    with engine_for(lambda body, n: endless) as (engine, server):
        (failed,) = engine.generate([request])
    assert "more than 0 MiB" in error_text(failed) and not failed.retryable
    assert len(server.asked) == 1


CHILD = """
import asyncio, sys
from seer.engines.openai.http import Http
from seer.errors import EngineError

async def use() -> None:
    http = Http(sys.argv[1], timeout_s=5, max_connections=1)
    try:
        await http.get("/models")
    except EngineError as error:
        print(error)
    await http.close()

asyncio.run(use())
raise SystemExit(7)
"""


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_process_that_ends_right_after_a_request_keeps_its_exit_code(scheme):
    """Without the guard, many such processes abort with code 134."""
    with serve(lambda body, n: Say("x")) as server:
        address = server.base_url.replace("http", scheme)
        children = [subprocess.Popen([sys.executable, "-c", CHILD, address], stdout=subprocess.PIPE) for _ in range(4)]
        outputs = [child.communicate(timeout=120)[0] for child in children]
    assert [child.returncode for child in children] == [7] * 4
    assert all((b"corrupt message" in output) == (scheme == "https") for output in outputs)


def test_untrusted_certificate_names_the_remedy_and_is_not_retried():
    cause = {"message": "invalid peer certificate: UnknownIssuer"}
    one = Http("https://example.invalid/v1", timeout_s=1, max_connections=1)
    error = one._fault(PyreqwestConnectError("connection error", {"causes": [cause]}))
    assert isinstance(error, EngineUnavailable) and not error.retryable
    assert "UnknownIssuer" in str(error) and "set SSL_CERT_FILE" in str(error)


def test_exit_guard_waits_until_the_last_use_is_long_enough_ago(monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(http.time, "sleep", waits.append)
    monkeypatch.setattr(http.time, "monotonic", lambda: 100.0)
    monkeypatch.setattr(http.atexit, "register", lambda function: None)
    guard = http.ExitGuard()
    guard.note_use()
    guard.wait()
    monkeypatch.setattr(http.time, "monotonic", lambda: 101.0)
    guard.wait()
    assert waits == [pytest.approx(guard.wait_s), 0.0]


def test_proxies_of_the_environment_are_not_used(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with engine_for(lambda body, n: Say("fine")) as (engine, _):
        assert engine.generate([FREE])[0].raw == "fine"


def test_request_that_always_fails_does_not_affect_others():
    def script(body: dict[str, Any], number: int) -> Say:
        return Say(status=500) if "broken" in json.dumps(body) else Say("fine")

    broken = Request(Conversation((Turn(kind="prompt", text="broken"),)), "b")
    with engine_for(script, attempts=3) as (engine, server):
        said = engine.generate([broken, FREE, FREE])
    assert [one.finish for one in said] == ["error", "stop", "stop"]
    assert len(server.asked) == 5


def test_slow_server_becomes_a_timeout():
    with engine_for(lambda body, n: Say("late", wait_s=1.0), timeout_s=0.2, attempts=2) as (engine, server):
        (said,) = engine.generate([FREE])
        assert said.finish == "error"
        assert "in time" in error_text(said) or "longer than" in error_text(said)
        assert len(server.asked) == 2


def test_timeout_limits_the_whole_attempt():
    with engine_for(lambda body, n: Say("late", wait_s=0.3), attempts=1) as (engine, _):
        engine._http.timeout_s = 0.05
        (said,) = engine.generate([FREE])
        assert "took longer than 0.05 s" in error_text(said)
        assert isinstance(said.error, EngineTimeout) and said.retryable
        assert engine.trouble() == ""  # it may come back


def test_withheld_reply_is_refused_and_not_retried():
    with engine_for(lambda body, n: Say("", finish="content_filter")) as (engine, server):
        (said,) = engine.generate([FREE])
    assert (error_text(said), said.retryable) == ("the server's content filter withheld the reply", False)
    assert isinstance(said.error, RequestRefused)
    assert len(server.asked) == 1


@pytest.mark.parametrize("after", [0, 4])
def test_broken_stream_is_retried_only_before_its_first_text(after):
    pieces: list[str] = []
    request = Request(Conversation(PROMPT, PAGES), "s", on_text=pieces.append)

    def script(body: dict[str, Any], number: int) -> Say:
        return Say("one two three four", break_after=after if number == 0 else None)

    with engine_for(script) as (engine, server):
        (said,) = engine.generate([request])
    assert (said.finish, len(server.asked)) == (("error", 1) if after else ("stop", 2))
    if after:
        assert "broke off" in error_text(said) or "closed the connection" in error_text(said)
    else:
        assert "".join(pieces) == "one two three four"


def test_requests_at_once_stay_within_max_concurrent():
    with engine_for(lambda body, n: Say("x", wait_s=0.02), max_concurrent=3) as (engine, server):
        said = engine.generate([FREE] * 12)
    assert all(one.finish == "stop" for one in said)
    assert server.most_at_once <= 3


def test_cancelled_conversation_closes_its_connection():
    async def run() -> None:
        conversation = converse(DOCUMENT, "What?", engine, None, ReadingPolicy(mode="visual"))
        task = asyncio.create_task(read_one(conversation, engine.generate_one))
        while not server.under_way:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while engine.admission.under_way:
            await asyncio.sleep(0.01)

    with engine_for(lambda body, n: Say("late", wait_s=0.5)) as (engine, server):
        asyncio.run(run())
        assert len(engine._drawn) == 0


# ── The start ────────────────────────────────────────────────────────────────────────────────────


def test_start_finds_a_server_that_follows_schemas():
    def script(body: dict[str, Any], number: int) -> Say:
        return Say('{"name": "select", "indices": [7]}' if "response_format" in body else "As you wish.")

    with engine_for(script, structure=None) as (engine, server):
        assert engine.abilities.structure == "json_schema"
        engine.generate([CALL])
        schema = server.asked[-1]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["indices"]["items"]["enum"] == [1, 2, 3]


@pytest.mark.parametrize("say", [Say("As you wish."), Say(status=400)])
def test_start_finds_a_server_that_ignores_schemas(say):
    with engine_for(lambda body, n: say, structure=None) as (engine, _):
        assert engine.abilities.structure == "none"
        assert not engine.constrains


def test_start_reports_a_missing_server_and_a_missing_model():
    with pytest.raises(EngineError, match="not reachable"):
        OpenAIEngine("http://127.0.0.1:9/v1", attempts=2, backoff_s=0.0)
    with pytest.raises(InputError, match="not an address"):
        OpenAIEngine("localhost:8000")
    with serve(lambda body, n: Say("x")) as server, pytest.raises(InputError, match="'large'; it has: fake"):
        OpenAIEngine(server.base_url, "large", structure="none")


def test_close_ends_the_thread_even_if_the_connection_fails(monkeypatch):
    calls: list[int] = []

    async def failing() -> None:
        calls.append(1)
        raise OSError("the connection is gone")

    with serve(reading_script) as server:
        engine = OpenAIEngine(server.base_url, structure="none", continuation="tool")
        monkeypatch.setattr(engine._http, "close", failing)
        with pytest.raises(OSError, match="the connection is gone"):
            engine.close()
        engine.close()
        with pytest.raises(RuntimeError, match="the loop is closed"):
            engine.generate([FREE])
    assert calls == [1]
