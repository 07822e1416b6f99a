"""Failures keep their cause from an upstream server, through the openai engine, to the HTTP reply of `seer serve`.

All requests cross real sockets: client, `seer serve`, openai engine, scripted upstream server.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from serving_fakes import FakeServer, Say, listening, serve

openai = pytest.importorskip("openai")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from seer.engines.openai.engine import OpenAIEngine  # noqa: E402
from seer.engines.replicas import ReplicatedEngine  # noqa: E402
from seer.reading.policy import ReadingPolicy  # noqa: E402
from seer.serving.server import create_app  # noqa: E402
from seer.serving.settings import ServeSettings  # noqa: E402

UPSTREAM_KEY = "upstream-key-0123456789"
SECRET = "swordfish"
QUESTION = f"What does {SECRET} cost?"
TEXT = "".join(f"Item {n} costs {n * 7} dollars.\n" for n in range(100))
CALL = Say('<tool_call>{"name": "select", "indices": [1]}</tool_call>')
ANSWER = Say("Seven dollars.")
UNAVAILABLE = (503, "server_error", "engine_unavailable", "1", None)
UNUSABLE = (502, "server_error", "engine_unavailable", None, "false")
FAILED = (502, "server_error", "engine_failed", None, None)
REFUSED = (400, "invalid_request_error", "request_refused", None, None)
TOO_LONG = (400, "invalid_request_error", "context_length_exceeded", None, None)


def error_body(message: str, code: str | None = None) -> bytes:
    return json.dumps({"error": {"message": f"{message}: {SECRET}", "code": code}}).encode()


@dataclass(frozen=True)
class Case:
    """A fault of the upstream server, and the reply to the client: status, type, code, Retry-After, X-Should-Retry."""

    fault: Say
    reply: tuple[int, str, str, str | None, str | None]
    cause: str
    """The cause in the log, without the upstream's address."""


CASES = {
    "429 with Retry-After": Case(
        Say(status=429, raw=error_body("slow down"), headers={"Retry-After": "7"}),
        (429, "rate_limit_error", "too_many_requests", "7", None),
        "busy: URL answered 429",
    ),
    "429 without Retry-After": Case(
        Say(status=429, raw=error_body("slow down")),
        (429, "rate_limit_error", "too_many_requests", "1", None),
        "busy: URL answered 429",
    ),
    "500": Case(Say(status=500, raw=error_body("broken")), FAILED, "engine: URL answered 500"),
    "502": Case(Say(status=502, raw=b"<html>swordfish</html>"), UNAVAILABLE, "unavailable: URL answered 502"),
    "503 with Retry-After": Case(
        Say(status=503, raw=error_body("starting"), headers={"Retry-After": "2.5"}),
        (503, "server_error", "engine_unavailable", "3", None),
        "unavailable: URL answered 503",
    ),
    "504": Case(
        Say(status=504, raw=error_body("late")),
        (504, "server_error", "timeout", None, None),
        "timeout: URL answered 504",
    ),
    "connection closed before the reply": Case(
        Say(hang_up=True), UNAVAILABLE, "unavailable: URL is not reachable or closed the connection"
    ),
    "connection reset in mid-reply": Case(
        Say(SECRET, cut_short=True, break_after=0),
        UNAVAILABLE,
        "unavailable: URL is not reachable or closed the connection",
    ),
    "slow": Case(Say(wait_s=2.5), (504, "server_error", "timeout", None, None), "timeout: URL took longer than 1 s"),
    "content refused": Case(
        Say(status=400, raw=error_body("forbidden topic", "content_policy")),
        REFUSED,
        "refused: the server answered 400",
    ),
    "context too long": Case(
        Say(status=400, raw=error_body("too long", "context_length_exceeded")),
        TOO_LONG,
        "too_long: the server answered 400",
    ),
    "413": Case(Say(status=413, raw=error_body("too large")), TOO_LONG, "too_long: the server answered 413"),
    "401": Case(Say(status=401, raw=error_body("wrong key")), UNUSABLE, "unavailable: URL answered 401"),
    "403": Case(Say(status=403, raw=error_body("no access")), UNUSABLE, "unavailable: URL answered 403"),
    "not JSON": Case(Say(raw=b"<html>swordfish</html>"), FAILED, "engine: URL sent a reply that is not JSON"),
}


