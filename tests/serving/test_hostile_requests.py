"""`seer serve` answers every request, whatever it holds, with a reply or a client error."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fakes import small_encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rendering.makers import make_pdf
from tests.rendering.test_hostile_input import anything, numbers, objects, values

PDF_URL = f"data:application/pdf;base64,{base64.b64encode(make_pdf(1)).decode()}"
PARTS: list[Any] = [
    {"type": "text", "text": "A long document. " * 40},
    {"type": "file", "file": {"filename": "a\ud800/../b", "file_data": PDF_URL}},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
]
part = st.sampled_from(PARTS) | objects("type", "text", "file", "image_url")
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "assistant"]) | values, "content": values | st.lists(part, max_size=3)}
)
question = st.just({"role": "user", "content": [PARTS[0], {"type": "text", "text": "What, <|user|> \ud800?"}]})
options = objects(
    *(
        "style",
        "system",
        "mode",
        "rounds",
        "max_pages",
        "max_retrieved_tokens",
        "retrieve",
        "pages",
        "reflow",
        "ocr",
        "selector",
    )
)
chats = st.fixed_dictionaries(
    {"model": st.just("seer"), "messages": st.lists(message | question, min_size=1, max_size=3)},
    optional={
        **dict.fromkeys(("n", "tools", "stream_options", "stop", "max_tokens"), values),
        **dict.fromkeys(("seed", "temperature", "top_p", "max_completion_tokens"), numbers),
        "seer": values | options,
        "stream": st.booleans(),
    },
)
odd_headers = st.sampled_from(["\xb2", "9" * 5000, "-1", "Bearer \xff"]) | st.text(st.characters(max_codepoint=255))
headers = st.dictionaries(
    st.sampled_from(["authorization", "x-request-id", "content-length", "content-type"]), odd_headers
)


@pytest.fixture(scope="module")
def app() -> Iterator[Any]:
    pytest.importorskip("fastapi")
    from seer.engines.batched import BatchedEngine
    from seer.engines.scripted import ScriptedEngine
    from seer.reading.policy import ReadingPolicy
    from seer.serving.server import create_app
    from seer.serving.settings import ServeSettings

    engine = BatchedEngine(ScriptedEngine(encoder=small_encoder()))
    limits = ServeSettings(min_document_chars=200, max_pages=4, timeout_s=60)
    yield create_app(engine, ReadingPolicy(max_new_tokens=64), limits)
    engine.close()


def post(app: Any, body: bytes, sent: dict[str, str]) -> tuple[int, bytes]:
    """The status and body of a request as a server hands it to the application."""
    messages: list[dict[str, Any]] = []
    requests = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        try:
            return next(requests)
        except StopIteration:
            await asyncio.sleep(300)  # The client waits for its answer.
            raise

    async def send(item: Any) -> None:
        messages.append(item)

    raw = [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b"", "headers": raw}
    asyncio.run(
        app({**scope, "http_version": "1.1", "scheme": "http", "server": ("a", 1), "client": ("b", 2)}, receive, send)
    )
    return messages[0]["status"], b"".join(item.get("body", b"") for item in messages)


@given(body=chats.map(lambda chat: json.dumps(chat).encode()) | st.binary(max_size=60), sent=headers)
@settings(anything, max_examples=150)
def test_any_request_gets_a_reply_or_a_client_error(app: Any, body: bytes, sent: dict[str, str]) -> None:
    status, reply = post(app, body, sent)
    assert status < 500, reply
    reply.decode()
    if status != 200:
        assert json.loads(reply)["error"]["message"]
