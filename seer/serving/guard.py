"""Middleware around the application: request ids, API keys, a limit on body sizes, and one log line per request.

The log holds numbers, ids, error codes and causes (`seer.serving.errors.log_fields`). It never holds a key or text of a
document, a question or an answer.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from seer.serving.errors import error_response, log_fields
from seer.serving.metrics import ServerMetrics
from seer.serving.reply import error_body

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("seer.serve")
_LENGTH = re.compile(r"[0-9]{1,20}")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Keys:
    """The API keys of a server. Digests are compared in constant time, so timing reveals neither length nor prefix."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def owner(self, authorization: str) -> str | None:
        """The owner id of the key in an Authorization header; "" if the server has no keys, None for a wrong key."""
        if not self._digests:
            return ""
        scheme, _, key = authorization.partition(" ")
        given = hashlib.sha256(key.strip().encode("utf-8", "surrogatepass")).digest()
        matches = [hmac.compare_digest(given, digest) for digest in self._digests]
        return given.hex()[:16] if scheme.lower() == "bearer" and any(matches) else None


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(
        self, app: App, *, keys: Keys, max_body_bytes: int, metrics: ServerMetrics, paths: Sequence[str]
    ) -> None:
        """Wrap `app`.

        Args:
            app: The application.
            keys: The API keys that paths under /v1/ require.
            max_body_bytes: Limit of a request's body.
            metrics: The counters to update.
            paths: The templates of the routes, e.g. /v1/files/{file_id}; requests are counted by template.
        """
        self.app, self.keys, self.max_body_bytes, self.metrics = app, keys, max_body_bytes, metrics
        self._templates = {
            path: re.compile("[^/]+".join(re.escape(part) for part in re.split(r"\{[^}]*\}", path))) for path in paths
        }

    def _route(self, path: str) -> str:
        """The template that a path matches. All other paths share one name, so that clients cannot add metrics."""
        return next((name for name, shape in self._templates.items() if shape.fullmatch(path)), "other")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(12)
        status: int | None = None
        facts: dict[str, Any] = {}
        scope.setdefault("state", {}).update(request_id=request_id, facts=facts)

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._admit(scope, headers, receive, send_with_id)
        except Exception as error:
            # This is the boundary of the application: uvicorn would log the message, which may hold a document's text.
            facts |= log_fields(error)
            if status is None:
                await _refuse(send_with_id, *error_response(error))
        finally:
            seconds = time.perf_counter() - started
            route = self._route(scope["path"])
            status = status or 500
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.request_seconds.labels(route).observe(seconds)
            line = {"request_id": request_id, "route": route, "status": status, "seconds": round(seconds, 4), **facts}
            log.info(json.dumps(line))

    async def _admit(self, scope: Scope, headers: dict[str, str], receive: Receive, send: Send) -> None:
        if scope["path"].startswith("/v1/"):
            owner = self.keys.owner(headers.get("authorization", ""))
            if owner is None:
                message = "no valid API key; send it as 'Authorization: Bearer KEY'"
                body = error_body(message, "authentication_error", "invalid_api_key")
                scope["state"]["facts"]["error"] = "invalid_api_key"
                await _refuse(send, 401, body, (b"www-authenticate", b"Bearer"))
                return
            scope["state"]["owner"] = owner
        # A body that announces its length is refused before it is read.
        length = headers.get("content-length", "")
        if _LENGTH.fullmatch(length) and int(length) > self.max_body_bytes:
            scope["state"]["facts"]["error"] = "request_too_large"
            await _refuse(send, 413, self._too_large())
            return
        await self.app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        """Count a body while it arrives: its length may be missing or false. Reading past the limit raises status 413."""
        from starlette.exceptions import HTTPException

        taken = 0

        async def counting() -> Message:
            nonlocal taken
            message = await receive()
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                if taken > self.max_body_bytes:
                    raise HTTPException(413, self._too_large()["error"]["message"])
            return message

        return counting

    def _too_large(self) -> dict[str, Any]:
        message = f"the request is larger than {self.max_body_bytes / 1e6:g} MB; send fewer or smaller documents"
        return error_body(message, "invalid_request_error", "request_too_large")


async def _refuse(send: Send, status: int, body: dict[str, Any], *more: tuple[bytes, bytes]) -> None:
    raw = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": raw})
