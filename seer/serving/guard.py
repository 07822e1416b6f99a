"""The door of the server: request ids, keys, the size of bodies, one log line a request.

The log holds numbers and names of our own making: no text of a document, a question, an answer or an error, no key.
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
    """Who may ask. Compared in constant time, over digests, so that neither length nor prefix of a key shows."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def owner(self, authorization: str) -> str | None:
        """A name for the holder of this header's key, "" where no key is needed, None where it is not right."""
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
        """`paths` are the templates of the routes, e.g. /v1/files/{file_id}: what requests are counted by."""
        self.app, self.keys, self.max_body_bytes, self.metrics = app, keys, max_body_bytes, metrics
        self._templates = {
            path: re.compile("[^/]+".join(re.escape(part) for part in re.split(r"\{[^}]*\}", path))) for path in paths
        }

    def _route(self, path: str) -> str:
        """The template that a path follows. Others share one name: anyone could invent new ones."""
        return next((name for name, shape in self._templates.items() if shape.fullmatch(path)), "other")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(12)
        status = [500]
        facts: dict[str, Any] = {}
        scope.setdefault("state", {}).update(request_id=request_id, facts=facts)

        async def answering(message: Message) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._admit(scope, headers, receive, answering)
        finally:
            seconds = time.perf_counter() - started
            route = self._route(scope["path"])
            self.metrics.requests.labels(route, str(status[0])).inc()
            self.metrics.request_seconds.labels(route).observe(seconds)
            line = {
                "request_id": request_id,
                "route": route,
                "status": status[0],
                "seconds": round(seconds, 4),
                **facts,
            }
            log.info(json.dumps(line))

    async def _admit(self, scope: Scope, headers: dict[str, str], receive: Receive, send: Send) -> None:
        if scope["path"].startswith("/v1/"):
            owner = self.keys.owner(headers.get("authorization", ""))
            if owner is None:
                message = "no valid API key; send it as 'Authorization: Bearer KEY'"
                body = error_body(message, "authentication_error", "invalid_api_key")
                await _refuse(send, 401, body, (b"www-authenticate", b"Bearer"))
                return
            scope["state"]["owner"] = owner
        length = headers.get("content-length", "")
        if _LENGTH.fullmatch(length) and int(length) > self.max_body_bytes:
            await _refuse(send, 413, self._too_large())
            return
        await self.app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        """A body without a length, or with a false one, is counted as it comes."""
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