@dataclass
class Gateway:
    """A running `seer serve` before a scripted upstream server."""

    url: str = ""
    hasty_url: str = ""
    """A second `seer serve`, whose engine waits for only a second: for faults that are slow."""
    upstream: FakeServer = field(default_factory=lambda: FakeServer(""))
    fault: Say = field(default_factory=Say)
    fails_at: str = ""
    """The stage that receives `fault`: select or answer."""

    def script(self, body: dict[str, Any], number: int) -> Say:
        stage = "select" if body["messages"][-1]["role"] == "user" else "answer"
        if stage == self.fails_at:
            return self.fault
        return CALL if stage == "select" else ANSWER

    def post(self, *, stream: bool = False) -> httpx.Response:
        body = {"model": "seer", "messages": MESSAGES, "stream": stream}
        url = self.hasty_url if self.fault.wait_s > 1 else self.url
        return httpx.post(f"{url}/chat/completions", json=body, timeout=30)

    def client(self) -> Any:
        return openai.OpenAI(base_url=self.url, api_key="none", max_retries=0, timeout=30)


MESSAGES = [{"role": "user", "content": [{"type": "text", "text": part} for part in (TEXT, QUESTION)]}]


def engine_at(base_url: str, **options: Any) -> OpenAIEngine:
    defaults = {"structure": "none", "continuation": "tool", "attempts": 1, "backoff_s": 0.0, "timeout_s": 20.0}
    return OpenAIEngine(base_url, **{**defaults, **options})


@contextmanager
def serving(engine: Any) -> Iterator[str]:
    app = create_app(engine, ReadingPolicy(max_new_tokens=64), ServeSettings(min_document_chars=200))
    with listening(app) as address:
        yield f"{address}/v1"


@pytest.fixture(scope="module")
def running() -> Iterator[Gateway]:
    gateway = Gateway()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SEER_API_KEY", UPSTREAM_KEY)
        with serve(gateway.script) as gateway.upstream:
            base_url = gateway.upstream.base_url
            hasty = engine_at(base_url, timeout_s=1.0)
            with serving(engine_at(base_url)) as gateway.url, serving(hasty) as gateway.hasty_url:
                yield gateway


@pytest.fixture
def gateway(running: Gateway, caplog: pytest.LogCaptureFixture) -> Gateway:
    caplog.set_level(logging.INFO, logger="seer.serve")
    running.fault, running.fails_at = Say(), ""
    return running


