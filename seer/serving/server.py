"""An OpenAI-compatible server that reads documents; every client of chat completions can use it.

app = create_app(engine, ReadingPolicy(), ServeSettings(), keys=("...",))

POST /v1/chat/completions     documents and a question in, an answer out, streamed on request
GET  /v1/models               the one model of this server
POST, GET, DELETE /v1/files   documents that later chats name by id
GET  /health, /metrics        open to everyone: numbers only
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from seer.errors import DocumentNotFound, SeerError
from seer.reading.policy import ReadingPolicy
from seer.schema import Answer, Document
from seer.serving import reply
from seer.serving.chat import ChatRequest, read_chat
from seer.serving.errors import (
    BadRequest,
    ClientGone,
    ModelUnknown,
    ReadingFailed,
    error_headers,
    error_response,
    log_fields,
)
from seer.serving.files import FileStore, StoredFile
from seer.serving.guard import Guard, Keys
from seer.serving.metrics import ServerMetrics
from seer.serving.reading import ReadingDesk, ServedEngine
from seer.serving.settings import ServeSettings, check_served
from seer.serving.stream import Stream
from seer.storage import replace_surrogates
from seer.systems.build import system_policy

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

_Result = TypeVar("_Result")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


class Server:
    """The handlers of all routes and their shared state: the engine, the file store and the counters."""

    def __init__(
        self, engine: ServedEngine, policy: ReadingPolicy, settings: ServeSettings, system: str, selector: str
    ) -> None:
        self.engine, self.settings = engine, settings
        self.files = FileStore(int(settings.max_stored_mb * 1e6), settings.file_ttl_s)
        self.desk = ReadingDesk(engine, policy, settings, self.files, system, selector)
        self.metrics = ServerMetrics()
        self.started = int(time.time())

    # ── Chat ─────────────────────────────────────────────────────────────────────────────────────

    async def chat(self, request: Request) -> Response:
        """Answer a chat completion request, whole or streamed.

        Raises InputError or ConfigError if the request is malformed, ModelUnknown for another model, ReadingFailed,
        EngineBusy or TimeoutError if the reading fails, and ClientGone if the client disconnects.
        """
        chat = read_chat(await _json(request), self.settings)
        if chat.model != self.settings.model_name:
            raise ModelUnknown(f"no model '{chat.model[:80]}'; this server has '{self.settings.model_name}'")
        reply_id = f"chatcmpl-{secrets.token_hex(12)}"
        if chat.stream:
            return await self._streamed(chat, reply_id, request)
        reading = asyncio.create_task(self._answer(chat, request))
        document, answer = await _unless_gone(reading, request)
        return _json_response(reply.completion(reply_id, int(time.time()), self.settings.model_name, document, answer))

    async def _answer(
        self, chat: ChatRequest, request: Request, stream: Stream | None = None
    ) -> tuple[Document, Answer]:
        """Read, count and log. Raises ReadingFailed for a failed reading, and what the desk raises."""
        facts = request.state.facts
        self.metrics.running.inc()
        try:
            document, answer = await self.desk.answer(chat, request.state.owner, stream.listener() if stream else None)
        except BaseException as error:
            self.metrics.answers.labels("refused" if isinstance(error, SeerError) else type(error).__name__).inc()
            if isinstance(error, Exception):
                # In a stream that has begun, no error handler sees this error.
                facts |= log_fields(error)
            raise
        finally:
            self.metrics.running.dec()
        self.metrics.count_answer(document, answer)
        usage = answer.usage
        facts |= {"answer": str(answer.status), "pages": len(document.pages), "selected": len(answer.selected_pages)}
        facts |= {"prompt_tokens": usage.prompt, "full_text_tokens": usage.full_text, "cached_tokens": usage.cached}
        if answer.failure is not None:
            failed = ReadingFailed(answer.failure, answer.cause)
            facts |= log_fields(failed)
            raise failed
        return document, answer

    async def _streamed(self, chat: ChatRequest, reply_id: str, request: Request) -> Response:
        """A streamed reply. A failure before the stream has begun is an ordinary error with its own status."""
        stream = Stream(reply_id, int(time.time()), self.settings.model_name, chat.include_usage)
        reading = asyncio.create_task(self._answer(chat, request, stream))
        stream.follow(reading)
        try:
            await _unless_gone(asyncio.create_task(stream.begun()), request)
        except BaseException:
            reading.cancel()
            raise
        return stream.response()

    # ── Files ────────────────────────────────────────────────────────────────────────────────────

    async def upload(self, request: Request) -> Response:
        """Store an uploaded file and describe it. Raises BadRequest if the form has no file, InputError if it is full."""
        form = await request.form(max_files=1, max_fields=8)
        file = form.get("file")
        if file is None or isinstance(file, str):
            raise BadRequest("the form has no file in the field 'file'")
        data = await file.read()
        stored = self.files.add(file.filename or "document", data, request.state.owner, str(form.get("purpose") or ""))
        return _json_response(stored.described())

    async def list_files(self, request: Request) -> Response:
        """Describe all files that were uploaded with the request's key."""
        described = [file.described() for file in self.files.owned_by(request.state.owner)]
        return _json_response({"object": "list", "data": described, "has_more": False})

    async def show_file(self, request: Request) -> Response:
        """Describe one file. Raises DocumentNotFound for an unknown id."""
        return _json_response(self._file(request).described())

    async def file_content(self, request: Request) -> Response:
        """The bytes of one file. Raises DocumentNotFound for an unknown id."""
        from starlette.responses import Response

        # As an untyped attachment, so that no browser shows an uploaded page as one of this server's.
        headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
        return Response(self.files.read(self._file(request)), media_type="application/octet-stream", headers=headers)

    async def delete_file(self, request: Request) -> Response:
        """Delete one file. Raises DocumentNotFound for an unknown id."""
        stored = self._file(request)
        self.files.delete(stored)
        return _json_response({"id": stored.id, "object": "file", "deleted": True})

    def _file(self, request: Request) -> StoredFile:
        stored = self.files.find(request.path_params["file_id"], request.state.owner)
        if stored is None:
            raise DocumentNotFound("no file of this id; see GET /v1/files")
        return stored

    # ── The server itself ────────────────────────────────────────────────────────────────────────

    async def models(self, request: Request) -> Response:
        """List the one model of this server."""
        return _json_response({"object": "list", "data": [self._card()]})

    async def model(self, request: Request) -> Response:
        """Describe the model of this name. Raises ModelUnknown for any other name than the server's."""
        if request.path_params["name"] != self.settings.model_name:
            raise ModelUnknown(f"this server has '{self.settings.model_name}'")
        return _json_response(self._card())

    def _card(self) -> dict[str, Any]:
        name = self.settings.model_name
        length = self.engine.max_positions
        return {"id": name, "object": "model", "created": self.started, "owned_by": "seer", "max_model_len": length}

    async def health(self, request: Request) -> Response:
        """Report whether the engine can serve requests: 200, or 503 with the cause."""
        trouble = self.engine.trouble()
        under_way = self.desk.admission.under_way
        body = {"status": "failed" if trouble else "ok", "cause": trouble, "chats_under_way": under_way}
        return _json_response(body, 503 if trouble else 200)

    async def expose_metrics(self, request: Request) -> Response:
        """The counters in the format of Prometheus."""
        from starlette.responses import Response

        body, kind = self.metrics.exposition()
        return Response(body, headers={"Content-Type": kind})

    def close(self) -> None:
        """Delete the uploaded files and close the engine."""
        self.files.close()
        self.engine.close()


