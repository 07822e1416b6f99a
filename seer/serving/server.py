"""An OpenAI-compatible server that reads: any client that speaks chat completions speaks to it.

app = create_app(engine, ReadingPolicy(), ServeSettings(), keys=("...",))

POST /v1/chat/completions     documents and a question in, an answer out, streamed if asked
GET  /v1/models               the one model
POST, GET, DELETE /v1/files   documents to be named by id in later chats
GET  /health, /metrics        open to everyone: numbers only
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from seer.errors import DocumentNotFound, EngineError, SeerError
from seer.reading.policy import ReadingPolicy
from seer.schema import Answer, Document, Failure
from seer.serving import reply
from seer.serving.chat import Asked, read_chat
from seer.serving.files import FileStore, StoredFile
from seer.serving.guard import Guard, Keys
from seer.serving.metrics import ServerMetrics
from seer.serving.reading import ReadingDesk, ServedEngine
from seer.serving.settings import ServeSettings, check_served
from seer.serving.stream import Stream
from seer.storage import replace_surrogates
from seer.systems.seer import system_policy

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

_Result = TypeVar("_Result")


class Server:
    """The routes' state: one desk, one store of files, one set of counters."""

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
        asked = read_chat(await _json(request), self.settings)
        if asked.model != self.settings.model_name:
            raise ModelUnknown(f"no model '{asked.model[:80]}'; this server has '{self.settings.model_name}'")
        reply_id = f"chatcmpl-{secrets.token_hex(12)}"
        owner = request.state.owner
        if asked.stream:
            return await self._streamed(asked, owner, reply_id, request)
        reading = asyncio.create_task(self._answer(asked, owner, request.state.facts))
        document, answer = await _unless_gone(reading, request)
        return _json_response(reply.completion(reply_id, int(time.time()), self.settings.model_name, document, answer))

    async def _answer(
        self, asked: Asked, owner: str, facts: dict[str, Any], stream: Stream | None = None
    ) -> tuple[Document, Answer]:
        """Read and count. Raises EngineError where the engine gave no reply, PromptTooLong where it cannot."""
        self.metrics.running.inc()
        try:
            document, answer = await self.desk.answer(asked, owner, stream.listener() if stream else None)
        except BaseException as error:
            self.metrics.answers.labels("refused" if isinstance(error, SeerError) else type(error).__name__).inc()
            raise
        finally:
            self.metrics.running.dec()
        self.metrics.count_answer(document, answer)
        usage = answer.usage
        facts |= {"answer": str(answer.status), "pages": len(document.pages), "selected": len(answer.selected_pages)}
        facts |= {"prompt_tokens": usage.prompt, "full_text_tokens": usage.full_text, "cached_tokens": usage.cached}
        if answer.failure is not None:
            raise ReadingFailed(answer.failure)
        return document, answer

    async def _streamed(self, asked: Asked, owner: str, reply_id: str, request: Request) -> Response:
        """A streamed reply. What fails before anything was said is still an ordinary error with its status."""
        stream = Stream(reply_id, int(time.time()), self.settings.model_name, asked.include_usage)
        reading = asyncio.create_task(self._answer(asked, owner, request.state.facts, stream))
        stream.follow(reading)
        try:
            await _unless_gone(asyncio.create_task(stream.begun()), request)
        except BaseException:
            reading.cancel()
            raise
        return stream.response(describe_error)

    # ── Files ────────────────────────────────────────────────────────────────────────────────────

    async def upload(self, request: Request) -> Response:
        form = await request.form(max_files=1, max_fields=8)
        file = form.get("file")
        if file is None or isinstance(file, str):
            raise BadRequest("the form has no file in the field 'file'")
        data = await file.read()
        stored = self.files.add(file.filename or "document", data, request.state.owner, str(form.get("purpose") or ""))
        return _json_response(stored.described())

    async def list_files(self, request: Request) -> Response:
        described = [file.described() for file in self.files.owned_by(request.state.owner)]
        return _json_response({"object": "list", "data": described, "has_more": False})

    async def show_file(self, request: Request) -> Response:
        return _json_response(self._file(request).described())

    async def file_content(self, request: Request) -> Response:
        from starlette.responses import Response

        # as an attachment of no type: no browser shall show an uploaded page as one of ours
        headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
        return Response(self.files.read(self._file(request)), media_type="application/octet-stream", headers=headers)

    async def delete_file(self, request: Request) -> Response:
        stored = self._file(request)
        self.files.delete(stored)
        return _json_response({"id": stored.id, "object": "file", "deleted": True})

    def _file(self, request: Request) -> StoredFile:
        stored = self.files.find(request.path_params["file_id"], request.state.owner)
        if stored is None:
            raise DocumentNotFound("no file of this id; see GET /v1/files")
        return stored

    # ── What describes the server ────────────────────────────────────────────────────────────────

    async def models(self, request: Request) -> Response:
        return _json_response({"object": "list", "data": [self._card()]})

    async def model(self, request: Request) -> Response:
        if request.path_params["name"] != self.settings.model_name:
            raise ModelUnknown(f"this server has '{self.settings.model_name}'")
        return _json_response(self._card())

    def _card(self) -> dict[str, Any]:
        name = self.settings.model_name
        length = self.engine.max_positions
        return {"id": name, "object": "model", "created": self.started, "owned_by": "seer", "max_model_len": length}

    async def health(self, request: Request) -> Response:
        trouble = self.engine.trouble()
        under_way = self.desk.admission.under_way
        body = {"status": "failed" if trouble else "ok", "cause": trouble, "chats_under_way": under_way}
        return _json_response(body, 503 if trouble else 200)

    async def expose_metrics(self, request: Request) -> Response:
        from starlette.responses import Response

        body, kind = self.metrics.exposition()
        return Response(body, headers={"Content-Type": kind})

    def close(self) -> None:
        self.files.close()
        self.engine.close()