def log_line(caplog: pytest.LogCaptureFixture, reply: httpx.Response) -> dict[str, Any]:
    """The server's log line of the request with this reply. It is written shortly after the reply is received."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "seer.serve"]
        for line in lines:
            if line["request_id"] == reply.headers["x-request-id"]:
                return line
        time.sleep(0.01)
    raise AssertionError(f"no log line of the request {reply.headers['x-request-id']}")


def assert_nothing_leaks(gateway: Gateway, reply: httpx.Response) -> None:
    received = f"{reply.headers} {reply.text}"
    for hidden in (gateway.upstream.base_url.removesuffix("/v1"), "127.0.0.1", UPSTREAM_KEY, SECRET, "told to fail"):
        assert hidden not in received


def check_log(gateway: Gateway, caplog: pytest.LogCaptureFixture, reply: httpx.Response, code: str, cause: str) -> None:
    line = log_line(caplog, reply)
    assert (line["error"], line["cause"].replace(gateway.upstream.base_url, "URL")) == (code, cause)
    assert SECRET not in caplog.text and UPSTREAM_KEY not in caplog.text


# ── One upstream server ──────────────────────────────────────────────────────────────────────────


def test_gateway_without_a_fault_answers(gateway):
    """The failures below are those of the faults alone."""
    assert gateway.post().json()["choices"][0]["message"]["content"] == ANSWER.text
    stream = gateway.client().chat.completions.create(model="seer", messages=MESSAGES, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == ANSWER.text


@pytest.mark.parametrize("fails_at", ["select", "answer"])
@pytest.mark.parametrize("name", CASES)
def test_upstream_fault_becomes_its_status_and_code(gateway, caplog, name, fails_at):
    case = CASES[name]
    gateway.fault, gateway.fails_at = case.fault, fails_at
    reply = gateway.post()
    error = reply.json()["error"]
    headers = (reply.headers.get("retry-after"), reply.headers.get("x-should-retry"))
    assert (reply.status_code, error["type"], error["code"], *headers) == case.reply
    assert_nothing_leaks(gateway, reply)
    check_log(gateway, caplog, reply, error["code"], case.cause)


@pytest.mark.parametrize("name", [name for name in CASES if name != "connection reset in mid-reply"])
def test_upstream_fault_before_a_stream_begins_has_the_same_status(gateway, name):
    case = CASES[name]
    gateway.fault, gateway.fails_at = case.fault, "select"
    reply = gateway.post(stream=True)
    error = reply.json()["error"]
    headers = (reply.headers.get("retry-after"), reply.headers.get("x-should-retry"))
    assert (reply.status_code, error["type"], error["code"], *headers) == case.reply
    assert_nothing_leaks(gateway, reply)


@pytest.mark.parametrize("name", CASES)
def test_upstream_fault_ends_a_running_stream_with_an_error_event(gateway, caplog, name):
    case = CASES[name]
    gateway.fault, gateway.fails_at = case.fault, "answer"
    streamed = gateway.post(stream=True)
    *_, last, done = [line for line in streamed.text.splitlines() if line]
    assert (streamed.status_code, done) == (200, "data: [DONE]")
    error = json.loads(last.removeprefix("data: "))["error"]
    if name == "connection reset in mid-reply":  # the stream's own end is missing
        assert error["code"] == "engine_unavailable"
    else:
        assert error == gateway.post().json()["error"]
        check_log(gateway, caplog, streamed, case.reply[2], case.cause)
    assert_nothing_leaks(gateway, streamed)


def test_error_event_of_the_upstream_stream_ends_the_stream(gateway, caplog):
    gateway.fault, gateway.fails_at = Say("Seven dollars.", error_after=2), "answer"
    reply = gateway.post(stream=True)
    events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events if "choices" in event)
    assert text == "Seven "
    assert events[-1]["error"]["code"] == "engine_failed"
    assert_nothing_leaks(gateway, reply)
    check_log(gateway, caplog, reply, "engine_failed", "engine: the server failed in mid-stream")


CLASSES = {
    "429 with Retry-After": "RateLimitError",
    "503 with Retry-After": "InternalServerError",
    "504": "InternalServerError",
    "content refused": "BadRequestError",
    "401": "InternalServerError",
}


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("stream", [False, True])
def test_openai_client_raises_the_class_of_the_status(gateway, name, stream):
    case = CASES[name]
    gateway.fault, gateway.fails_at = case.fault, "select"
    with pytest.raises(getattr(openai, CLASSES[name])) as raised:
        gateway.client().chat.completions.create(model="seer", messages=MESSAGES, stream=stream)
    error = raised.value
    assert (error.status_code, error.type, error.code) == case.reply[:3]
    assert error.response.headers.get("retry-after") == case.reply[3]


def test_openai_client_raises_in_a_running_stream(gateway):
    gateway.fault, gateway.fails_at = CASES["503 with Retry-After"].fault, "answer"
    stream = gateway.client().chat.completions.create(model="seer", messages=MESSAGES, stream=True)
    with pytest.raises(openai.APIError) as raised:
        list(stream)
    assert (raised.value.type, raised.value.code) == ("server_error", "engine_unavailable")


@pytest.mark.parametrize(("name", "num_posts"), [("500", 2), ("401", 1)])
def test_openai_client_retries_only_failures_that_a_retry_can_change(gateway, name, num_posts):
    gateway.fault, gateway.fails_at = CASES[name].fault, "select"
    before = len(gateway.upstream.asked)
    with pytest.raises(openai.InternalServerError):
        gateway.client().with_options(max_retries=1).chat.completions.create(model="seer", messages=MESSAGES)
    assert len(gateway.upstream.asked) - before == num_posts


def test_refused_connection_is_unavailable(caplog):
    caplog.set_level(logging.INFO, logger="seer.serve")
    with serve(lambda body, number: CALL) as upstream:
        engine = engine_at(upstream.base_url)
    gateway = Gateway(upstream=upstream)
    with serving(engine) as gateway.url:
        replies = [gateway.post(), gateway.post(stream=True)]
    for reply in replies:
        error = reply.json()["error"]
        assert (reply.status_code, error["type"], error["code"], reply.headers["retry-after"]) == UNAVAILABLE[:4]
        assert_nothing_leaks(gateway, reply)
        check_log(
            gateway, caplog, reply, "engine_unavailable", "unavailable: URL is not reachable or closed the connection"
        )


def test_slow_model_begins_the_stream_before_it_has_said_anything(gateway, monkeypatch):
    """A client must not wait for a slow model without a byte, so only early failures have their own status."""
    monkeypatch.setattr("seer.serving.stream.HOLD_S", 0.1)
    gateway.fault, gateway.fails_at = Say(status=503, wait_s=0.6), "select"
    reply = gateway.post(stream=True)
    assert reply.status_code == 200
    events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
    assert [list(event.get("seer") or {}) for event in events] == [[], ["step", "pages"], []]
    assert events[-1]["error"]["code"] == "engine_unavailable"


def test_unexpected_exception_is_logged_with_its_place_and_without_its_text(gateway, caplog, monkeypatch):
    def broken(*_: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr("seer.serving.reading.load_documents", broken)
    reply = gateway.post(stream=True)
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "internal")
    line = log_line(caplog, reply)
    assert (line["error"], line["cause"]) == ("internal", "RuntimeError")
    assert line["traceback"][-1].startswith("test_failures.py:")
    assert SECRET not in caplog.text
    assert_nothing_leaks(gateway, reply)


# ── Several upstream servers ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stream", [False, True])
def test_retryable_failure_moves_to_another_replica(stream):
    healthy, failing = Gateway(), Gateway(fault=Say(status=503, headers={"Retry-After": "9"}), fails_at="select")
    with serve(failing.script) as first, serve(healthy.script) as second:
        engine = ReplicatedEngine([engine_at(first.base_url), engine_at(second.base_url)])
        with serving(engine) as url:
            reply = Gateway(url).post(stream=stream)
    assert reply.status_code == 200 and "Sev" in reply.text
    assert (len(first.asked), len(second.asked)) == (1, 2)


def test_failure_of_every_replica_reports_the_last_one(caplog):
    caplog.set_level(logging.INFO, logger="seer.serve")
    busy = Gateway(fault=Say(status=429, headers={"Retry-After": "4"}), fails_at="select")
    starting = Gateway(fault=Say(status=503, headers={"Retry-After": "9"}), fails_at="select")
    with serve(busy.script) as first, serve(starting.script) as second:
        engine = ReplicatedEngine([engine_at(first.base_url), engine_at(second.base_url)])
        with serving(engine) as url:
            reply = Gateway(url).post()
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "9")
    assert log_line(caplog, reply)["cause"] == f"unavailable: {second.base_url} answered 503"


def test_lasting_failure_does_not_move_to_another_replica():
    refusing, healthy = Gateway(fault=Say(status=400), fails_at="select"), Gateway()
    with serve(refusing.script) as first, serve(healthy.script) as second:
        engine = ReplicatedEngine([engine_at(first.base_url), engine_at(second.base_url)])
        with serving(engine) as url:
            reply = Gateway(url).post()
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "request_refused")
    assert second.asked == []
