"""Answers a chat: renders its documents and runs the conversation, in threads.

A disconnected client and a timeout cancel the reading and its requests to the engine.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from seer.engines.admission import Admission
from seer.engines.base import Chat, Engine, Generation, Request, Sampling
from seer.errors import DocumentNotFound, InputError
from seer.reading.conversation import converse
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import read_one
from seer.reading.state import OnStep
from seer.rendering.collection import combine
from seer.schema import Answer, Document, Failure, PageStyle, Status, Step, StepUsage, Usage
from seer.selection.passages import PASSAGE_PAGES
from seer.serving.chat import ChatRequest, Source
from seer.serving.files import FileStore
from seer.serving.settings import ServeSettings
from seer.systems.build import check_system, selects_pages, system_policy


class ServedEngine(Engine, Protocol):
    """The interface that a server needs: an engine that accepts single requests and reports its state."""

    async def generate_one(self, request: Request) -> Generation:
        """Answer one request; cancelling it cancels the request."""
        ...

    def trouble(self) -> str:
        """The reason why no request can be served; "" if the engine works."""
        ...

    def close(self) -> None:
        """Release what the engine holds."""
        ...


_NOTHING = Document(name="", text="", style=PageStyle(), pages=())
"""The document of a chat without one."""


@dataclass(frozen=True)
class Listener:
    """Callbacks for the steps, the text and the control tokens of a reading. They may be called from any thread."""

    on_step: OnStep | None = None
    on_text: Callable[[str], None] | None = None
    on_control: Callable[[str], None] | None = None


class ReadingDesk:
    """One engine, one policy, many chats.

    `system` and `selector` apply to chats that do not name their own.
    """

    def __init__(
        self,
        engine: ServedEngine,
        policy: ReadingPolicy,
        settings: ServeSettings,
        files: FileStore,
        system: str = "seer",
        selector: str = "model",
    ) -> None:
        self.engine, self.policy, self.settings, self.files = engine, policy, settings, files
        self.system, self.selector = system, selector
        self.admission = Admission(settings.max_concurrent, settings.max_waiting)

    async def answer(self, chat: ChatRequest, owner: str, listener: Listener | None = None) -> tuple[Document, Answer]:
        """Read the documents of a chat and answer its question.

        Raises InputError for unreadable documents, EngineBusy if too many chats wait, and TimeoutError after the time
        that the settings allow. A failure of the engine is a failed answer.
        """
        async with asyncio.timeout(self.settings.timeout_s), self.admission.enter():
            if chat.talk:
                return _NOTHING, await self._talk(chat, listener or Listener())
            sources = [self._with_bytes(source, owner) for source in chat.sources]
            document = await asyncio.to_thread(load_documents, sources, chat, self.settings)
            return document, await self._read(chat, document, listener or Listener())

    async def _read(self, chat: ChatRequest, document: Document, listener: Listener) -> Answer:
        from seer.selection.base import build_selector

        system, selector_name = self._choice(chat)
        policy = chat_policy(system_policy(system, self.policy), chat, self.settings)
        selector = build_selector(selector_name)
        conversation = converse(
            document, chat.question, self.engine, selector, policy, listener.on_step, listener.on_text
        )
        return await read_one(conversation, self._request_with(listener), in_thread=True)

    async def _talk(self, chat: ChatRequest, listener: Listener) -> Answer:
        """Answer a chat without a document by the model alone."""
        policy = chat_policy(self.policy, chat, self.settings)
        sampling = Sampling(policy.max_new_tokens, policy.temperature, policy.top_p, seed=policy.seed)
        request = Request(Chat(chat.talk), f"talk-{secrets.token_hex(8)}", sampling=sampling, on_text=listener.on_text)
        try:
            generation = await self._request_with(listener)(request)
        finally:
            self.engine.forget(request.session)
        if generation.error is not None:
            return Answer(
                text="", status=Status.FAILED, cause=str(generation.error), failure=Failure.of(generation.error)
            )
        usage = Usage(
            prompt=generation.prompt_tokens, completion=generation.completion_tokens, cached=generation.cached_tokens
        )
        thoughts = [Step(name="reason", outputs={"text": generation.reasoning})] if generation.reasoning else []
        spent = StepUsage(prompt=usage.prompt, completion=usage.completion, cached=usage.cached)
        answer = Step(name="answer", outputs={"text": generation.text}, usage=spent, finish=generation.finish)
        steps = (*thoughts, answer)
        if listener.on_step is not None:
            for step in steps:
                listener.on_step(step)
        seconds = generation.seconds
        return Answer(text=generation.text, status=Status.ANSWERED, usage=usage, trace=steps, seconds=seconds)

    def _choice(self, chat: ChatRequest) -> tuple[str, str]:
        """Return the names of the system and the selector for a chat. Raises InputError if they do not go together."""
        system = chat.options.system or self.system
        selector = chat.options.selector or (self.selector if selects_pages(system) else "model")
        check_system(system, selector)
        return system, selector

    def _request_with(self, listener: Listener) -> Callable[[Request], Awaitable[Generation]]:
        """The engine's `generate_one`, which also reports control tokens of streamed requests to the listener."""
        from dataclasses import replace

        def ask(request: Request) -> Awaitable[Generation]:
            # Only requests whose text is streamed need the places of their control tokens.
            if request.on_text is not None:
                request = replace(request, on_control=listener.on_control)
            return self.engine.generate_one(request)

        return ask

    def _with_bytes(self, source: Source, owner: str) -> Source:
        """The source with the bytes of its uploaded file. Raises DocumentNotFound if this key uploaded no such file."""
        if not source.file_id:
            return source
        stored = self.files.find(source.file_id, owner)
        if stored is None:
            raise DocumentNotFound(f"no file '{source.file_id[:60]}'; upload it to /v1/files first")
        return Source(stored.filename, data=self.files.read(stored))


