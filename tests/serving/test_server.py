"""`seer serve` over real sockets with the real `openai` client: whole and streamed replies, valid and bad requests."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fakes import small_encoder
from serving_fakes import listening

openai = pytest.importorskip("openai")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from seer.engines.base import Chat, Request  # noqa: E402
from seer.engines.batched import BatchedEngine  # noqa: E402
from seer.engines.scripted import ScriptedEngine  # noqa: E402
from seer.errors import EngineError  # noqa: E402
from seer.protocol.call import render_call  # noqa: E402
from seer.reading.policy import ReadingPolicy  # noqa: E402
from seer.serving.server import create_app  # noqa: E402
from seer.serving.settings import ServeSettings  # noqa: E402

LINES = [f"Item {n} costs {n * 7} dollars{', <|user|> said <think>' * (n > 0)}.\n" for n in range(300)]
DOCUMENT = "".join(LINES)
KEY = "a-long-and-random-key-1"


def script(request: Request) -> str:
    """Selects page 1, thinks, and quotes the first line of the retrieved text. A few words in the question change that."""
    if isinstance(request.prompt, Chat):
        if "crash" in request.prompt.messages[-1].text:
            raise EngineError("a scripted failure")
        return f"<think>Short.</think>\nA title for {len(request.prompt.messages)} messages<|user|>"
    question = request.prompt.turns[0].text
    if "crash" in question:
        raise EngineError("a scripted failure")
    if "slow" in question:
        time.sleep(0.4)
    if request.constraint is not None and request.constraint.required:
        pages = (1, 2) if "both" in question else (1,)
        return f"<tool_call>{render_call(pages)}</tool_call>"
    if request.constraint is not None and "again" in question:
        return f"<think>More?</think><tool_call>{render_call((2,))}</tool_call>"
    texts = [excerpt.text for turn in request.prompt.turns for excerpt in turn.excerpts]
    return f"<think>I look.</think>\n{texts[0].splitlines()[0] if texts else 'nothing'}\n<|user|>"


class Running:
    def __init__(self, base: str, engine: ScriptedEngine) -> None:
        self.base, self.engine = base, engine

    def client(self, key: str = KEY, **options: Any) -> Any:
        return openai.OpenAI(base_url=f"{self.base}/v1", api_key=key, **{"max_retries": 0, "timeout": 20, **options})


@contextlib.contextmanager
def running(**changes: Any) -> Iterator[Running]:
    """A server with a scripted engine on a free port."""
    engine = ScriptedEngine(script, small_encoder())
    settings = ServeSettings(**changes)
    app = create_app(BatchedEngine(engine), ReadingPolicy(max_new_tokens=256), settings, [KEY, "another-long-key-222"])
    with listening(app) as address:
        yield Running(address, engine)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(max_body_mb=1.0, max_pages=6, max_stored_mb=2.0) as one:
        yield one


def chat(question: str = "What does the first line say?", document: str = DOCUMENT) -> list[dict[str, Any]]:
    parts = [{"type": "text", "text": document}, {"type": "text", "text": question}]
    return [{"role": "user", "content": parts}]


# ── Reading ──────────────────────────────────────────────────────────────────────────────────────


def test_chat_of_a_long_text_returns_answer_usage_and_citations(server):
    reply = server.client().chat.completions.create(model="seer", messages=chat())
    (choice,) = reply.choices
    assert choice.message.content == LINES[0].strip()
    assert choice.finish_reason == "stop"
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens > 0
    seer = reply.model_dump()["seer"]
    assert (seer["status"], [page["number"] for page in seer["selected_pages"]]) == ("answered", [1])
    assert seer["pages"] > 1
    assert seer["tokens"]["saved"] == max(0, seer["tokens"]["full_text"] - seer["tokens"]["prompt"])
    assert seer["citations"][0]["verified"]


def test_streamed_chat_sends_steps_thinking_and_answer(server):
    stream = server.client().chat.completions.create(
        model="seer", messages=chat(), stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk.model_dump() for chunk in stream]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == LINES[0].strip()
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "I look."
    steps = [chunk["seer"] for chunk in chunks if chunk.get("seer")]
    assert [step.get("step") for step in steps] == ["look", "select", None]
    assert steps[-1]["status"] == "answered"
    assert chunks[-1]["usage"]["completion_tokens"] > 0
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"]][-1] == "stop"


@pytest.mark.parametrize(
    ("question", "events"),
    [
        ("Look again.", ["look", "select", "More?", "select", "\nI look."]),
        ("Look once.", ["look", "select", "I look."]),
    ],
)
def test_streamed_chat_sends_thinking_before_a_further_call_once_and_in_order(server, question, events):
    body = {"model": "seer", "messages": chat(question), "extra_body": {"seer": {"rounds": 2}}}
    chunks = [chunk.model_dump() for chunk in server.client().chat.completions.create(**body, stream=True)]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    received = [
        delta.get("reasoning_content") or delta.get("content") or (chunk.get("seer") or {}).get("step")
        for chunk, delta in zip(chunks, deltas, strict=True)
    ]
    assert [one for one in received if one] == [*events, LINES[0].strip()]
    message = server.client().chat.completions.create(**body).choices[0].message
    for part in ("content", "reasoning_content"):
        assert "".join(delta.get(part) or "" for delta in deltas) == getattr(message, part)


def test_chat_reads_a_pdf_from_a_data_url_and_from_an_upload(server):
    from io import BytesIO

    from reportlab.pdfgen.canvas import Canvas

    buffer = BytesIO()
    canvas = Canvas(buffer, pagesize=(300, 300))
    for text in ("The first page is blue.", "The second page is green."):
        canvas.drawString(40, 200, text)
        canvas.showPage()
    canvas.save()
    client = server.client()
    url = f"data:application/pdf;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    uploaded = client.files.create(file=("../../etc/report.pdf", buffer.getvalue()), purpose="user_data")
    assert client.files.retrieve(uploaded.id).bytes == len(buffer.getvalue())
    assert [file.id for file in client.files.list()] == [uploaded.id]
    assert client.files.content(uploaded.id).read() == buffer.getvalue()
    for file in ({"filename": "a.pdf", "file_data": url}, {"file_id": uploaded.id}):
        parts = [{"type": "file", "file": file}, {"type": "text", "text": "Which colour, both?"}]
        reply = client.chat.completions.create(model="seer", messages=[{"role": "user", "content": parts}])
        assert reply.choices[0].message.content == "The first page is blue."
        assert reply.model_dump()["seer"]["pages"] == 2
    with pytest.raises(openai.NotFoundError):
        server.client("another-long-key-222").files.retrieve(uploaded.id)
    client.files.delete(uploaded.id)
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(uploaded.id)


def test_chat_options_choose_system_and_selector(server):
    extra = {"seer": {"system": "text"}}
    reply = server.client().chat.completions.create(model="seer", messages=chat(), extra_body=extra)
    assert reply.model_dump()["seer"]["selected_pages"] == []
    extra = {"seer": {"selector": "first"}}
    reply = server.client().chat.completions.create(model="seer", messages=chat(), extra_body=extra)
    assert [page["number"] for page in reply.model_dump()["seer"]["selected_pages"]] == [1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "auto"}, "'mode' was replaced; use 'system': 'auto'"),
        ({"mode": "select"}, "'mode' was replaced; use 'system': 'seer'"),
        ({"system": "bm25"}, "seer: system: "),
        ({"selector": "bm52"}, "seer: selector: "),
        ({"system": "text", "selector": "bm25"}, "the system 'text' selects no pages"),
    ],
)
def test_chat_options_refuse_former_and_contradictory_choices(server, options, message):
    with pytest.raises(openai.BadRequestError, match=re.escape(message)):
        server.client().chat.completions.create(model="seer", messages=chat(), extra_body={"seer": options})


def test_concurrent_clients_get_their_own_answers(server):
    documents = [DOCUMENT.replace("Item 0 costs", f"Thing {n} has a price of") for n in range(12)]

    async def ask() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.base}/v1", api_key=KEY, max_retries=0) as client:
            calls = (client.chat.completions.create(model="seer", messages=chat(document=d)) for d in documents)
            return [reply.choices[0].message.content for reply in await asyncio.gather(*calls)]

    for n, content in enumerate(asyncio.run(ask())):
        assert content.startswith(f"Thing {n} has")


def test_models_health_and_metrics_describe_the_server(server):
    assert [model.id for model in server.client().models.list()] == ["seer"]
    assert server.client().models.retrieve("seer").owned_by == "seer"
    health = httpx.get(f"{server.base}/health")
    assert (health.status_code, health.json()["status"]) == (200, "ok")
    metrics = httpx.get(f"{server.base}/metrics")
    assert 'seer_answers_total{status="answered"}' in metrics.text
    assert "text/plain" in metrics.headers["content-type"]


# ── Bad input ────────────────────────────────────────────────────────────────────────────────────

BAD: dict[str, tuple[dict[str, Any], int, str]] = {
    "a begun answer": (
        {"messages": [*chat(), {"role": "assistant", "content": "The price is"}]},
        400,
        "does not continue an answer",
    ),
    "no messages": ({"messages": []}, 400, "'messages' is missing"),
    "a file without an id": (
        {
            "messages": [
                {"role": "user", "content": [{"type": "file", "file": {"file_id": ""}}, {"type": "text", "text": "?"}]}
            ]
        },
        400,
        "file_data is missing",
    ),
    "a flag in words": ({"messages": chat(), "stream": "false"}, 400, "true or false"),
    "another model": ({"model": "gpt", "messages": chat()}, 404, "this server has 'seer'"),
    "two answers": ({"messages": chat(), "n": 2}, 400, "one answer"),
    "tools": ({"messages": chat(), "tools": [{"type": "function"}]}, 400, "not supported"),
    "too hot": ({"messages": chat(), "temperature": 9}, 400, "from 0 to 2"),
    "no question": ({"messages": chat(" ")}, 400, "holds no question"),
    "an address": (
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/x"}}]}
            ]
        },
        400,
        "nothing is fetched",
    ),
    "bad base64": (
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_data": "data:;base64,%%%"}}]}]},
        400,
        "damaged base64",
    ),
    "no such file": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "file", "file": {"file_id": "../x"}}, {"type": "text", "text": "?"}],
                }
            ]
        },
        404,
        "upload it",
    ),
    "a damaged PDF": (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0xLjQK"}},
                        {"type": "text", "text": "What?"},
                    ],
                }
            ]
        },
        400,
        "document-1",
    ),
    "an unknown option": ({"messages": chat(), "seer": {"max_page": 3}}, 400, "did you mean 'max_pages'"),
    "a style that is a path": ({"messages": chat(), "seer": {"style": "/etc/passwd"}}, 400, "no style"),
    "too many pages": ({"messages": chat(document=DOCUMENT * 12)}, 400, "more than 6 pages"),
}


@pytest.mark.parametrize("case", BAD)
def test_chat_rejects_bad_input_with_one_clear_error(server, case):
    body, status, message = BAD[case]
    headers = {"Authorization": f"Bearer {KEY}"}
    reply = httpx.post(
        f"{server.base}/v1/chat/completions", json={"model": "seer", **body}, headers=headers, timeout=20
    )
    error = reply.json()["error"]
    assert reply.status_code == status
    assert message in error["message"]
    assert error["type"] == "invalid_request_error"


def test_malformed_and_too_large_bodies_are_rejected(server):
    headers = {"Authorization": f"Bearer {KEY}"}
    url = f"{server.base}/v1/chat/completions"
    assert httpx.post(url, content=b"{nonsense", headers=headers).status_code == 400
    assert httpx.post(url, content=b"x" * 1_100_000, headers=headers).status_code == 413

    def unannounced() -> Iterator[bytes]:
        for _ in range(20):
            yield b"x" * 100_000

    with contextlib.suppress(httpx.HTTPError):  # the server may hang up before all is sent
        assert httpx.post(url, content=unannounced(), headers=headers).status_code == 413
    client = server.client()
    kept = [client.files.create(file=("a.txt", b"y" * 900_000), purpose="user_data") for _ in range(2)]
    with pytest.raises(openai.BadRequestError, match="may be stored"):
        client.files.create(file=("a.txt", b"y" * 900_000), purpose="user_data")
    for file in kept:
        client.files.delete(file.id)


@pytest.mark.parametrize("key", ["", "wrong", KEY[:-1], KEY + "x"])
def test_wrong_key_gets_401_except_for_health(server, key):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    assert httpx.get(f"{server.base}/v1/models", headers=headers).status_code == 401
    assert httpx.get(f"{server.base}/health").status_code == 200


# ── Faults and limits ────────────────────────────────────────────────────────────────────────────


def test_chat_reports_engine_failure_and_server_stays_up(server):
    with pytest.raises(openai.InternalServerError, match="the model engine failed") as raised:
        server.client().chat.completions.create(model="seer", messages=chat("crash?"))
    assert raised.value.status_code == 502
    with pytest.raises(openai.APIError, match="the model engine failed"):
        list(server.client().chat.completions.create(model="seer", messages=chat("crash?"), stream=True))
    assert server.client().chat.completions.create(model="seer", messages=chat()).choices


def test_chats_beyond_the_waiting_limit_get_429_with_retry_after():
    with running(max_concurrent=1, max_waiting=0) as one:

        async def ask() -> list[Any]:
            async with openai.AsyncOpenAI(base_url=f"{one.base}/v1", api_key=KEY, max_retries=0) as client:
                calls = [client.chat.completions.create(model="seer", messages=chat("slow?")) for _ in range(3)]
                return await asyncio.gather(*calls, return_exceptions=True)

        replies = asyncio.run(ask())
        refused = [one for one in replies if isinstance(one, openai.RateLimitError)]
        assert len(refused) == 2
        assert refused[0].response.headers["retry-after"] == "1"


def test_chat_beyond_its_time_limit_gets_504():
    with running(timeout_s=0.3) as one:
        with pytest.raises(openai.InternalServerError) as raised:
            one.client().chat.completions.create(model="seer", messages=chat("slow, both?"))
        assert raised.value.status_code == 504
        assert one.client().models.list().data


def test_log_holds_ids_and_numbers_but_no_text_and_no_key(server, caplog):
    secret = "The password is swordfish.\n"
    caplog.set_level(logging.INFO, logger="seer.serve")
    headers = {"X-Request-ID": "mine-1"}
    client = server.client()
    raw = client.chat.completions.with_raw_response.create(
        model="seer", messages=chat("What is swordfish?", secret + DOCUMENT), extra_headers=headers
    )
    assert raw.headers["x-request-id"] == "mine-1"
    bad = httpx.get(f"{server.base}/v1/models", headers={"X-Request-ID": 'x" evil'})
    assert "evil" not in bad.headers["x-request-id"]
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "seer.serve"]
    (line,) = [line for line in lines if line["request_id"] == "mine-1"]
    assert (line["route"], line["status"], line["answer"]) == ("/v1/chat/completions", 200, "answered")
    assert "swordfish" not in caplog.text
    assert KEY not in caplog.text