def create_app(
    engine: ServedEngine,
    policy: ReadingPolicy,
    settings: ServeSettings,
    keys: Sequence[str] = (),
    *,
    system: str = "seer",
    selector: str = "model",
) -> FastAPI:
    """Return the application, which closes the engine on shutdown.

    Args:
        engine: An engine that accepts single requests; see `seer.engines.build.make_concurrent`.
        policy: How documents are read; a chat may change some fields within the limits of `settings`.
        settings: The limits and defaults of the server.
        keys: API keys; without any, every request is accepted.
        system: The system of chats that name none.
        selector: The selector of chats that name none.

    Raises InputError if the system or the selector is unknown, or if they do not go together.
    """
    from fastapi import FastAPI
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect

    check_served(system, selector)
    system_policy(system, policy)  # A policy that sets the mode is refused here, not in every chat.
    server = Server(engine, policy, settings, system, selector)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        server.close()

    app = FastAPI(title="Seer", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    routes = (
        ("POST", "/v1/chat/completions", server.chat),
        ("GET", "/v1/models", server.models),
        ("GET", "/v1/models/{name}", server.model),
        ("POST", "/v1/files", server.upload),
        ("GET", "/v1/files", server.list_files),
        ("GET", "/v1/files/{file_id}", server.show_file),
        ("GET", "/v1/files/{file_id}/content", server.file_content),
        ("DELETE", "/v1/files/{file_id}", server.delete_file),
        ("GET", "/health", server.health),
        ("GET", "/metrics", server.expose_metrics),
    )
    for method, path, handler in routes:
        app.add_route(path, handler, methods=[method])
    for kind in (SeerError, TimeoutError, HTTPException, ClientGone, ClientDisconnect):
        app.add_exception_handler(kind, _respond)
    app.add_middleware(
        Guard,  # type: ignore[arg-type]
        keys=Keys(keys),
        max_body_bytes=int(settings.max_body_mb * 1e6),
        metrics=server.metrics,
        paths=tuple(dict.fromkeys(path for _, path, _ in routes)),
    )
    if settings.allow_origins:
        from starlette.middleware.cors import CORSMiddleware

        # Outermost, because a browser's preflight request carries no key.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allow_origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=("x-request-id", "retry-after", "x-should-retry"),
        )
    return app


# ── Requests and responses ───────────────────────────────────────────────────────────────────────


async def _respond(request: Request, error: Exception) -> Response:
    """The reply to an error."""
    request.state.facts.update(log_fields(error))
    status, body = error_response(error)
    return _json_response(body, status, error_headers(error, status))


def _json_response(body: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(body, status, headers)


async def _json(request: Request) -> Any:
    """The request's body. Raises BadRequest if it is not JSON."""
    raw = await request.body()
    try:
        value = json.loads(raw.decode("utf-8-sig"))  # some clients begin with a byte-order mark
    except (ValueError, RecursionError):
        raise BadRequest("the body is not JSON; send a chat completion request") from None
    if not _SURROGATE_ESCAPE.search(raw):
        return value
    # Half of a surrogate pair cannot be encoded in a reply. Like in every encoder, it becomes U+FFFD.
    return json.loads(replace_surrogates(json.dumps(value, ensure_ascii=False), "\ufffd"))


async def _unless_gone(work: asyncio.Task[_Result], request: Request) -> _Result:
    """The result of `work`. Cancels it and raises ClientGone if the client disconnects."""

    async def gone() -> None:
        # The body has been read, so the next message can only be that the client disconnected.
        while (await request.receive())["type"] != "http.disconnect":
            pass

    leaving = asyncio.create_task(gone())
    try:
        await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientGone
        return work.result()
    finally:
        leaving.cancel()
        work.cancel()