def chat_policy(policy: ReadingPolicy, chat: ChatRequest, settings: ServeSettings) -> ReadingPolicy:
    """The server's policy with the options of a chat, within the server's limits.

    Raises InputError if the chat names a form of retrieval and its system retrieves no text.
    """
    changes: dict[str, Any] = {
        name: value
        for name in ("rounds", "max_pages", "max_retrieved_tokens", "retrieve")
        if (value := getattr(chat.options, name)) is not None
    }
    if "retrieve" in changes and not policy.retrieve:
        raise InputError(
            f"retrieve={changes['retrieve']}: the system 'seer-k0' retrieves no text; use the system 'seer'"
        )
    if changes.get("retrieve") == "passages":
        changes["selector_pages"] = max(policy.selector_pages, PASSAGE_PAGES)
    for name in ("temperature", "top_p", "seed"):
        if (value := getattr(chat, name)) is not None:
            changes[name] = value
    changes["max_new_tokens"] = min(chat.max_new_tokens or policy.max_new_tokens, settings.max_new_tokens)
    return policy.model_copy(update=changes)


def load_documents(sources: list[Source], chat: ChatRequest, settings: ServeSettings) -> Document:
    """All documents of a chat as one. Raises InputError for an unreadable document, too many pages, or none."""
    documents: list[Document] = []
    room = settings.max_pages
    for source in sources:
        documents.append(_load(source, chat.options.style or settings.style, chat, room))
        room -= len(documents[-1].pages)
    document = combine(documents)
    if not document.pages:
        raise InputError("the documents hold no page to read; send a document with text or images")
    return document


def _load(source: Source, style: str, chat: ChatRequest, max_pages: int) -> Document:
    from seer.rendering import load_bytes, render_text
    from seer.rendering.documents import keep_pages
    from seer.rendering.styles import STYLES

    # Only names are accepted, because a path would open files of the server.
    if style not in (*STYLES, "auto"):
        raise InputError(f"no style '{style[:40]}'; known: {', '.join(STYLES)}, auto")
    options = chat.options
    if source.text is not None:
        document = render_text(source.text, style, source.name, max_pages=max_pages)
        return keep_pages(document, options.pages) if options.pages else document
    assert source.data is not None
    return load_bytes(
        source.data,
        safe_name(source.name),
        style,
        pages=options.pages,
        max_pages=max_pages,
        reflow=options.reflow,
        ocr=options.ocr,
        encoding=options.encoding,
    )


def safe_name(name: str) -> str:
    """A file name of word characters that stays in its folder, whatever a client calls its file."""
    base = re.split(r"[\\/]", name)[-1]
    cleaned = re.sub(r"[^\w. -]", "_", base)[-80:].strip(". ")
    # 80 characters of CJK text take 240 bytes; file systems allow 255.
    return cleaned or "document"
