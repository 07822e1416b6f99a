"""One OpenAI-compatible address over HTTP: requests out, JSON or events back, every failure an EngineError.

Whether a failure may pass is decided here (`retryable`); trying again is the caller's policy. The key goes into one
header and nowhere else: messages of errors are cleaned of it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from seer.errors import EngineError, InputError, PromptTooLong

if TYPE_CHECKING:
    import httpx

KEY_VARIABLES = ("SEER_API_KEY", "OPENAI_API_KEY")
MAY_PASS = frozenset({408, 409, 425, 429})
"""Statuses below 500 that another try may heal."""
_MAX_MESSAGE = 300
_TOO_LONG = re.compile(r"context_length_exceeded|maximum (?:context|model) length", re.IGNORECASE)
"""How OpenAI, ours and vLLM's servers say that a prompt is longer than the model's window."""


class RetryAfter(EngineError):
    """A failure that the server wants tried again no sooner than `seconds` from now."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message, retryable=True)
        self.seconds = seconds


class Http:
    """A client of one address. Belongs to the event loop that it is first used in."""

    def __init__(self, base_url: str, *, timeout_s: float, max_connections: int, key: str = "") -> None:
        try:
            import httpx
        except ImportError:
            raise InputError("the openai engine needs httpx and tenacity: pip install 'seer-vlm[openai]'") from None

        if not base_url.startswith(("http://", "https://")):
            raise InputError(f"'{base_url}' is no address; give one such as http://localhost:8000/v1")
        self.base_url = base_url.rstrip("/")
        self._key = key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections)
        self._client = httpx.AsyncClient(headers=headers, timeout=httpx.Timeout(timeout_s), limits=limits)

    async def get(self, path: str) -> Any:
        async with self._sent("GET", path) as response:
            return await self._json(response)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        async with self._sent("POST", path, body) as response:
            return await self._json(response)

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[Any]:
        """The JSON events of a streamed reply. Raises EngineError where the stream ends before [DONE]."""
        async with self._sent("POST", path, body) as response:
            if "text/event-stream" not in response.headers.get("content-type", ""):
                yield await self._json(response)
                return
            async for line in response.aiter_lines():
                if not line.startswith("data:"):
                    continue
                data = line[5:].strip()
                if data == "[DONE]":
                    return
                event = self._parsed(data)
                if isinstance(event, Mapping) and event.get("error"):
                    raise EngineError(
                        self._clean(f"the server failed in mid-stream: {_described(event)}"), retryable=True
                    )
                yield event
        raise EngineError("the server's stream broke off before its end", retryable=True)

    async def close(self) -> None:
        await self._client.aclose()

    # ── Inside ───────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def _sent(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> AsyncIterator[httpx.Response]:
        import httpx

        # paths of vLLM's own (tokenize, version) stand beside /v1
        url = self.base_url.removesuffix("/v1") + path[2:] if path.startswith("..") else self.base_url + path
        try:
            async with self._client.stream(method, url, json=body) as response:
                if response.status_code >= 300:
                    await response.aread()
                    raise self._refusal(response)
                yield response
        except httpx.TimeoutException:
            raise EngineError(f"{self.base_url} did not answer in time", retryable=True) from None
        except httpx.HTTPError as error:
            what = self._clean(str(error).strip() or type(error).__name__)
            raise EngineError(f"{self.base_url} is not reachable or hung up: {what}", retryable=True) from None

    async def _json(self, response: httpx.Response) -> Any:
        return self._parsed((await response.aread()).decode("utf-8", "replace"))

    def _parsed(self, text: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise EngineError(f"{self.base_url} sent no JSON: {self._clean(repr(text[:80]))}", retryable=True) from None

    def _refusal(self, response: httpx.Response) -> EngineError:
        status = response.status_code
        try:
            said = _described(json.loads(response.content))
        except (ValueError, RecursionError):
            said = response.text
        message = self._clean(f"{self.base_url} answered {status}: {said}")
        if status in (401, 403):
            message += f"; the key is read from {' or '.join(KEY_VARIABLES)} in the environment"
        if status == 413:
            return PromptTooLong(f"{message}; use fewer pages, or set max_request_mb to what the server takes")
        if status == 400 and _TOO_LONG.search(response.text):
            return PromptTooLong(message)
        if status not in MAY_PASS and status < 500:
            return EngineError(message)
        return RetryAfter(message, retry_after(response.headers.get("retry-after")))

    def _clean(self, text: str) -> str:
        if self._key:
            text = text.replace(self._key, "***")
        return " ".join(text.split())[:_MAX_MESSAGE]


def key_from_environment(variable: str | None = None) -> str:
    """The API key; "" where none is set. Raises InputError where a variable was named and is empty."""
    for name in (variable,) if variable else KEY_VARIABLES:
        if os.environ.get(name):
            return os.environ[name]
    if variable:
        raise InputError(f"the environment variable {variable} holds no API key; set it, or leave api_key_env out")
    return ""


def retry_after(value: str | None) -> float:
    """Seconds that the server asked to wait, at most a minute; 0 where it does not say so in seconds."""
    try:
        seconds = float(value or 0)
    except ValueError:
        return 0.0
    return min(max(seconds, 0.0), 60.0) if seconds == seconds else 0.0


def _described(body: Any) -> str:
    """What an error body says, in the shapes that servers use."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if isinstance(error, Mapping):
        error = error.get("message") or error.get("detail") or json.dumps(dict(error))
    return str(error)
