"""Chats without a document, web pages as clients, and what a reply says about its document."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import httpx
import pytest

openai = pytest.importorskip("openai")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from tests.serving.test_server import KEY, Running, chat, running  # noqa: E402


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as found:
        yield found


@pytest.mark.parametrize("stream", [False, True])
def test_chat_without_a_document_is_answered_by_the_model_alone(server, stream):
    messages = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": "Write a title of at most five words for this chat."},
    ]
    reply = server.client().chat.completions.create(model="seer", messages=messages, stream=stream)
    if stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in reply if chunk.choices)
        assert text == "A title for 4 messages"
        return
    assert reply.choices[0].message.content == "A title for 4 messages"
    assert reply.choices[0].message.reasoning_content == "Short."
    assert reply.seer["pages"] == 0 and reply.usage.completion_tokens > 0


def test_chat_without_a_document_reports_a_failure_of_the_engine(server):
    with pytest.raises(openai.InternalServerError, match="engine"):
        server.client().chat.completions.create(model="seer", messages=[{"role": "user", "content": "crash"}])


def test_server_that_does_not_talk_refuses_a_chat_without_a_document():
    with running(talks=False) as server, pytest.raises(openai.BadRequestError, match="holds no document"):
        server.client().chat.completions.create(model="seer", messages=[{"role": "user", "content": "hello"}])


PREFLIGHT = {
    "Origin": "http://localhost:3000",
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}


@pytest.mark.parametrize("origins", [("http://localhost:3000",), ("*",)])
def test_preflight_of_an_allowed_page_needs_no_key(origins):
    with running(allow_origins=origins) as server:
        reply = httpx.options(f"{server.base}/v1/chat/completions", headers=PREFLIGHT)
        assert reply.status_code == 200
        assert reply.headers["access-control-allow-origin"] in (origins[0], "http://localhost:3000")
        assert "authorization" in reply.headers["access-control-allow-headers"].lower()
        body = {"model": "seer", "messages": chat()}
        headers = {"Authorization": f"Bearer {KEY}", "Origin": "http://localhost:3000"}
        answer = httpx.post(f"{server.base}/v1/chat/completions", json=body, headers=headers, timeout=20)
        assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] in origins
        refused = httpx.post(
            f"{server.base}/v1/chat/completions", json=body, headers={"Origin": "http://localhost:3000"}
        )
        # A page can only read an error whose reply it may see.
        assert refused.status_code == 401 and refused.headers["access-control-allow-origin"] in origins


def test_preflight_of_another_page_is_refused():
    with running(allow_origins=("http://localhost:3000",)) as server:
        reply = httpx.options(f"{server.base}/v1/chat/completions", headers=PREFLIGHT | {"Origin": "http://evil.test"})
    assert reply.status_code == 400 and "access-control-allow-origin" not in reply.headers


def test_server_without_allowed_pages_sends_no_cors_headers(server):
    reply = httpx.get(
        f"{server.base}/v1/models", headers={"Authorization": f"Bearer {KEY}", "Origin": "http://localhost:3000"}
    )
    assert reply.status_code == 200 and "access-control-allow-origin" not in reply.headers


def test_reply_lists_the_warnings_of_the_document(server):
    html = "<p>Item 1 costs 7 dollars.</p><p hidden>Item 2 costs 0 dollars.</p>" * 3
    url = "data:text/html;base64," + base64.b64encode(html.encode()).decode()
    parts = [{"type": "file", "file": {"filename": "a.html", "file_data": url}}, {"type": "text", "text": "What?"}]
    reply = server.client().chat.completions.create(model="seer", messages=[{"role": "user", "content": parts}])
    assert any(warning["kind"] == "hidden-text" for warning in reply.seer["warnings"])


def test_chat_names_the_encoding_of_its_files(server):
    data = "Der Preis beträgt 7 Kronen für jedes Stück.\n".encode("cp1252")
    url = "data:text/plain;base64," + base64.b64encode(data).decode()
    parts = [{"type": "file", "file": {"filename": "a.txt", "file_data": url}}, {"type": "text", "text": "Was?"}]
    messages = [{"role": "user", "content": parts}]
    reply = server.client().chat.completions.create(
        model="seer", messages=messages, extra_body={"seer": {"encoding": "windows-1252"}}
    )
    assert "beträgt" in reply.choices[0].message.content
