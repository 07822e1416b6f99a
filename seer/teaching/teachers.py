"""Teachers: engines that judge pages and reason, behind a ledger and a budget.

    async with open_teacher(spec, ledger, budget, role="judge") as teacher:
        reply = await teacher.ask(Chat.of("Is page 3 necessary? Reply YES or NO."))

`ask` reads the ledger first, so no call is made twice, even after kill -9. Equal calls that run at the same time share one
request. The budget is checked before a request is sent. A request that the engine refuses because of its content is
written to the ledger as a refusal. The engine retries failed requests.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, Self

from seer.engines.base import Chat, ConcurrentEngine, Generation, Parts, Request, Sampling
from seer.engines.build import build_chat_engine
from seer.engines.openai.bodies import SerialisedRequest, body_key, chat_body, serialise
from seer.engines.openai.http import require_packages
from seer.engines.openai.messages import chat_messages
from seer.errors import (
    ConfigError,
    EngineError,
    EngineUnavailable,
    InputError,
    PromptTooLong,
    RequestRefused,
    SeerError,
)
from seer.protocol.control import CONTROL
from seer.protocol.literals import CHAT_LITERALS
from seer.storage import replace_surrogates
from seer.teaching.ledger import Budget, BudgetReached, Ledger, Reply
from seer.teaching.settings import TeacherSpec

if TYPE_CHECKING:
    from seer.engines.openai.engine import RenderChat

REFUSALS = (RequestRefused, PromptTooLong, InputError)
"""Errors of the request itself: another attempt cannot succeed, but other requests can."""
TEMPLATE_KEY = "chat_template_kwargs"


class TeacherEngine(ConcurrentEngine, Protocol):
    """An engine that answers chats."""

    def forget(self, session: str) -> None:
        """Drop the images of this session."""
        ...

    def close(self) -> None:
        """Release the engine's resources."""
        ...


class Teacher:
    """A teacher of one role. Belongs to one event loop."""

    def __init__(
        self,
        spec: TeacherSpec,
        ledger: Ledger,
        budget: Budget,
        *,
        role: str,
        open_engine: Callable[[], TeacherEngine],
        render_chat: RenderChat = chat_messages,
    ) -> None:
        """Wrap an engine.

        Args:
            spec: The model, its sampling and its prices.
            ledger: Holds finished calls; several teachers may share it.
            budget: Limits the spending of all teachers that share the ledger.
            role: The purpose of the calls; written into the ledger.
            open_engine: Returns the engine. Called in a thread at the first call that the ledger does not know, so that
                a run whose calls are all finished loads no model.
            render_chat: Renders a chat as the messages of the call's key.
        """
        self.spec, self.role = spec, role
        self._ledger, self._budget = ledger, budget
        self._open_engine, self._render_chat = open_engine, render_chat
        self._engine: TeacherEngine | None = None
        self._failure: SeerError | None = None
        self._opening = asyncio.Lock()
        self._free = asyncio.Semaphore(_queued(spec.concurrency))
        self._running: dict[str, asyncio.Event] = {}
        """Calls that are running, by key: two pages of the same words are one question."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the engine, if it was opened."""
        if self._engine is not None:
            await asyncio.to_thread(self._engine.close)

    async def ask(self, chat: Chat, *, draw: int = 0) -> Reply:
        """The reply to a chat. Another `draw` is another sample of the same question.

        Raises EngineError after the engine's last attempt, BudgetReached if the budget forbids the call, and what
        opening the engine raises: InputError for a malformed address, ModelError for a model that cannot be loaded.
        `ends_run` says which of them end a run.
        """
        sampling = sampling_of(self.spec, draw)
        data = call_body(self.spec, self._render_chat, chat, sampling)
        key = body_key(data)
        while (known := self._ledger.get(key)) is None:
            running = self._running.get(key)
            if running is None:
                if chat.images:  # they enter the key by their hashes, and the body by their data
                    request = Request(chat, key, sampling=sampling)
                else:
                    request = SerialisedRequest(chat, key, sampling=sampling, data=data, key=key)
                return await self._ask_once(key, request)
            await running.wait()
        return known

    async def _ask_once(self, key: str, request: Request) -> Reply:
        ended = self._running[key] = asyncio.Event()
        try:
            return await self._ask_and_record(key, request)
        finally:
            del self._running[key]
            ended.set()

    async def _ask_and_record(self, key: str, request: Request) -> Reply:
        async with self._free:
            forbidden = self._budget.exceeded_by(self._ledger.spent, self._ledger.calls_under_way)
            if forbidden:
                raise BudgetReached(
                    f"the budget is spent ({forbidden}); every finished call is kept: raise the budget and run again"
                )
            self._ledger.calls_under_way += 1
            try:
                reply = await self._send(request)
            finally:
                self._ledger.calls_under_way -= 1
            self._ledger.put(key, reply, model=self.spec.model, role=self.role, usd=cost_usd(self.spec, reply))
            return reply

    async def _send(self, request: Request) -> Reply:
        engine = self._engine or await self._opened()
        generation = await engine.generate_one(request)
        if not isinstance(request, SerialisedRequest):
            engine.forget(request.session)
        return read_generation(generation)

    async def _opened(self) -> TeacherEngine:
        async with self._opening:
            if self._failure is not None:  # loading again would fail again, and takes minutes
                raise self._failure
            if self._engine is None:
                try:
                    self._engine = await asyncio.to_thread(self._open_engine)
                except SeerError as error:
                    self._failure = error
                    raise
            return self._engine


