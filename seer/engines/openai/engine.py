"""The openai engine: conversations and chats through any OpenAI-compatible address.

    engine = OpenAIEngine("http://localhost:8000/v1", tokenizer="path/to/checkpoint")

Small requests find out once what the server can do (`seer.engines.openai.probe`): whether it holds a select call to a
grammar or to a JSON schema, and how a second stage is sent. If it cannot constrain, replies are read tolerantly, and every
deviation from a call is recorded. With `tokenizer`, tokens are counted before they are sent and replies are read from
their ids; without it, the server's counts are reported.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from seer.engines.admission import Admission
from seer.engines.background import BackgroundEngine
from seer.engines.base import Chat, ChatImage, Completion, Conversation, Generation, JsonSchema, Request, SelectCall
from seer.engines.openai.bodies import SerialisedRequest, body_key, chat_body, conversation_body, serialise
from seer.engines.openai.http import ApiKey, Http, key_from_environment
from seer.engines.openai.messages import Continuation, ImageFormat, chat_messages, data_url
from seer.engines.openai.probe import Abilities, Structure, probe
from seer.engines.openai.replies import all_choices, as_chat, check_finish, read_call, read_choice, read_sample
from seer.engines.openai.replies import usage_counts as count_usage
from seer.engines.openai.retries import Retries
from seer.engines.openai.stream import collect_stream
from seer.errors import InputError, PromptTooLong, SeerError
from seer.protocol.control import CONTROL
from seer.protocol.encoding import Encoder
from seer.protocol.literals import CHAT_LITERALS, GLM_LITERALS, restore
from seer.schema import Page

RenderChat = Callable[[Chat, Mapping[str, str]], list[dict[str, Any]]]
"""(chat, data URLs by content hash) -> messages."""
DEFAULT_POSITIONS = 131072
FORMATS: tuple[tuple[ImageFormat, ...], ...] = (("png",), ("png", "jpeg"))
"""PNG is exact. If a request is too large with it, each image is sent in the format that is smaller."""
PART_BYTES = 160
"""Bytes around each image: its label, and JSON."""


class OpenAIEngine(BackgroundEngine[str]):
    """Generates through one address. The API key is read from the environment and stays in memory."""

    name = "openai"
    bound_to_loop = False

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        *,
        tokenizer: str | None = None,
        structure: Structure | None = None,
        continuation: Continuation | None = None,
        api_key_env: str | None = None,
        api_key: ApiKey | None = None,
        max_concurrent: int = 64,
        max_connections: int | None = None,
        max_waiting: int = 4096,
        timeout_s: float = 300.0,
        attempts: int = 4,
        backoff_s: float = 0.5,
        max_request_mb: float = 64.0,
        max_positions: int | None = None,
        check_at_start: bool = True,
        extra_body: Mapping[str, Any] | None = None,
        idempotency_keys: bool = False,
        render_chat: RenderChat = chat_messages,
    ) -> None:
        """Connect to a server.

        Args:
            base_url: Its address, e.g. http://localhost:8000/v1.
            model: The model's name at the server; may be left out if the server has one model.
            tokenizer: A checkpoint folder.
            structure, continuation: Abilities of the server that are then not probed.
            api_key_env: The environment variable of the key, if it is not one of the usual ones.
            api_key: The key itself, in place of `api_key_env`.
            max_concurrent: Requests that run at once; `max_waiting` more wait, further ones are refused.
            max_connections: Requests that are sent at once. If it is smaller than `max_concurrent`, the client sends the
                next request in the moment another one is answered.
            timeout_s: Limit of one attempt.
            attempts: Attempts of one request in all; `backoff_s` is the limit of the first random wait between them.
            max_request_mb: Largest request body.
            max_positions: The model's window, if the server does not report it.
            check_at_start: False sends nothing before the first request and needs `model`. The server is then probed at
                the first conversation or JSON schema.
            extra_body: Further keys of the bodies of chats.
            idempotency_keys: Send an Idempotency-Key with each chat: `seer.engines.openai.bodies.body_key` of its body.
            render_chat: Replaces the rendering of chats as messages.

        Raises InputError (a malformed address, no such model), EngineError (the server does not answer).
        """
        if not check_at_start and model is None:
            raise InputError("check_at_start=False needs the model's name; give `model`")
        self.encoder: Encoder | None = None
        if tokenizer is not None:
            from seer.models.checkpoint import load_encoder

            self.encoder = load_encoder(tokenizer)[0]
        self.max_request_bytes = int(max_request_mb * 1e6)
        self.max_concurrent = max_concurrent
        self.admission = Admission(max_concurrent, max_waiting)
        self.retries = Retries(max(1, attempts), backoff_s)
        key = api_key or key_from_environment(api_key_env)
        self._http = Http(base_url, timeout_s=timeout_s, max_connections=max_connections or max_concurrent, key=key)
        self._extra_body, self._idempotency_keys, self._render_chat = extra_body, idempotency_keys, render_chat
        self._to_probe = (model, structure, continuation)
        self._found: Abilities | None = None
        self._probing = asyncio.Lock()
        super().__init__(len)  # starts a thread, which every later failure must end
        if check_at_start:
            try:
                self.run(self._probe_once())
            except BaseException:
                self.close()
                raise
        reported = self._found.max_positions if self._found else None
        self.max_positions = max_positions or reported or DEFAULT_POSITIONS

    # ── The server's abilities ───────────────────────────────────────────────────────────────────

    @property
    def abilities(self) -> Abilities:
        """The server's abilities; the first use may wait for the probe. Raises EngineError or InputError if that fails."""
        return self.run(self._probe_once()) if self._found is None else self._found

    @property
    def constrains(self) -> bool:
        return self.abilities.structure == "structural_tag"

    @property
    def model(self) -> str:
        """The model's name at the server."""
        model = self._to_probe[0]
        return self._found.model if self._found else str(model)

    async def _await_abilities(self) -> Abilities:
        return await self._loop.call(self._probe_once()) if self._found is None else self._found

    async def _probe_once(self) -> Abilities:
        """Runs in the background loop, to which the lock belongs."""
        async with self._probing:
            if self._found is None:
                self._found = await self.retries.run(lambda: probe(self._http, *self._to_probe))
            return self._found

    # ── The interface ────────────────────────────────────────────────────────────────────────────

    def trouble(self) -> str:
        """Always "": a server that is away may come back, and each request finds out for itself."""
        return ""

    async def _end(self) -> None:
        await self._http.close()

    # ── One request ──────────────────────────────────────────────────────────────────────────────

    async def _generate_one(self, request: Request) -> Generation:
        started = time.perf_counter()
        try:
            async with self.admission.enter():
                generation = await self._answer(request)
        except SeerError as error:
            generation = Generation.failed(error)
        return replace(generation, seconds=time.perf_counter() - started)

    async def _answer(self, request: Request) -> Generation:
        """All samples. Greedy ones are drawn one by one, because servers refuse n > 1 for them."""
        if request.n > 1 and request.sampling.temperature == 0:
            return await self._complete(request, await self._answer(_sample_request(request, 0)))
        path, data = await self._encode(request)
        return await self._complete(request, await self.retries.run(lambda: self._attempt(request, path, data)))

    async def _complete(self, request: Request, first: Generation) -> Generation:
        """Request the samples that are missing, for servers that do not know `n`."""
        numbers = range(len(first.samples), request.n)
        if not numbers:
            return first
        more = await asyncio.gather(*(self._answer(_sample_request(request, number)) for number in numbers))
        return replace(
            first,
            others=(*first.others, *(Completion(one.parts, one.ids, one.finish) for one in more)),
            prompt_tokens=first.prompt_tokens + sum(one.prompt_tokens for one in more),
            cached_tokens=first.cached_tokens + sum(one.cached_tokens for one in more),
            completion_tokens=first.completion_tokens + sum(one.completion_tokens for one in more),
        )

    async def _attempt(self, request: Request, path: str, data: bytes) -> Generation:
        if path == "/completions":
            reply = as_chat(await self._http.post(path, data))
        elif request.on_text is None:
            reply = await self._http.post(path, data, idempotency_key=self._idempotency_key(request, data))
        else:
            reply = await collect_stream(self._http.events(path, data), request)
        return self._read(request, reply)

    def _idempotency_key(self, request: Request, data: bytes) -> str:
        if isinstance(request, SerialisedRequest):
            return request.key
        return body_key(data) if self._idempotency_keys and isinstance(request.prompt, Chat) else ""

    # ── Requests ─────────────────────────────────────────────────────────────────────────────────

    async def _encode(self, request: Request) -> tuple[str, bytes]:
        """Path and body. Raises PromptTooLong if the body is too large with the smallest images."""
        if isinstance(request, SerialisedRequest):
            return "/chat/completions", request.data
        abilities = None
        if isinstance(request.prompt, Conversation) or request.constraint is not None:
            abilities = await self._await_abilities()
        images = _images(request.prompt)
        if not images:
            return self._within_limit(request, abilities, {})
        return await asyncio.to_thread(self._encode_smallest, request, abilities, images)

    def _encode_smallest(
        self, request: Request, abilities: Abilities | None, images: Sequence[ChatImage]
    ) -> tuple[str, bytes]:
        *exact, smallest = FORMATS
        for formats in exact:
            try:
                return self._within_limit(request, abilities, self._urls(request.session, images, formats))
            except PromptTooLong:
                continue
        return self._within_limit(request, abilities, self._urls(request.session, images, smallest))

    def _within_limit(
        self, request: Request, abilities: Abilities | None, urls: Mapping[str, str]
    ) -> tuple[str, bytes]:
        body = self._body(request, abilities, urls)
        data = serialise(body)
        if len(data) <= self.max_request_bytes:
            return "/completions" if "prompt" in body else "/chat/completions", data
        raise PromptTooLong(
            f"the request takes {len(data) / 1e6:.1f} MB{' even with JPEG images' if urls else ''} and the server takes "
            f"{self.max_request_bytes / 1e6:g} MB: use fewer or smaller pages, a denser style, or set max_request_mb"
        )

    def _body(self, request: Request, abilities: Abilities | None, urls: Mapping[str, str]) -> dict[str, Any]:
        if isinstance(request.prompt, Chat):
            schema = request.constraint if isinstance(request.constraint, JsonSchema) else None
            if abilities is None or not abilities.follows_schemas:
                schema = None
            messages = self._render_chat(request.prompt, urls)
            body = chat_body(messages, self.model, request.sampling, self._extra_body, n=request.n, schema=schema)
        else:
            assert abilities is not None
            pages = {number: urls[page.content_hash] for number, page in request.prompt.pages.items()}
            body = conversation_body(request, pages, abilities)
        if request.on_text is not None and "prompt" not in body:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body

    @property
    def max_picture_bytes(self) -> int:
        """Image bytes that one request may hold: an eighth of a request is left for its text."""
        return max(1, self.max_request_bytes * 7 // 8)

    def picture_bytes(self, session: str, pages: Sequence[Page]) -> list[int]:
        # Without drawing any image: three bytes a pixel are four in base64, and no image takes more.
        taken = [PART_BYTES + 4 * page.width_px * page.height_px for page in pages]
        images = [ChatImage.of_page(page) for page in pages]
        for formats in FORMATS:
            if sum(taken) <= self.max_picture_bytes:
                break
            urls = self._urls(session, images, formats)
            taken = [PART_BYTES + len(urls[image.content_hash]) for image in images]
        return taken

    def _urls(self, session: str, images: Sequence[ChatImage], formats: Sequence[ImageFormat]) -> dict[str, str]:
        """The smallest data URL of each image in these formats, by content hash."""

        def drawn(image: ChatImage, kind: ImageFormat) -> str:
            return self._drawn.get(session, (image.content_hash, kind), lambda: data_url(image.draw(), kind))

        return {image.content_hash: min((drawn(image, kind) for kind in formats), key=len) for image in images}

    # ── Replies ──────────────────────────────────────────────────────────────────────────────────

    def _read(self, request: Request, reply: Any) -> Generation:
        """The generation in a reply. Raises EngineError for a reply that cannot be read."""
        first, *others = [self._sample(request, choice) for choice in all_choices(reply)[: request.n]]
        prompt, cached, completion = count_usage(reply)
        return Generation(
            first.parts,
            first.ids,
            first.finish,
            others=tuple(others),
            prompt_tokens=prompt,
            cached_tokens=cached,
            completion_tokens=completion,
        )

    def _sample(self, request: Request, choice: Any) -> Completion:
        if isinstance(request.prompt, Chat) or isinstance(request.constraint, JsonSchema):
            schema = request.constraint.schema if isinstance(request.constraint, JsonSchema) else None
            return read_sample(choice, CHAT_LITERALS if isinstance(request.prompt, Chat) else GLM_LITERALS, schema)
        message, finish = read_choice(choice)
        check_finish(finish)
        is_call = request.required_call is not None
        written = choice.get("token_ids")
        if self.encoder is not None and isinstance(written, list) and all(map(_is_token_id, written)):
            if is_call and (close := self.encoder.control(CONTROL.close_call)) in written:
                written = written[: written.index(close) + 1]  # the stop token after the call does not belong to it
            parts = tuple((name, restore(text)) for name, text in self.encoder.split(written))
            return Completion(parts, tuple(written) if is_call else None, "length" if finish == "length" else "stop")
        content = (message.get("content") or "") + self._closing_tag(request, choice)
        if not is_call:
            return read_sample({**choice, "message": {**message, "content": content}}, GLM_LITERALS)
        parts = read_call(content, message.get("tool_calls"))
        return Completion(parts, None, "length" if finish == "length" else "stop")

    def _closing_tag(self, request: Request, choice: Mapping[str, Any]) -> str:
        """</tool_call> if it ended the generation, because vLLM leaves the stop token out of the text; else ""."""
        is_stop = isinstance(request.constraint, SelectCall) and not request.constraint.enforced
        stop = self._found.ids.get(CONTROL.close_call) if is_stop and self._found else None
        return CONTROL.close_call if stop is not None and choice.get("stop_reason") == stop else ""


def _images(prompt: Conversation | Chat) -> list[ChatImage]:
    """The images of a prompt, in any order."""
    if isinstance(prompt, Chat):
        return list(prompt.images)
    return [ChatImage.of_page(page) for page in prompt.pages.values()]


def _sample_request(request: Request, number: int) -> Request:
    """The request for one sample alone, with the seed of its number."""
    return replace(request, n=1, sampling=replace(request.sampling, seed=request.sampling.seed + number))


def _is_token_id(value: Any) -> bool:
    """Whether a value is a token id that an encoded conversation can hold."""
    return type(value) is int and 0 <= value < 2**31
