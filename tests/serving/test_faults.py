"""`seer serve` when clients disconnect, faults occur and it shuts down: nothing keeps running and nothing fills up."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from seer.engines.base import Request
from seer.errors import InputError
from seer.schema import Turn
from seer.serving.files import BLOCK_BYTES, FileStore
from tests.serving.test_server import KEY, LINES, Running, chat, running, script

HEADERS = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture
def one() -> Iterator[Running]:
    with running(drain_s=20, max_concurrent=1) as server:
        yield server


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def chats_under_way(server: Running) -> int:
    return int(httpx.get(f"{server.base}/health").json()["chats_under_way"])


def ask_and_leave(server: Running, question: str, stream: bool) -> None:
    body = {"model": "seer", "messages": chat(question), "stream": stream}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.base}/v1/chat/completions", json=body, headers=HEADERS, timeout=0.2)


@pytest.mark.parametrize("stream", [False, True])
def test_disconnected_client_leaves_nothing_running(one, stream):
    ask_and_leave(one, "slow?", stream)
    wait_until(lambda: not chats_under_way(one))
    assert one.client().models.list().data


@pytest.mark.parametrize("stream", [False, True])
def test_client_that_disconnects_while_waiting_frees_its_place(one, stream):
    resume = threading.Event()

    def held(request: Request) -> str:
        resume.wait(20)
        return script(request)

    one.engine.script = held
    first = threading.Thread(target=lambda: one.client().chat.completions.create(model="seer", messages=chat()))
    first.start()
    wait_until(lambda: chats_under_way(one) == 1)
    ask_and_leave(one, "And me?", stream)
    wait_until(lambda: chats_under_way(one) == 1)  # while the first is still being read
    resume.set()
    first.join(timeout=20)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/files"])
def test_client_that_disconnects_while_sending_counts_as_499(one, path):
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 500\r\n"
    kind = "Content-Type: multipart/form-data; boundary=y\r\n\r\n--y\r\n"
    with socket.create_connection(("127.0.0.1", int(one.base.rpartition(":")[2]))) as connection:
        connection.sendall(f"{head}{kind}".encode())
    counted = f'route="{path}",status="499"'
    wait_until(lambda: counted in httpx.get(f"{one.base}/metrics").text)


def test_unexpected_exception_becomes_500_without_its_text(one, monkeypatch):
    def broken(*_: object) -> None:
        raise RuntimeError("in the document it says swordfish")

    monkeypatch.setattr("seer.serving.reading.load_documents", broken)
    body = {"model": "seer", "messages": chat()}
    reply = httpx.post(f"{one.base}/v1/chat/completions", json=body, headers=HEADERS)
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "internal")
    assert "swordfish" not in json.dumps(reply.json())
    assert one.client().models.list().data


def test_counting_a_long_document_does_not_block_other_requests(one, monkeypatch):
    counting, resume = threading.Event(), threading.Event()

    def counted(*_: object) -> Turn:
        counting.set()
        resume.wait(20)
        return Turn(kind="prompt", text="all of it")

    monkeypatch.setattr("seer.reading.state.ReadingState.full_text_prompt", counted)
    asking = threading.Thread(target=lambda: one.client().chat.completions.create(model="seer", messages=chat()))
    asking.start()
    assert counting.wait(20)
    assert chats_under_way(one) == 1
    ask_and_leave(one, "And me?", stream=False)
    resume.set()
    asking.join(timeout=20)
    wait_until(lambda: not chats_under_way(one))


def test_file_store_counts_a_block_for_each_tiny_file():
    store = FileStore(max_bytes=2 * BLOCK_BYTES, ttl_s=60)
    try:
        for _ in range(2):
            store.add("a.txt", b"x", "", "")
        with pytest.raises(InputError, match="may be stored"):
            store.add("a.txt", b"x", "", "")
    finally:
        store.close()


def test_shutdown_finishes_running_requests():
    answers: list[str] = []
    with running(drain_s=20) as one:

        def ask() -> None:
            reply = one.client().chat.completions.create(model="seer", messages=chat("slow?"))
            answers.append(reply.choices[0].message.content)

        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(lambda: chats_under_way(one) == 1)
    asking.join(timeout=20)
    assert answers == [LINES[0].strip()]