def ends_run(error: SeerError) -> bool:
    """True if no call to the teacher can succeed: a wrong key or address, or a model that cannot be loaded."""
    return not isinstance(error, EngineError) or (isinstance(error, EngineUnavailable) and not error.retryable)


def _queued(concurrency: int) -> int:
    """Calls to hold ready: `concurrency` are sent, and a few more wait in the client for the moment a reply arrives."""
    return concurrency + concurrency // 2


# ── Calls and replies ────────────────────────────────────────────────────────────────────────────


def sampling_of(spec: TeacherSpec, draw: int) -> Sampling:
    """The sampling of one draw. Its seed distinguishes draws, also for servers that cache replies."""
    return Sampling(spec.max_tokens, spec.temperature, spec.top_p, spec.top_k, seed=draw)


def call_body(spec: TeacherSpec, render_chat: RenderChat, chat: Chat, sampling: Sampling) -> bytes:
    """The body of a call, with the hash of each image in place of its data.

    `body_key` of it identifies the call by everything that determines its reply. The address is not part of it.
    """
    images = {image.content_hash: image.content_hash for image in chat.images}
    return serialise(chat_body(render_chat(chat, images), spec.model, sampling, spec.extra))


def read_generation(generation: Generation) -> Reply:
    """A generation as a reply. Raises the generation's error, unless the request was refused because of its content."""
    error = generation.error
    if isinstance(error, REFUSALS):
        kind = error.kind if isinstance(error, EngineError) else "refused"
        return Reply(finish="error", error=replace_surrogates(str(error)), error_kind=kind)
    generation.raise_error()
    think, text = split_thinking(generation.parts)
    return Reply(
        text=replace_surrogates(text),
        think=replace_surrogates(think),
        finish=generation.finish,
        prompt_tokens=generation.prompt_tokens,
        completion_tokens=generation.completion_tokens,
        seconds=round(generation.seconds, 4),
    )


def split_thinking(parts: Parts) -> tuple[str, str]:
    """(thinking, text) as a ledger keeps them. Thinking that never ends stays in the text after its <think>.

    Unlike `split_reasoning` of the engines, which reads an answer, this keeps everything that the teacher wrote.

    Control tokens are spelled out, and quotations of such spellings are neutralised, so that the two stay distinct.
    """
    after_thinking = max(
        (number for number, (name, _) in enumerate(parts, 1) if name == CONTROL.close_think), default=0
    )
    spelled = [name or CHAT_LITERALS.neutralise(text) for name, text in parts]
    tags = (CONTROL.open_think, CONTROL.close_think)
    think = "".join(piece for piece in spelled[:after_thinking] if piece not in tags)
    return think, "".join(spelled[after_thinking:])


def cost_usd(spec: TeacherSpec, reply: Reply) -> float:
    """The price of a reply in US dollars."""
    prompt = reply.prompt_tokens * spec.usd_per_million_prompt_tokens
    return (prompt + reply.completion_tokens * spec.usd_per_million_completion_tokens) / 1e6


# ── Opening ──────────────────────────────────────────────────────────────────────────────────────


def open_teacher(
    spec: TeacherSpec, ledger: Ledger, budget: Budget, *, role: str, render_chat: RenderChat = chat_messages
) -> Teacher:
    """The teacher of a configuration: behind its address, or in this process through vLLM.

    Raises ModelError if a package is missing, ConfigError for keys of `extra` that only a server reads.
    """

    def connect() -> TeacherEngine:
        return _connect(spec, render_chat)

    def load() -> TeacherEngine:
        return _load(spec)

    if spec.base_url:
        require_packages()  # now, not at the first call, which may come after an hour of reading sources
    elif unread := sorted(spec.extra.keys() - {TEMPLATE_KEY}):
        raise ConfigError(
            f"teacher '{spec.model}': extra {', '.join(unread)} is read by a server only; in this process only "
            f"{TEMPLATE_KEY} is. Leave it out, or name a server in base_url"
        )
    open_engine = connect if spec.base_url else load
    return Teacher(spec, ledger, budget, role=role, open_engine=open_engine, render_chat=render_chat)


def _connect(spec: TeacherSpec, render_chat: RenderChat) -> TeacherEngine:
    from seer.engines.openai.http import ApiKey

    return build_chat_engine(
        spec.model,
        base_url=spec.base_url,
        api_key=ApiKey(os.environ.get(spec.api_key_env, ""), spec.api_key_env),
        max_concurrent=_queued(spec.concurrency),
        max_connections=spec.concurrency,
        timeout_s=spec.timeout_s,
        attempts=spec.attempts,
        backoff_s=spec.backoff_s,
        extra_body=spec.extra,
        idempotency_keys=True,
        render_chat=render_chat,
    )


def _load(spec: TeacherSpec) -> TeacherEngine:
    return build_chat_engine(
        spec.model,
        chat_template_kwargs=spec.extra.get(TEMPLATE_KEY),
        timeout_s=spec.timeout_s,
        max_concurrent=_queued(spec.concurrency),
        max_num_seqs=spec.concurrency,
    )
