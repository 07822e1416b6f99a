"""The openai engine: reads through any OpenAI-compatible address, ours or another's.

    engine = OpenAIEngine("http://localhost:8000/v1", tokenizer="path/to/checkpoint")

What the server can do is found out once, at the start, by small requests (`seer.engines.openai.probe`): whether it holds a
select call to a grammar or to a JSON schema, and how a second stage is put to it. Where it cannot constrain, calls are read
tolerantly and every deviation is named. With `tokenizer`, tokens are counted before they are sent and replies are read
from their ids; without, the server's own counts are reported.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from seer.engines.admission import Admission
from seer.engines.background import BackgroundEngine
from seer.engines.base import Constraint, Conversation, Finish, Generation, Request, SelectCall
from seer.engines.openai.http import Http, RetryAfter, key_from_environment
from seer.engines.openai.messages import (
    Continuation,
    ImageFormat,
    Parts,
    as_chat,
    chat_messages,
    completion_prompt,
    data_url,
    first_choice,
    read_call,
    read_text,
    usage_counts,
)
from seer.engines.openai.probe import Abilities, Structure, probe
from seer.errors import EngineError, PromptTooLong, SeerError
from seer.protocol.control import CONTROL
from seer.protocol.encoding import Encoder
from seer.protocol.grammar import call_schema, call_structural_tag
from seer.protocol.literals import restore
from seer.schema import Page

if TYPE_CHECKING:
    from tenacity import RetryCallState

_Result = TypeVar("_Result")
DEFAULT_POSITIONS = 131072
FORMATS: tuple[tuple[ImageFormat, ...], ...] = (("png",), ("png", "jpeg"))
"""PNG is exact. Where it is too large for the server, each page is sent in the format that is smaller."""
PART_BYTES = 160
"""Around each picture: its label, and JSON."""


class OpenAIEngine(BackgroundEngine[str]):
    """Generates through one address. The API key is read from the environment and stays in memory."""

    name = "openai"

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        *,
        tokenizer: str | None = None,
        structure: Structure | None = None,
        continuation: Continuation | None = None,
        api_key_env: str | None = None,
        max_concurrent: int = 64,
        max_waiting: int = 4096,
        timeout_s: float = 300.0,
        attempts: int = 4,
        backoff_s: float = 0.5,
        max_request_mb: float = 64.0,
        max_positions: int | None = None,
    ) -> None:
        """`model`: its name at the server; may be left out where the server has one. `tokenizer`: a checkpoint folder.

        `structure` and `continuation` skip what the probe would find out. `timeout_s` is for one attempt.
        Raises InputError (no address, no such model), EngineError (nobody answers there).
        """
        self.encoder: Encoder | None = None
        if tokenizer is not None:
            from seer.models.checkpoint import load_encoder

            self.encoder = load_encoder(tokenizer)[0]
        self.timeout_s, self.attempts, self.backoff_s = timeout_s, max(1, attempts), backoff_s
        self.max_request_bytes = int(max_request_mb * 1e6)
        self.max_concurrent = max_concurrent
        self.admission = Admission(max_concurrent, max_waiting)
        key = key_from_environment(api_key_env)
        self._http = Http(base_url, timeout_s=timeout_s, max_connections=max_concurrent + 4, key=key)
        super().__init__(len)  # a thread begins: what fails from here on must end it
        try:
            found = self.run(self._retried(lambda: probe(self._http, model, structure, continuation)))
        except BaseException:
            self.close()
            raise
        self.abilities: Abilities = found
        self.max_positions = max_positions or found.max_positions or DEFAULT_POSITIONS

    @property
    def constrains(self) -> bool:
        return self.abilities.structure == "structural_tag"

    # ── The interface ────────────────────────────────────────────────────────────────────────────

    def trouble(self) -> str:
        """A server that is away may come back: each request finds out for itself."""
        return ""

    async def _end(self) -> None:
        await self._http.close()

    # ── One request ──────────────────────────────────────────────────────────────────────────────

    async def _generate_one(self, request: Request) -> Generation:
        started = time.perf_counter()
        try:
            async with self.admission.enter():
                body = await self._body(request)
                generation = await self._retried(lambda: self._attempt(request, body))
        except SeerError as error:
            generation = Generation.failed(error)
        return replace(generation, seconds=time.perf_counter() - started)

    async def _retried(self, work: Callable[[], Awaitable[_Result]]) -> _Result:
        """Try again only where it can help, waiting longer each time and never in step with others."""
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

        spread = wait_random_exponential(multiplier=self.backoff_s, max=30)

        def wait(state: RetryCallState) -> float:
            failure = state.outcome.exception() if state.outcome else None
            asked = failure.seconds if isinstance(failure, RetryAfter) else 0.0
            return asked + spread(state)

        retrying = AsyncRetrying(
            stop=stop_after_attempt(self.attempts),
            wait=wait,
            retry=retry_if_exception(lambda error: isinstance(error, EngineError) and error.retryable),
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                return await work()
        raise AssertionError("tenacity re-raises the last failure")

    async def _attempt(self, request: Request, body: Mapping[str, Any]) -> Generation:
        try:
            async with asyncio.timeout(self.timeout_s):
                if "prompt" in body:
                    reply = as_chat(await self._http.post("/completions", body))
                elif request.on_text is None:
                    reply = await self._http.post("/chat/completions", body)
                else:
                    streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
                    reply = await collect_stream(self._http.events("/chat/completions", streamed), request)
        except TimeoutError:
            raise EngineError(f"the server took longer than {self.timeout_s:g} s", retryable=True) from None
        return self._read(request, reply)

    # ── What is sent ─────────────────────────────────────────────────────────────────────────────

    async def _body(self, request: Request) -> dict[str, Any]:
        size = 0
        for kinds in FORMATS:
            assert isinstance(request.prompt, Conversation)
            pages = list(request.prompt.pages.values())
            urls = await asyncio.to_thread(self._urls, request.session, pages, kinds)
            body = request_body(request, urls, self.abilities)
            size = len(json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass"))
            if size <= self.max_request_bytes:
                return body
        raise PromptTooLong(
            f"the request takes {size / 1e6:.1f} MB even with JPEG pictures and the server takes "
            f"{self.max_request_bytes / 1e6:g} MB: use fewer or smaller pages, a denser style, or set max_request_mb"
        )

    @property
    def max_picture_bytes(self) -> int:
        """An eighth of a request is left for its text."""
        return max(1, self.max_request_bytes * 7 // 8)

    def picture_bytes(self, session: str, pages: Sequence[Page]) -> list[int]:
        # without drawing any: three bytes a pixel are four in base64, and no picture takes more
        taken = [PART_BYTES + 4 * page.width_px * page.height_px for page in pages]
        for kinds in FORMATS:
            if sum(taken) <= self.max_picture_bytes:
                break
            taken = [PART_BYTES + len(url) for url in self._urls(session, pages, kinds).values()]
        return taken

    def _urls(self, conversation: str, pages: Sequence[Page], kinds: Sequence[ImageFormat]) -> dict[int, str]:
        """Of each page the smallest picture in these formats."""

        def drawn(page: Page, kind: ImageFormat) -> str:
            return self._drawn.get(conversation, (page.content_hash, kind), lambda: data_url(page.image(), kind))

        return {page.number: min((drawn(page, kind) for kind in kinds), key=len) for page in pages}

    # ── What comes back ──────────────────────────────────────────────────────────────────────────

    def _read(self, request: Request, reply: Any) -> Generation:
        message, finish = first_choice(reply)
        if finish == "content_filter":
            raise EngineError("the server's content filter withheld the reply")
        prompt, cached, completion = usage_counts(reply)
        parts, ids = self._parts(request, reply, message)
        ended: Finish = "length" if finish == "length" else "stop"
        return Generation(
            parts=parts,
            ids=ids,
            finish=ended,
            prompt_tokens=prompt,
            cached_tokens=cached,
            completion_tokens=completion,
        )

    def _parts(self, request: Request, reply: Any, message: Mapping[str, Any]) -> tuple[Parts, tuple[int, ...] | None]:
        written = reply["choices"][0].get("token_ids")
        constrained = request.required_call is not None
        if self.encoder is not None and isinstance(written, list) and all(map(_is_token_id, written)):
            if constrained and (close := self.encoder.control(CONTROL.close_call)) in written:
                written = written[: written.index(close) + 1]  # the stop token behind it is no part of the call
            parts = tuple((name, restore(text)) for name, text in self.encoder.split(written))
            return parts, tuple(written) if constrained else None
        text = message.get("content") or ""
        if constrained:
            return read_call(text, message.get("tool_calls")), None
        return read_text(text, message.get("reasoning_content") or message.get("reasoning") or ""), None


# ── Parts without state ──────────────────────────────────────────────────────────────────────────


def _is_token_id(value: Any) -> bool:
    """Whether it is a token id that an encoded conversation can hold."""
    return type(value) is int and 0 <= value < 2**31


def request_body(request: Request, urls: Mapping[int, str], abilities: Abilities) -> dict[str, Any]:
    """The body of a chat completion; of a plain one, with `prompt` for `messages`, where the prompt stands outside the chat."""
    assert isinstance(request.prompt, Conversation)
    prompt, goes_on = completion_prompt(request.prompt.turns), False
    asked: dict[str, Any] = {"prompt": prompt}
    if prompt is None:
        messages, goes_on = chat_messages(request.prompt.turns, urls, abilities.continuation)
        asked = {"messages": messages}
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": abilities.model,
        **asked,
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
    }
    if abilities.is_vllm:
        body |= {"top_k": sampling.top_k, "repetition_penalty": 1.0}
        body |= {"skip_special_tokens": False, "return_token_ids": True}
    if goes_on:
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    if (call := request.required_call) is not None:
        return body | constraint_fields(call, abilities)
    if abilities.ids:
        body["stop_token_ids"] = [abilities.ids[CONTROL.user], abilities.ids[CONTROL.end_of_text]]
        body["logit_bias"] = dict.fromkeys(map(str, suppressed(request.constraint, abilities.ids)), -100)
    return body


def suppressed(constraint: Constraint | None, ids: Mapping[str, int]) -> list[int]:
    """Control tokens that the model may not write here."""
    spoken = {CONTROL.user, CONTROL.end_of_text, CONTROL.open_think, CONTROL.close_think}
    if isinstance(constraint, SelectCall):
        spoken |= {CONTROL.open_call, CONTROL.close_call}
    return sorted(token_id for name, token_id in ids.items() if name not in spoken)


def constraint_fields(constraint: SelectCall, abilities: Abilities) -> dict[str, Any]:
    """What holds the reply to a select call, as far as this server can."""
    allowed, limit = constraint.allowed, constraint.max_pages
    if abilities.structure == "structural_tag":
        opening, closing = abilities.ids[CONTROL.open_call], abilities.ids[CONTROL.close_call]
        tag = call_structural_tag(opening, closing, allowed, limit)
        return {"structured_outputs": {"structural_tag": json.dumps(tag)}}
    if abilities.structure == "json_schema":
        schema = {"name": "select_call", "strict": True, "schema": call_schema(allowed, limit)}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    return {}


async def collect_stream(events: AsyncIterator[Any], request: Request) -> dict[str, Any]:
    """A streamed reply as one body, its text handed out on the way.

    What was handed out cannot be taken back: a stream that breaks after its first text is not tried again.
    """
    text, reasoning, finish = "", "", ""
    ids: list[Any] = []
    usage: Any = None
    tags = TagStream(request)
    try:
        async for event in events:
            if not isinstance(event, Mapping):
                raise EngineError("the server's stream holds an event that is no JSON object", retryable=True)
            usage = event.get("usage") or usage
            if not event.get("choices"):
                continue
            message, ended = first_choice(event)
            finish = ended or finish
            text += message.get("content") or ""
            thought = message.get("reasoning_content") or message.get("reasoning") or ""
            reasoning += thought
            tags(thought, message.get("content") or "")
            some = event["choices"][0].get("token_ids") or []
            ids += some if isinstance(some, list) else [None]  # which is no id: the text is read instead
    except EngineError as error:
        raise EngineError(str(error), retryable=error.retryable and not (text or reasoning)) from None
    if not finish:
        raise EngineError("the server's stream ended without a finish reason", retryable=not (text or reasoning))
    tags.end()
    choice = {"message": {"content": text, "reasoning_content": reasoning}, "finish_reason": finish, "token_ids": ids}
    if not ids:
        del choice["token_ids"]
    return {"choices": [choice], "usage": usage}


class TagStream:
    """Hands text on as it comes, and control tokens, which here are spelled, by name.

    What may be the beginning of a tag, or of neutralised text, is kept back until it is decided.
    """

    def __init__(self, request: Request) -> None:
        self._on_text, self._on_control = request.on_text, request.on_control
        self._kept = ""
        self._thinks_apart = False

    def __call__(self, reasoning: str, text: str) -> None:
        if reasoning:
            if not self._thinks_apart:
                self._thinks_apart = True
                self._control(CONTROL.open_think)
            self._text(reasoning)
        if text:
            if self._thinks_apart:
                self._thinks_apart = False
                self._control(CONTROL.close_think)
            self._kept += text
            last = max(self._kept.rfind("<"), self._kept.rfind("["))
            # the longest control literal has 28 characters; a joiner or two may stand in it
            undecided = last >= 0 and len(self._kept) - last < 32 and ">" not in self._kept[last:]
            cut = last if undecided else len(self._kept)
            self._emit(self._kept[:cut])
            self._kept = self._kept[cut:]

    def end(self) -> None:
        self._emit(self._kept)
        self._kept = ""

    def _emit(self, text: str) -> None:
        for name, part in read_text(text):
            if name:
                self._control(name)
            else:
                self._text(part)

    def _control(self, name: str) -> None:
        if self._on_control:
            self._on_control(name)

    def _text(self, text: str) -> None:
        if text and self._on_text:
            self._on_text(text)
