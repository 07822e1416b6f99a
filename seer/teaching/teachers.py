"""Teachers: models that judge pages and reason, asked once for each thing and never again.

    async with open_teacher(spec, ledger, budget, role="judge") as teacher:
        reply = await teacher.ask(messages)

`ask` looks into the ledger first. A call that went wrong in a way that may pass (a timeout, a lost connection, 408, 409,
425, 429, 5xx, a reply that is no chat completion) is tried again with growing, jittered waits; `send_once` is one try.
What a server refuses for good (other 4xx) is written down as such; a wrong key or address is fatal.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, Self

from seer.errors import EngineError, ModelError
from seer.storage import replace_surrogates
from seer.teaching.ledger import Budget, BudgetReached, Ledger, Reply
from seer.teaching.settings import TeacherSpec

if TYPE_CHECKING:
    from pyreqwest.client import Client
    from pyreqwest.exceptions import PyreqwestError
    from pyreqwest.http import Url

Messages = Sequence[Mapping[str, Any]]
MAX_REPLY_BYTES = 64 << 20
RETRYABLE_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
FATAL_STATUS = frozenset({401, 402, 403, 404, 405})
_MAX_WAIT_S = 60.0


class TeacherError(EngineError):
    """A call that gave no reply. `retryable`: it may pass. `fatal`: no call to this teacher can succeed."""

    def __init__(self, message: str, *, retryable: bool, fatal: bool = False, wait_s: float = 0.0) -> None:
        super().__init__(message, retryable=retryable)
        self.fatal = fatal
        self.wait_s = wait_s
        """How long the server asked to wait."""


@dataclass(frozen=True)
class Call:
    """A chat completion to be asked for."""

    body: Mapping[str, Any]
    data: bytes
    """The body as it is sent."""
    key: str
    """Identifies the call by everything that decides its reply; the address is not part of it."""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Call:
        data = json.dumps(body, sort_keys=True).encode()
        return cls(body, data, hashlib.sha256(data).hexdigest()[:32])


class Transport(Protocol):
    """One try of one call; never more than `concurrency` of the spec at once, the others in their order."""

    async def send_once(self, call: Call) -> Reply: ...

    async def close(self) -> None: ...


class Teacher:
    """A teacher of one role: bounded concurrency, retries, the ledger and the budget around a transport."""

    def __init__(self, spec: TeacherSpec, ledger: Ledger, budget: Budget, *, role: str, transport: Transport) -> None:
        self.spec, self.role = spec, role
        self._ledger, self._budget, self._transport = ledger, budget, transport
        # the transport asks `concurrency` at once; a few more stand ready, so that it need not wait for the next
        self._free = asyncio.Semaphore(spec.concurrency + spec.concurrency // 2)
        self._asking: dict[str, asyncio.Event] = {}
        """Calls that are being asked, by key: two pages of the same words are one question."""
        self.retries = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    async def ask(self, messages: Messages, *, draw: int = 0) -> Reply:
        """The reply to these messages. Another `draw` is another sample of the same question.

        Raises TeacherError after the last try, BudgetReached where the budget forbids the call.
        """
        call = Call.of(request_body(self.spec, messages, draw))
        while (known := self._ledger.get(call.key)) is None:
            asked_already = self._asking.get(call.key)
            if asked_already is None:
                return await self._ask_once(call)
            await asked_already.wait()
        return known

    async def _ask_once(self, call: Call) -> Reply:
        ended = self._asking[call.key] = asyncio.Event()
        try:
            return await self._ask_and_note(call)
        finally:
            del self._asking[call.key]
            ended.set()

    async def _ask_and_note(self, call: Call) -> Reply:
        async with self._free:
            forbidden = self._budget.exceeded_by(self._ledger.spent, self._ledger.calls_on_their_way)
            if forbidden:
                raise BudgetReached(
                    f"the budget is spent ({forbidden}); every finished call is kept: raise the budget and run again"
                )
            self._ledger.calls_on_their_way += 1
            try:
                reply = await self._send(call)
            finally:
                self._ledger.calls_on_their_way -= 1
            self._ledger.put(call.key, reply, model=self.spec.model, role=self.role, usd=cost_usd(self.spec, reply))
            return reply

    async def _send(self, call: Call) -> Reply:
        # the first try without ceremony: it nearly always succeeds, and the retrying machine costs as much as a call
        try:
            return await self._try(call)
        except TeacherError as error:
            if not error.retryable or self.spec.attempts == 1:
                raise
            first = error
        from tenacity import (
            AsyncRetrying,
            RetryCallState,
            retry_if_exception,
            stop_after_attempt,
            wait_random_exponential,
        )

        backoff = wait_random_exponential(multiplier=self.spec.backoff_s, max=_MAX_WAIT_S)

        def wait(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            return max(backoff(state), _asked_wait_s(error))

        def retryable(error: BaseException) -> bool:
            return isinstance(error, TeacherError) and error.retryable

        await asyncio.sleep(max(self.spec.backoff_s * random.random(), _asked_wait_s(first)))
        stop = stop_after_attempt(self.spec.attempts - 1)
        retrying = AsyncRetrying(stop=stop, wait=wait, retry=retry_if_exception(retryable), reraise=True)
        return await retrying(self._retry, call)

    async def _retry(self, call: Call) -> Reply:
        self.retries += 1
        return await self._try(call)

    async def _try(self, call: Call) -> Reply:
        started = time.perf_counter()
        reply = await self._transport.send_once(call)
        return reply._replace(seconds=round(time.perf_counter() - started, 4))


def _asked_wait_s(error: BaseException | None) -> float:
    """How long the server asked to wait, within reason."""
    return min(error.wait_s, _MAX_WAIT_S) if isinstance(error, TeacherError) else 0.0


def request_body(spec: TeacherSpec, messages: Messages, draw: int) -> dict[str, Any]:
    """The body of a chat completion. The seed tells draws apart, also for servers that keep replies."""
    body: dict[str, Any] = {
        "model": spec.model,
        "messages": [dict(message) for message in messages],
        "temperature": spec.temperature,
        "top_p": spec.top_p,
        "max_tokens": spec.max_tokens,
        "seed": draw,
    }
    if spec.top_k:
        body["top_k"] = spec.top_k
    return {**body, **spec.extra}


def cost_usd(spec: TeacherSpec, reply: Reply) -> float:
    prompt = reply.prompt_tokens * spec.usd_per_million_prompt_tokens
    return (prompt + reply.completion_tokens * spec.usd_per_million_completion_tokens) / 1e6


# ── Over HTTP ────────────────────────────────────────────────────────────────────────────────────


class HttpTransport:
    """Chat completions of an OpenAI-compatible server, by a client that sends and receives outside of Python."""

    def __init__(self, spec: TeacherSpec) -> None:
        self._spec = spec
        self._opened: tuple[Client, Url] | None = None

    async def send_once(self, call: Call) -> Reply:
        """Raises TeacherError for everything but a chat completion or a refusal for good."""
        from pyreqwest.exceptions import PyreqwestError

        try:
            client, url = self._open()
            request = client.post(url).header("Idempotency-Key", call.key).body_bytes(call.data).build_streamed()
            async with request as response:
                data = await response.body_reader.read(MAX_REPLY_BYTES + 1) or b""
        except TimeoutError:
            raise TeacherError(f"no reply within {self._spec.timeout_s:g} s", retryable=True) from None
        except ValueError as error:
            message = f"'{self._spec.base_url}' is no address ({error}); write http://host:port/v1"
            raise TeacherError(message, retryable=False, fatal=True) from None
        except PyreqwestError as error:
            raise TeacherError(f"{type(error).__name__}: {_cause(error)}", retryable=True) from None
        if len(data) > MAX_REPLY_BYTES:
            raise TeacherError(f"the reply has more than {MAX_REPLY_BYTES >> 20} MiB", retryable=False)
        return read_response(response.status, response.headers, bytes(data))

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened[0].close()

    def _open(self) -> tuple[Client, Url]:
        """The client, and the parsed address. Raises ValueError where it is none."""
        from pyreqwest.client import ClientBuilder
        from pyreqwest.http import Url

        if self._opened is None:
            url = Url(self._spec.base_url.rstrip("/") + "/chat/completions")
            key = os.environ.get(self._spec.api_key_env, "")
            headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
            # what goes beyond the concurrency waits in the client, which sends it the moment another reply is there
            builder = ClientBuilder().no_proxy().max_connections(self._spec.concurrency)
            timeout = timedelta(seconds=self._spec.timeout_s)
            self._opened = builder.timeout(timeout).default_headers(headers).build(), url
        return self._opened


def _cause(error: PyreqwestError) -> str:
    """What lies at the bottom of an error: "connection error" says little, "Connection refused" says what it was."""
    causes = (getattr(error, "details", None) or {}).get("causes")
    return causes[-1]["message"] if causes else str(error)


def read_response(status: int, headers: Mapping[str, str], data: bytes) -> Reply:
    """A chat completion out of an HTTP response. Raises TeacherError where it is none and may pass, or is fatal."""
    start = data[:200].decode("utf-8", "replace")
    if status in FATAL_STATUS:
        raise TeacherError(f"the teacher answered {status}: {start}", retryable=False, fatal=True)
    if status in RETRYABLE_STATUS:
        raise TeacherError(f"the teacher answered {status}: {start}", retryable=True, wait_s=_retry_after_s(headers))
    if status >= 400:
        return Reply(finish="error", error=f"{status}: {start}")
    try:
        value = json.loads(data)
        choice = value["choices"][0]
        message = choice["message"]
        usage = value.get("usage") or {}
        return Reply(
            text=replace_surrogates(_content(message.get("content"))),
            think=replace_surrogates(str(message.get("reasoning_content") or message.get("reasoning") or "")),
            finish=replace_surrogates(str(choice.get("finish_reason") or "stop")),
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            completion_tokens=int(usage.get("completion_tokens") or 0),
        )
    except (ArithmeticError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise TeacherError(f"the teacher sent no chat completion: {start!r}", retryable=True) from None


def _content(value: Any) -> str:
    """Content as text; some servers send it in parts."""
    if isinstance(value, list):
        return "".join(str(part.get("text") or "") for part in value if isinstance(part, dict))
    return str(value or "")


def _retry_after_s(headers: Mapping[str, str]) -> float:
    try:
        return max(0.0, float(headers.get("Retry-After", 0)))
    except ValueError:  # a date: the growing wait will do
        return 0.0


def open_teacher(spec: TeacherSpec, ledger: Ledger, budget: Budget, *, role: str) -> Teacher:
    """The teacher that a configuration names: behind its address, or in this process through vLLM.

    Raises ModelError where a package is missing.
    """
    if spec.base_url:
        missing = [name for name in ("pyreqwest", "tenacity") if importlib.util.find_spec(name) is None]
        if missing:
            raise ModelError(f"teachers over HTTP need {' and '.join(missing)}; install the extra 'data' or 'eval'")
        return Teacher(spec, ledger, budget, role=role, transport=HttpTransport(spec))
    from seer.teaching.teacher_vllm import VllmTransport

    return Teacher(spec, ledger, budget, role=role, transport=VllmTransport(spec))
