"""Errors as HTTP: the status, headers and body that a client receives, and the cause that the server logs.

A client receives messages of this project's own making only: no address, key, path or upstream reply. The log adds the
error's kind and the part of its message that holds no foreign text.

| Failure                                   | Status | Type                  | Code                    |
|-------------------------------------------|--------|-----------------------|-------------------------|
| busy                                      | 429    | rate_limit_error      | too_many_requests       |
| unavailable                               | 503    | server_error          | engine_unavailable      |
| unavailable, a retry cannot succeed       | 502    | server_error          | engine_unavailable      |
| timeout                                   | 504    | server_error          | timeout                 |
| too_long                                  | 400    | invalid_request_error | context_length_exceeded |
| refused                                   | 400    | invalid_request_error | request_refused         |
| engine                                    | 502    | server_error          | engine_failed           |
| protocol                                  | 502    | server_error          | invalid_model_output    |
| input                                     | 400    | invalid_request_error | invalid_input           |

429 and 503 carry Retry-After. A status of 500 or above that a retry cannot change carries `X-Should-Retry: false`,
which OpenAI's clients obey.
"""

from __future__ import annotations

import math
import re
import traceback
from pathlib import PurePath
from typing import Any

from seer.errors import DocumentNotFound, EngineError, SeerError
from seer.schema import Failure
from seer.serving.reply import error_body

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
NOT_FOUND = "nothing is at this address; there are /v1/chat/completions, /v1/models, /v1/files, /health and /metrics"
MAX_CAUSE_CHARS = 200
MAX_FRAMES = 8
_CREDENTIALS = re.compile(r"//[^/@\s]*@")


class BadRequest(SeerError, ValueError):
    """A malformed request."""


class ModelUnknown(SeerError, LookupError):
    """A request for a model that this server does not have."""


class ReadingFailed(SeerError, RuntimeError):
    """A reading that ended in a failed answer. Its `failure` decides the status of the reply.

    `cause` is the error's full message. It may quote an upstream server, so it is neither sent nor logged whole.
    """

    def __init__(self, failure: Failure, cause: str) -> None:
        super().__init__(failure.public)
        self.failure, self.cause = failure, cause


class ClientGone(Exception):
    """The client disconnected before its reply was complete."""


def error_response(error: BaseException) -> tuple[int, dict[str, Any]]:
    """The status and body of an error, in the form that OpenAI's clients expect."""
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect

    if isinstance(error, HTTPException):
        message = NOT_FOUND if error.status_code == 404 else str(error.detail)
        code = "request_too_large" if error.status_code == 413 else "bad_request"
        return error.status_code, error_body(message, "invalid_request_error", code)
    if isinstance(error, (ClientGone, ClientDisconnect)):
        return 499, error_body("the client disconnected", "invalid_request_error", "client_gone")
    # EngineTimeout is also a TimeoutError, so engine failures are recognised first.
    if (failure := failure_of(error)) is not None:
        status, kind, code = STATUS_OF_FAILURE[failure.kind]
        # 503 invites clients to return; if a retry cannot succeed, the fault is the gateway's.
        status = 502 if status == 503 and not failure.retryable else status
        return status, error_body(failure.public, kind, code)
    if isinstance(error, TimeoutError):
        return 504, error_body("reading took longer than this server allows", "server_error", "timeout")
    if isinstance(error, ModelUnknown):
        return 404, error_body(str(error), "invalid_request_error", "model_not_found")
    if isinstance(error, DocumentNotFound):
        return 404, error_body(str(error), "invalid_request_error", "file_not_found")
    if isinstance(error, SeerError):
        return 400, error_body(str(error), "invalid_request_error", "invalid_input")
    return 500, error_body(f"the server failed: {type(error).__name__}", "server_error", "internal")


def error_headers(error: BaseException, status: int) -> dict[str, str]:
    """Headers for the reply to an error: Retry-After in whole seconds, Allow for a wrong method, X-Should-Retry."""
    failure = failure_of(error)
    headers = dict(getattr(error, "headers", None) or {})
    if status in (429, 503):
        headers["Retry-After"] = str(math.ceil(max(1.0, failure.retry_after_s if failure else 0.0)))
    if status >= 500 and failure is not None and not failure.retryable:
        headers["X-Should-Retry"] = "false"
    return headers


def failure_of(error: BaseException) -> Failure | None:
    """The failure behind an error; None if no engine or reading failed."""
    if isinstance(error, EngineError):
        return Failure.of(error)
    return error.failure if isinstance(error, ReadingFailed) else None


def log_fields(error: BaseException) -> dict[str, Any]:
    """The fields of an error in the server's log, free of text of a document, a question or a reply.

    Returns `error`, the code that the client receives, and `cause`. Messages of engine errors put foreign text (an
    upstream body, a model's output) after their first colon, so `cause` holds the kind and the part before it, without
    credentials of an address. Other messages may quote a request, so their cause is the code alone. An unexpected
    exception is named by its class, and `traceback` names the last lines that it passed.
    """
    failure = failure_of(error)
    code: str = error_response(error)[1]["error"]["code"]
    if failure is not None and failure.kind not in ("input", "protocol"):
        message = error.cause if isinstance(error, ReadingFailed) else str(error)
        own_words = _CREDENTIALS.sub("//", message.partition(": ")[0])
        return {"error": code, "cause": f"{failure.kind}: {' '.join(own_words.split())[:MAX_CAUSE_CHARS]}"}
    if code == "internal":
        frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
        lines = [f"{PurePath(frame.filename).name}:{frame.lineno}" for frame in frames]
        return {"error": code, "cause": type(error).__name__, "traceback": lines}
    return {"error": code, "cause": code}
