"""One OpenAI-compatible address over HTTP: requests out, JSON or events back, every failure an EngineError.

`seer.engines.openai.failures` decides whether another attempt may succeed; `seer.engines.openai.retries` makes it. The
key goes into one header and nowhere else: it is removed from the messages of errors. Proxies of the environment are not
used, and redirects are not followed.

The client sends and receives outside Python and belongs to no event loop: any loop may await it.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from seer.engines.openai.dialect import Dialect
from seer.engines.openai.failures import describe_error, error_of_status, is_refusal, retry_after, unusable
from seer.errors import EngineError, EngineTimeout, EngineUnavailable, InputError, ModelError, RequestRefused

if TYPE_CHECKING:
    from pyreqwest.exceptions import PyreqwestError
    from pyreqwest.http import Url
    from pyreqwest.request import StreamRequest
    from pyreqwest.response import Response

KEY_VARIABLES = ("SEER_API_KEY", "OPENAI_API_KEY")
MAX_REPLY_BYTES = 64 << 20
_PACKAGES = ("pyreqwest", "tenacity")
"""What requests over HTTP need: the client, and the library that repeats failed attempts."""
_MAX_MESSAGE = 300
_MODEL = re.compile(rb'"model": ("(?:[^"\\]|\\.)*")[,}]')
"""The model in a serialised body."""
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class ApiKey:
    """A key, and where it comes from."""

    value: str = field(default="", repr=False)
    """"" sends none."""
    source: str = " or ".join(KEY_VARIABLES)
    """The environment variable, or variables, for messages."""


class ExitGuard:
    """Delays the end of the process until the client's threads have released the last request.

    They release its Python objects shortly after its reply. If that happens while Python shuts down, Python aborts the
    process with exit code 134.
    """

    wait_s = 0.15

    def __init__(self) -> None:
        self._last_use = 0.0

    def note_use(self) -> None:
        """Record that a request or a client has just ended."""
        if not self._last_use:
            atexit.register(self.wait)
        self._last_use = time.monotonic()

    def wait(self) -> None:
        """Wait until the last use is `wait_s` ago."""
        time.sleep(max(0.0, self._last_use + self.wait_s - time.monotonic()))


_exit_guard = ExitGuard()


def require_packages() -> None:
    """Raise ModelError if a package is missing that requests over HTTP need."""
    if missing := [name for name in _PACKAGES if importlib.util.find_spec(name) is None]:
        raise ModelError(f"models over HTTP need {' and '.join(missing)}; install with: pip install 'seer-vlm[openai]'")


class Http:
    """A client of one address."""

    def __init__(self, base_url: str, *, timeout_s: float, max_connections: int, key: ApiKey = ApiKey()) -> None:
        """`timeout_s` limits one request, a wait for one of the `max_connections` included.

        Raises InputError for a malformed address or a key that no header can hold, ModelError for a missing package.
        """
        require_packages()
        from pyreqwest.client import ClientBuilder
        from pyreqwest.http import Url

        self.base_url, self.timeout_s = base_url.rstrip("/"), timeout_s
        self._urls: dict[str, Url] = {}
        """Parsed addresses by path: parsing one takes longer than all else that a request needs."""
        self._dialects: dict[str, Dialect] = {}
        """What the address accepts, by model."""
        self._key = key
        try:
            if not base_url.startswith(("http://", "https://")):
                raise ValueError("the scheme is missing")
            Url(self.base_url)
        except ValueError as error:
            raise InputError(
                f"'{base_url}' is not an address ({error}); write it like http://localhost:8000/v1"
            ) from None
        headers = _JSON | ({"Authorization": f"Bearer {key.value}"} if key.value else {})
        builder = ClientBuilder().no_proxy().follow_redirects(False).max_connections(max_connections)
        try:
            self._client = builder.default_headers(headers).build()
        except ValueError:
            raise InputError(
                f"the API key in {key.source} holds characters that no HTTP header can hold; set it again"
            ) from None

    async def get(self, path: str) -> Any:
        """The JSON at this path. Raises EngineError."""
        return await self._exchange(self._request("GET", path, None))

    async def post(self, path: str, body: Mapping[str, Any] | bytes, *, idempotency_key: str = "") -> Any:
        """The JSON reply to a body, which may be serialised already. Raises EngineError.

        Parameters that the server refuses by name are adapted, and the request is sent again: see `Dialect`.
        """
        while True:
            sent = self._dialect(body).apply(body)
            try:
                return await self._exchange(self._request("POST", path, sent, idempotency_key))
            except RequestRefused as error:
                if not self._dialect(body).learn(str(error), sent):
                    raise

    async def events(self, path: str, body: Mapping[str, Any] | bytes) -> AsyncIterator[Any]:
        """The JSON events of a streamed reply. Raises EngineError.

        Some servers end a complete reply without [DONE]; whether it is complete is seen by its finish reason.
        """
        from pyreqwest.exceptions import PyreqwestError

        sent = self._dialect(body).apply(body)
        try:
            async with self._request("POST", path, sent) as response:
                if response.status >= 300:
                    raise self._refusal(response, await self._body(response))
                if "text/event-stream" not in (response.get_header("content-type") or ""):
                    yield self._parsed(await self._body(response))
                    return
                async for data in self._event_data(response):
                    if data == b"[DONE]":
                        break
                    yield self._event(data)
                return
        except RequestRefused as error:
            if not self._dialect(body).learn(str(error), sent):
                raise
        except PyreqwestError as error:
            raise self._fault(error) from None
        finally:
            _exit_guard.note_use()
        # Nothing was yielded: the refusal came before the first event.
        async for event in self.events(path, body):
            yield event

    def _dialect(self, body: Mapping[str, Any] | bytes) -> Dialect:
        """The dialect of the model that a body names."""
        found = _MODEL.search(body) if isinstance(body, bytes) else None
        model = str(json.loads(found[1])) if found else str(body.get("model", "")) if isinstance(body, Mapping) else ""
        return self._dialects.setdefault(model, Dialect())

    async def close(self) -> None:
        """End all connections. Requests that still run fail."""
        await self._client.close()
        _exit_guard.note_use()

    # ── Inside ───────────────────────────────────────────────────────────────────────────────────

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | bytes | None, idempotency_key: str = ""
    ) -> StreamRequest:
        request = self._client.request(method, self._url(path)).timeout(timedelta(seconds=self.timeout_s))
        if idempotency_key:
            request = request.header("Idempotency-Key", idempotency_key)
        if body is not None:
            request = request.body_bytes(body if isinstance(body, bytes) else json.dumps(body).encode())
        return request.build_streamed()

    async def _exchange(self, request: StreamRequest) -> Any:
        """Send a request and return the JSON of its reply."""
        from pyreqwest.exceptions import PyreqwestError

        try:
            async with request as response:
                data = await self._body(response)
        except PyreqwestError as error:
            raise self._fault(error) from None
        finally:
            _exit_guard.note_use()
        if response.status >= 300:
            raise self._refusal(response, data)
        return self._parsed(data)

    def _fault(self, error: PyreqwestError) -> EngineError:
        """The error for a request without a whole reply."""
        if isinstance(error, TimeoutError):
            return EngineTimeout(f"{self.base_url} took longer than {self.timeout_s:g} s")
        cause = _cause(error)
        message = self._clean(f"{self.base_url} is not reachable or closed the connection: {cause}")
        if "certificate" in cause:
            return unusable(f"{message}; set SSL_CERT_FILE to the authority that signed the server's certificate")
        return EngineUnavailable(message)

    def _url(self, path: str) -> Url:
        """The address of a path. One that begins with ".." is next to /v1, as vLLM's own (tokenize, version) are."""
        from pyreqwest.http import Url

        if path not in self._urls:
            base = self.base_url.removesuffix("/v1") if path.startswith("..") else self.base_url
            self._urls[path] = Url(base + path.removeprefix(".."))
        return self._urls[path]

    async def _body(self, response: Response) -> bytes:
        data = await response.body_reader.read(MAX_REPLY_BYTES + 1) or b""
        if len(data) > MAX_REPLY_BYTES:
            raise self._too_large()
        return bytes(data)

    async def _event_data(self, response: Response) -> AsyncIterator[bytes]:
        """The data of each server-sent event. Bytes are split, so no character is cut in two."""
        unfinished = bytearray()
        while (chunk := await response.body_reader.read_chunk()) is not None:
            first, *others = bytes(chunk).split(b"\n")
            unfinished += first  # in place: joining a long line chunk by chunk would take quadratic time
            if len(unfinished) > MAX_REPLY_BYTES:
                raise self._too_large()
            for line in others:
                if unfinished.startswith(b"data:"):
                    yield bytes(unfinished[5:]).strip()
                unfinished = bytearray(line)
        # some servers end their last line without a newline
        if unfinished.startswith(b"data:"):
            yield bytes(unfinished[5:]).strip()

    def _event(self, data: bytes) -> Any:
        """The JSON of an event. Raises EngineError for an event that reports one."""
        event = self._parsed(data)
        if isinstance(event, Mapping) and event.get("error"):
            raise EngineError(self._clean(f"the server failed in mid-stream: {describe_error(event)}"), retryable=True)
        return event

    def _too_large(self) -> EngineError:
        return EngineError(f"{self.base_url} sent a reply of more than {MAX_REPLY_BYTES >> 20} MiB")

    def _parsed(self, data: bytes) -> Any:
        text = data.decode("utf-8", "replace")
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise EngineError(
                f"{self.base_url} sent a reply that is not JSON: {self._clean(repr(text[:80]))}", retryable=True
            ) from None

    def _refusal(self, response: Response, data: bytes) -> EngineError:
        status, text = response.status, data.decode("utf-8", "replace")
        try:
            reason = describe_error(json.loads(text))
        except (ValueError, RecursionError):
            reason = text
        # A refusal is recorded with the request, so its text does not depend on the address.
        server = "the server" if is_refusal(status) else self.base_url
        message = self._clean(f"{server} answered {status}: {reason}")
        if status in (401, 403):
            message += f"; the key is read from {self._key.source} in the environment"
        wait_s = retry_after(response.get_header("retry-after"))
        return error_of_status(status, message, body=text, wait_s=wait_s)

    def _clean(self, text: str) -> str:
        if self._key.value:
            text = text.replace(self._key.value, "***")
        return " ".join(text.split())[:_MAX_MESSAGE]


def key_from_environment(variable: str | None = None) -> ApiKey:
    """The API key of the variable, or of the usual ones. Raises InputError if a variable was named and is empty."""
    for name in (variable,) if variable else KEY_VARIABLES:
        if os.environ.get(name):
            return ApiKey(os.environ[name], name)
    if variable:
        raise InputError(f"the environment variable {variable} holds no API key; set it, or leave api_key_env out")
    return ApiKey()


def _cause(error: PyreqwestError) -> str:
    """The innermost cause: "connection error" says little, "Connection refused" names the fault."""
    causes = (getattr(error, "details", None) or {}).get("causes")
    return str(causes[-1]["message"]) if causes else str(error) or type(error).__name__