_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


class BadRequest(SeerError, ValueError):
    """A request whose form is wrong."""


class ModelUnknown(SeerError, LookupError):
    """A chat that asks for a model this server does not have."""


def create_app(
    engine: ServedEngine,
    policy: ReadingPolicy,
    settings: ServeSettings,
    keys: Sequence[str] = (),
    *,
    system: str = "seer",
    selector: str = "model",
) -> FastAPI:
    """Return the application, which closes the engine when it is shut down.

    Args:
        engine: An engine that accepts single requests; see `seer.engines.build.make_concurrent`.
        policy: How documents are read; a chat may change some fields within the limits of `settings`.
        keys: API keys; without any, every request is accepted.
        system, selector: What reads, and who selects pages, in chats that name neither.

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
    for kind in (SeerError, TimeoutError, HTTPException, ClientGone, ClientDisconnect, Exception):
        app.add_exception_handler(kind, _respond)
    app.add_middleware(
        Guard,  # type: ignore[arg-type]
        keys=Keys(keys),
        max_body_bytes=int(settings.max_body_mb * 1e6),
        metrics=server.metrics,
        paths=tuple(dict.fromkeys(path for _, path, _ in routes)),
    )
    return app


# ── Errors ───────────────────────────────────────────────────────────────────────────────────────

NO_SUCH_ADDRESS = (
    "nothing is at this address; there are /v1/chat/completions, /v1/models, /v1/files, /health and /metrics"
)


STATUS_OF_FAILURE = {
    "busy": (429, "rate_limit_error", "too_many_requests"),
    "unavailable": (503, "server_error", "engine_unavailable"),
    "timeout": (504, "server_error", "timeout"),
    "too_long": (400, "invalid_request_error", "context_length_exceeded"),
    "refused": (400, "invalid_request_error", "request_refused"),
    "engine": (502, "server_error", "engine_failed"),
    "protocol": (502, "server_error", "invalid_model_output"),
    "input": (400, "invalid_request_error", "invalid_input"),
}
"""HTTP status, error type and error code by `Failure.kind`."""


class ReadingFailed(SeerError, RuntimeError):
    """A reading that failed; its record decides the status of the reply."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.public)
        self.failure = failure


class ClientGone(Exception):
    """The client hung up; nobody reads what is sent."""


def describe_error(error: BaseException) -> tuple[int, dict[str, Any]]:
    """(status, body) of a failure, as OpenAI's clients expect it."""
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect

    if isinstance(error, HTTPException):
        said = NO_SUCH_ADDRESS if error.status_code == 404 else str(error.detail)
        return error.status_code, reply.error_body(said, "invalid_request_error", "bad_request")
    if isinstance(error, (ClientGone, ClientDisconnect)):
        return 499, reply.error_body("the client hung up", "invalid_request_error", "client_gone")
    if isinstance(error, EngineError):
        error = ReadingFailed(Failure.of(error))
    if isinstance(error, ReadingFailed):
        status, kind, code = STATUS_OF_FAILURE[error.failure.kind]
        return status, reply.error_body(error.failure.public, kind, code)
    if isinstance(error, TimeoutError):
        return 504, reply.error_body("reading took longer than this server allows", "server_error", "timeout")
    if isinstance(error, ModelUnknown):
        return 404, reply.error_body(str(error), "invalid_request_error", "model_not_found")
    if isinstance(error, DocumentNotFound):
        return 404, reply.error_body(str(error), "invalid_request_error", "file_not_found")
    if isinstance(error, SeerError):
        return 400, reply.error_body(str(error), "invalid_request_error", "invalid_input")
    return 500, reply.error_body(f"the server failed: {type(error).__name__}", "server_error", "internal")


async def _respond(request: Request, error: Exception) -> Response:
    status, body = describe_error(error)
    request.state.facts["error"] = body["error"]["code"]
    headers = dict(getattr(error, "headers", None) or {})  # e.g. the methods that a path allows
    if status in (429, 503):
        headers["Retry-After"] = str(math.ceil(max(1.0, retry_after_s(error))))
    return _json_response(body, status, headers)


def retry_after_s(error: BaseException) -> float:
    """Seconds that the engine behind an error asks to wait; 0 if it names none."""
    failure = Failure.of(error) if isinstance(error, EngineError) else getattr(error, "failure", None)
    return failure.retry_after_s if failure is not None else 0.0


def _json_response(body: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(body, status, headers)


async def _json(request: Request) -> Any:
    raw = await request.body()
    try:
        value = json.loads(raw.decode())
    except (ValueError, RecursionError):
        raise BadRequest("the body is no JSON; send a chat completion request") from None
    if not _SURROGATE_ESCAPE.search(raw):
        return value
    # half of a surrogate pair could not be sent back: it becomes U+FFFD, as when it is encoded
    return json.loads(replace_surrogates(json.dumps(value, ensure_ascii=False), "\ufffd"))


async def _unless_gone(work: asyncio.Task[_Result], request: Request) -> _Result:
    """The result of `work`; a client that hangs up cancels it. Raises ClientGone then."""

    async def gone() -> None:
        # the body was read: the next message can only be that the client has left
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
