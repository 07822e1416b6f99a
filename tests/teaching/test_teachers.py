"""Teachers over real HTTP: retries only where they help, bounded concurrency, the ledger, the budget."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from fixtures.data.teacher_server import Say, TeacherServer, serve
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.teaching import teachers
from seer.teaching.ledger import Budget, BudgetReached, Ledger, Reply
from seer.teaching.settings import TeacherSpec
from seer.teaching.teachers import (
    Call,
    HttpTransport,
    TeacherError,
    open_teacher,
    read_response,
    request_body,
)

MESSAGES = [{"role": "user", "content": "Is it?"}]


def spec_for(server: TeacherServer, **changes: Any) -> TeacherSpec:
    values = {"base_url": server.base_url, "model": "m", "attempts": 4, "backoff_s": 0.0, "timeout_s": 5.0}
    return TeacherSpec.model_validate({**values, **changes})


def ask_all(
    path: Path, spec: TeacherSpec, messages: list[Any], budget: Budget | None = None, draw: int = 0
) -> tuple[list[Any], Ledger]:
    async def run() -> tuple[list[Any], Ledger]:
        with Ledger(path) as ledger:
            async with open_teacher(spec, ledger, budget or Budget(), role="judge") as teacher:
                calls = (teacher.ask(message, draw=draw) for message in messages)
                return list(await asyncio.gather(*calls, return_exceptions=True)), ledger

    return asyncio.run(run())


def several(count: int) -> list[Any]:
    return [[{"role": "user", "content": f"Is it {n}?"}] for n in range(count)]


@pytest.mark.parametrize(
    "fault",
    [
        Say(status=429, headers={"Retry-After": "0"}),
        Say(status=500),
        Say(status=503),
        Say(raw=b"<html>Welcome to the proxy</html>"),
        Say(raw=b""),
        Say(raw=b'{"choices": []}'),
        Say(raw=b'{"error": "overloaded"}'),
        Say(hang_up=True),
    ],
)
def test_what_may_pass_is_tried_again(tmp_path: Path, fault: Say) -> None:
    with serve(lambda body, n: fault if n < 2 else Say("YES")) as server:
        (reply,), ledger = ask_all(tmp_path / "l", spec_for(server), [MESSAGES])
    assert reply.text == "YES"
    assert len(server.asked) == 3
    assert ledger.spent.calls == 1


def test_what_is_being_asked_already_is_not_asked_beside_it(tmp_path: Path) -> None:
    """Two pages of the same words: one call, and one reply, which a second run reads out of the ledger too."""
    with serve(lambda body, n: Say("YES" if n == 0 else "NO", delay_s=0.1)) as server:
        replies, ledger = ask_all(tmp_path / "l", spec_for(server), [MESSAGES] * 3)
        again, _ = ask_all(tmp_path / "l", spec_for(server), [MESSAGES] * 3)
    assert [reply.text for reply in (*replies, *again)] == ["YES"] * 6
    assert (len(server.asked), ledger.spent.calls) == (1, 1)


def test_where_the_first_asking_fails_the_next_one_asks(tmp_path: Path) -> None:
    with serve(lambda body, n: Say(status=503, delay_s=0.1) if n == 0 else Say("YES")) as server:
        (error, *others), _ = ask_all(tmp_path / "l", spec_for(server, attempts=1), [MESSAGES] * 3)
    assert isinstance(error, TeacherError)
    assert [reply.text for reply in others] == ["YES", "YES"]
    assert len(server.asked) == 2


def test_after_the_last_try_the_failure_is_raised_and_not_written_down(tmp_path: Path) -> None:
    with serve(lambda body, n: Say(status=503)) as server:
        (error,), ledger = ask_all(tmp_path / "l", spec_for(server), [MESSAGES])
        assert isinstance(error, TeacherError)
        assert error.retryable
        assert len(server.asked) == 4
        assert len(ledger) == 0


def test_a_slow_reply_is_a_timeout(tmp_path: Path) -> None:
    with serve(lambda body, n: Say("YES", delay_s=2.0 if n == 0 else 0.0)) as server:
        (reply,), _ = ask_all(tmp_path / "l", spec_for(server, timeout_s=0.3), [MESSAGES])
    assert reply.text == "YES"


def test_nobody_listening_is_retried_then_raised(tmp_path: Path) -> None:
    spec = TeacherSpec(base_url="http://127.0.0.1:9/v1", model="m", attempts=2, backoff_s=0.0)
    (error,), _ = ask_all(tmp_path / "l", spec, [MESSAGES])
    assert isinstance(error, TeacherError)
    assert error.retryable


def test_a_refused_request_is_written_down_and_not_sent_again(tmp_path: Path) -> None:
    with serve(lambda body, n: Say(status=400, raw=b"no such parameter")) as server:
        for _ in range(2):
            (reply,), _ = ask_all(tmp_path / "l", spec_for(server), [MESSAGES])
            assert reply.error == "400: no such parameter"
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_address_is_fatal(tmp_path: Path, status: int) -> None:
    with serve(lambda body, n: Say(status=status)) as server:
        (error,), _ = ask_all(tmp_path / "l", spec_for(server), [MESSAGES])
    assert isinstance(error, TeacherError)
    assert error.fatal
    assert len(server.asked) == 1


def test_a_finished_call_is_never_made_again(tmp_path: Path) -> None:
    with serve(lambda body, n: Say(f"reply {n}")) as server:
        first, ledger = ask_all(tmp_path / "l", spec_for(server), several(5))
        again, reopened = ask_all(tmp_path / "l", spec_for(server), several(7))
    assert again[:5] == first
    assert len(server.asked) == 7
    assert (ledger.spent.calls, reopened.spent.calls) == (5, 7)
    assert reopened.spent.tokens > ledger.spent.tokens > 0


def test_another_draw_is_another_call(tmp_path: Path) -> None:
    with serve(lambda body, n: Say(str(body["seed"]))) as server:
        (first,), _ = ask_all(tmp_path / "l", spec_for(server), [MESSAGES])
        (second,), _ = ask_all(tmp_path / "l", spec_for(server), [MESSAGES], draw=1)
    assert (first.text, second.text) == ("0", "1")


def test_concurrency_is_bounded_and_used(tmp_path: Path) -> None:
    with serve(lambda body, n: Say("YES", delay_s=0.05)) as server:
        replies, _ = ask_all(tmp_path / "l", spec_for(server, concurrency=4), several(24))
    assert all(reply.text == "YES" for reply in replies)
    assert server.most_at_once == 4


def test_the_budget_of_calls_is_exact(tmp_path: Path) -> None:
    with serve(lambda body, n: Say("YES", delay_s=0.02)) as server:
        replies, _ = ask_all(tmp_path / "l", spec_for(server), several(20), Budget(max_calls=7))
        assert sum(isinstance(reply, BudgetReached) for reply in replies) == 13
        assert len(server.asked) == 7
        # spending counts over runs: nothing more is allowed, what is known still answers
        again, _ = ask_all(tmp_path / "l", spec_for(server), several(20), Budget(max_calls=7))
        assert sum(isinstance(reply, Reply) for reply in again) == 7
        assert len(server.asked) == 7


def test_budgets_of_tokens_and_money_stop_too(tmp_path: Path) -> None:
    with serve(lambda body, n: Say("YES " * 100)) as server:
        spec = spec_for(server, concurrency=1, usd_per_million_completion_tokens=1e6)
        replies, ledger = ask_all(tmp_path / "a", spec, several(10), Budget(max_usd=150))
        assert ledger.spent.usd == pytest.approx(202)
        assert "of $150.00" in str(next(reply for reply in replies if isinstance(reply, BudgetReached)))
        _, ledger = ask_all(tmp_path / "b", spec, several(10), Budget(max_tokens=250))
        assert 250 <= ledger.spent.tokens < 400


def test_reasoning_sent_apart_and_content_in_parts_are_read() -> None:
    message = {
        "content": [{"type": "text", "text": "Answer: "}, {"type": "text", "text": "two"}],
        "reasoning_content": "So.",
    }
    data = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}], "usage": None}).encode()
    reply = read_response(200, {}, data)
    assert (reply.text, reply.think, reply.finish) == ("Answer: two", "So.", "stop")


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(200, 599))
def test_any_response_is_a_reply_or_a_teacher_error(data: bytes, status: int) -> None:
    with contextlib.suppress(TeacherError):
        assert isinstance(read_response(status, {"Retry-After": "soon"}, data), Reply)


def test_the_body_holds_the_sampling_and_the_key_leaves_out_the_address() -> None:
    spec = TeacherSpec(base_url="http://a/v1", model="m", temperature=0.7, top_p=0.8, top_k=20, extra={"x": 1})
    body = request_body(spec, MESSAGES, 3)
    assert (body["temperature"], body["top_p"], body["top_k"], body["seed"], body["x"]) == (0.7, 0.8, 20, 3, 1)
    other = spec.model_copy(update={"base_url": "http://b/v1"})
    assert Call.of(request_body(other, MESSAGES, 3)).key == Call.of(body).key
    warmer = spec.model_copy(update={"temperature": 0.8})
    assert Call.of(request_body(warmer, MESSAGES, 3)).key != Call.of(body).key


def test_the_key_is_sent_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MADE_UP_KEY", "abc")
    with serve(lambda body, n: Say("YES")) as server:
        ask_all(tmp_path / "l", spec_for(server, api_key_env="MADE_UP_KEY"), [MESSAGES])
    assert server.authorizations == ["Bearer abc"]
    assert "abc" not in (tmp_path / "l").read_text()


def send_once(spec: TeacherSpec) -> Reply:
    async def run() -> Reply:
        transport = HttpTransport(spec)
        try:
            return await transport.send_once(Call.of(request_body(spec, MESSAGES, 0)))
        finally:
            await transport.close()

    return asyncio.run(run())


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serve(lambda body, n: Say("YES")) as server:
        assert send_once(spec_for(server)).text == "YES"


def test_a_server_may_ask_for_time() -> None:
    busy = Say(status=429, headers={"Retry-After": "7"})
    with serve(lambda body, n: busy) as server, pytest.raises(TeacherError, match="429") as raised:
        send_once(spec_for(server))
    assert (raised.value.retryable, raised.value.wait_s) == (True, 7.0)


def test_a_reply_without_end_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teachers, "MAX_REPLY_BYTES", 1 << 20)
    endless = Say("x" * (2 << 20))
    with serve(lambda body, n: endless) as server, pytest.raises(TeacherError, match="more than 1 MiB") as raised:
        send_once(spec_for(server))
    assert not raised.value.retryable


@pytest.mark.parametrize("address", ["", "nonsense", "/v1", "localhost:8000/v1", "http://127.0.0.1:99999/v1"])
def test_what_is_no_address_is_fatal(address: str) -> None:
    with pytest.raises(TeacherError, match="is no address") as raised:
        send_once(TeacherSpec(base_url=address, model="m"))
    assert raised.value.fatal


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "end of file before message length reached"),
        (b"SSH-2.0-OpenSSH\r\n", "invalid HTTP version"),
        (b"", "connection"),
    ],
)
def test_a_server_that_goes_in_the_middle_may_come_back(sent: bytes, told: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(sent)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(TeacherError, match=told) as raised:
            send_once(TeacherSpec(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1", model="m"))
        thread.join()
    assert raised.value.retryable


# ── The ledger ───────────────────────────────────────────────────────────────────────────────────


def keys(count: int) -> list[str]:
    return [f"{n:032x}" for n in range(count)]


@settings(deadline=None)
@given(cut=st.integers(0, 400))
def test_a_torn_last_line_is_dropped_and_the_rest_stands(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    with Ledger(path) as ledger:
        for key in keys(4):
            ledger.put(key, Reply(text=f"text {key}", prompt_tokens=1), model="m", role="judge")
    data = path.read_bytes()
    kept = data[: max(0, len(data) - cut)]
    path.write_bytes(kept)
    whole = kept.count(b"\n")
    with Ledger(path) as ledger:
        assert len(ledger) == whole == ledger.spent.calls
        ledger.put("f" * 32, Reply(text="new"), model="m", role="judge")
    with Ledger(path) as ledger:
        assert len(ledger) == whole + 1
        reply = ledger.get("f" * 32)
        assert reply is not None
        assert reply.text == "new"
        assert ledger.get("e" * 32) is None


def test_a_damaged_line_costs_one_call_not_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        for key in keys(3):
            ledger.put(key, Reply(text=key), model="m", role="judge")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b'{"broken": \n' + lines[2])
    with Ledger(path) as ledger:
        assert [ledger.get(key) is not None for key in keys(3)] == [True, False, True]


def test_a_second_build_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l"):
        with pytest.raises(InputError, match="another process"):
            Ledger(tmp_path / "l")
        with Ledger(tmp_path / "l", shared=True) as worker:
            worker.put("a" * 32, Reply(text="x"), model="m", role="judge")
    with Ledger(tmp_path / "l") as ledger:
        assert len(ledger) == 1


def test_workers_append_to_one_ledger_without_mixing_lines(tmp_path: Path) -> None:
    workers = [Ledger(tmp_path / "l", shared=True) for _ in range(3)]
    for n in range(60):
        workers[n % 3].put(f"{n:032x}", Reply(text=f"text {n} " * n), model="m", role="judge")
    for n in range(60):
        reply = workers[n % 3].get(f"{n:032x}")
        assert reply is not None
        assert reply.text == f"text {n} " * n
    for worker in workers:
        worker.close()
    with Ledger(tmp_path / "l") as ledger:
        assert len(ledger) == 60
