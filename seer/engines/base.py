"""The contract of every engine: requests in, generations out.

A `Request` asks for the continuation of one prompt. The prompt is a `Conversation` in Seer's own protocol (pages shown as
images, select calls, observations) or a `Chat` of free messages. Requests of one `session` share their prefix, and an
engine may keep what it computed for it until `forget`. A request that fails does not affect the others: its `Generation`
carries the error.

    engine.generate([Request(Chat.of("Who wrote this?", image), session="1", constraint=JsonSchema(schema))])
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

from seer.errors import EngineError, InputError, SeerError
from seer.protocol.control import CONTROL
from seer.protocol.encoding import Encoder
from seer.schema import Page, Turn

if TYPE_CHECKING:
    import numpy as np

Finish = Literal["stop", "length", "error"]
Role = Literal["system", "user", "assistant"]
Parts = tuple[tuple[str, str], ...]
"""Model output in order: control tokens as (name, "") and text as ("", text)."""
_Result = TypeVar("_Result")


# ── Prompts ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Conversation:
    """A prompt in Seer's protocol, encoded by `seer.protocol.encoding.Encoder`."""

    turns: tuple[Turn, ...]
    pages: Mapping[int, Page] = field(default_factory=dict)
    """Every page that a turn shows as an image, by number."""
    written: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Token ids of turns that the model wrote itself, by turn index."""

    @property
    def page_sizes(self) -> dict[int, tuple[int, int]]:
        """(width, height) in pixels of every page, by number."""
        return {number: (page.width_px, page.height_px) for number, page in self.pages.items()}


@dataclass(frozen=True)
class ChatImage:
    """An image in a chat: a page, or a crop of one. It is drawn only when an engine needs its pixels."""

    content_hash: str
    """Equal hashes mean equal pixels."""
    width_px: int
    height_px: int
    draw: Callable[[], np.ndarray] = field(compare=False)
    """Returns uint8 of shape (height_px, width_px), or (height_px, width_px, 3)."""

    @classmethod
    def of_page(cls, page: Page) -> ChatImage:
        """The image of a whole page."""
        return cls(page.content_hash, page.width_px, page.height_px, page.image)

    @classmethod
    def of_pixels(cls, pixels: np.ndarray) -> ChatImage:
        """An image from its pixels: uint8 (height, width) or (height, width, 3)."""
        digest = hashlib.sha256(repr(pixels.shape).encode() + pixels.tobytes()).hexdigest()
        return cls(digest, pixels.shape[1], pixels.shape[0], lambda: pixels)


@dataclass(frozen=True)
class Message:
    """One message of a chat: texts and images in the order in which the model sees them."""

    role: Role
    content: tuple[str | ChatImage, ...]

    @property
    def text(self) -> str:
        """The message's texts joined, images left out."""
        return "".join(part for part in self.content if isinstance(part, str))


@dataclass(frozen=True)
class Chat:
    """A prompt of free messages. The model answers as the assistant."""

    messages: tuple[Message, ...]

    def __post_init__(self) -> None:
        roles = [message.role for message in self.messages]
        if not roles or roles[-1] != "user":
            raise InputError(f"a chat with roles {roles}: the last message must be the user's")
        if "system" in roles[1:]:
            raise InputError(f"a chat with roles {roles}: a system message must be the first")

    @classmethod
    def of(cls, *content: str | ChatImage, system: str = "") -> Chat:
        """A chat of one user message, after an optional system message."""
        before = (Message("system", (system,)),) if system else ()
        return cls((*before, Message("user", content)))

    @property
    def images(self) -> tuple[ChatImage, ...]:
        """All images of the chat, in order."""
        return tuple(part for message in self.messages for part in message.content if isinstance(part, ChatImage))


# ── Requests ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. Temperature 0 is greedy; a seed makes sampling repeatable."""

    max_new_tokens: int = 1024
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps all tokens."""
    seed: int = 0


@dataclass(frozen=True)
class SelectCall:
    """Constrain the generation to a select call over the `allowed` pages (ascending), at most `max_pages` of them.

    With `required` False (rounds after the first) the model may think before it calls, and may answer instead.
    """

    allowed: tuple[int, ...]
    max_pages: int | None = None
    required: bool = True
    enforced: bool = True
    """False: no grammar restricts the call. The generation ends after </tool_call>, and the caller judges the call."""


@dataclass(frozen=True)
class JsonSchema:
    """Constrain the answer to JSON that fits a schema.

    An engine that cannot constrain reduces the reply to the object in it that fits (`seer.engines.json_reply`). If it
    holds none, the reply is unchanged, and the caller decides.
    """

    schema: str
    """The JSON schema as a JSON text, so that requests can be compared and hashed."""
    name: str = "reply"


Constraint = SelectCall | JsonSchema


@dataclass(frozen=True)
class Request:
    """The continuation of one prompt. Raises InputError for a combination that no engine serves."""

    prompt: Conversation | Chat
    session: str
    """Requests of one session share their prefix; `Engine.forget` ends it."""
    constraint: Constraint | None = None
    sampling: Sampling = Sampling()
    n: int = 1
    """Samples to draw from the same prompt. Sample i uses the seed `sampling.seed + i`, where the engine takes seeds."""
    on_text: Callable[[str], None] | None = None
    """Called with each piece of text as it is generated, without control tokens. An engine may ignore it."""
    on_control: Callable[[str], None] | None = None
    """Called with the name of each control token between those pieces: where thinking ends, text begins."""

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InputError(f"n={self.n}: must be at least 1")
        if self.n > 1 and (self.on_text is not None or self.on_control is not None):
            raise InputError(f"n={self.n} with streaming: only a request with n=1 can be streamed")
        if isinstance(self.constraint, SelectCall) and isinstance(self.prompt, Chat):
            raise InputError("a select call needs a Conversation; a Chat takes a JsonSchema or no constraint")

    @property
    def required_call(self) -> SelectCall | None:
        """The select call that the reply must be; None if the reply may be anything else."""
        return self.constraint if isinstance(self.constraint, SelectCall) and self.constraint.required else None


# ── Generations ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Completion:
    """One continuation of a prompt."""

    parts: Parts = ()
    ids: tuple[int, ...] | None = None
    """Token ids; None if the engine sees text only."""
    finish: Finish = "stop"

    @property
    def raw(self) -> str:
        """The output as text, control tokens spelled out."""
        return "".join(name or text for name, text in self.parts)

    @property
    def text(self) -> str:
        """The answer: the text after the thinking."""
        return split_reasoning(self.parts)[1]

    @property
    def reasoning(self) -> str:
        """The thinking before the answer; empty if there is none."""
        return split_reasoning(self.parts)[0]


@dataclass(frozen=True)
class Generation(Completion):
    """The outcome of a request: its first sample, the others, the tokens it used, or the error that ended it."""

    others: tuple[Completion, ...] = ()
    """Samples 2 to n."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that a key-value cache supplied."""
    completion_tokens: int = 0
    """Tokens of all samples together."""
    seconds: float = 0.0
    error: SeerError | None = None

    @classmethod
    def failed(cls, error: SeerError, seconds: float = 0.0) -> Generation:
        """The outcome of a request that ended in `error`."""
        return cls(finish="error", error=error, seconds=seconds)

    @property
    def samples(self) -> tuple[Completion, ...]:
        """All n samples."""
        return (self, *self.others)

    @property
    def retryable(self) -> bool:
        """True if the request failed and another attempt, or another engine, may succeed."""
        return isinstance(self.error, EngineError) and self.error.retryable

    def raise_error(self) -> None:
        """Raise the error of a failed request; do nothing for any other."""
        if self.error is not None:
            raise self.error


def split_reasoning(parts: Sequence[tuple[str, str]]) -> tuple[str, str, bool]:
    """(thinking, answer, whether there was thinking). An unclosed <think> holds all text that follows it."""
    think: list[str] = []
    answer: list[str] = []
    inside = thought = False
    for name, text in parts:
        if name == CONTROL.open_think:
            inside = thought = True
        elif name == CONTROL.close_think:
            # some models open their thinking in the prompt and only close it
            if not thought:
                think, answer, thought = answer, [], True
            inside = False
        elif not name:
            (think if inside else answer).append(text)
    return "".join(think), "".join(answer).strip("\n") if thought else "".join(answer), thought


# ── Engines ──────────────────────────────────────────────────────────────────────────────────────


class Engine(Protocol):
    """Requests in, generations out, in the same order."""

    @property
    def name(self) -> str:
        """The engine's name: hf, vllm, openai or scripted."""
        ...

    @property
    def encoder(self) -> Encoder | None:
        """Encodes prompts and counts their tokens; None if only a remote server can."""
        ...

    @property
    def constrains(self) -> bool:
        """True if a select call is grammatical and in range by construction."""
        ...

    @property
    def max_positions(self) -> int:
        """Positions of one request: prompt and new tokens together."""
        ...

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer every request. A failed one has finish "error" and carries its error; nothing is raised for it."""
        ...

    def forget(self, session: str) -> None:
        """Drop what is kept for this session."""
        ...


@runtime_checkable
class ConcurrentEngine(Protocol):
    """An engine that serves many sessions at once; each continues as soon as its own request is answered."""

    @property
    def max_concurrent(self) -> int:
        """Requests that are worth running at once; further ones only wait."""
        ...

    async def generate_one(self, request: Request) -> Generation:
        """Answer one request. May be awaited from any event loop; cancelling it cancels the request."""
        ...

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine that awaits this engine, from a thread without an event loop, and return its result."""
        ...


@runtime_checkable
class BoundedEngine(Protocol):
    """An engine that accepts a limited number of image bytes in one request."""

    @property
    def max_picture_bytes(self) -> int:
        """Image bytes that one request may hold."""
        ...

    def picture_bytes(self, session: str, pages: Sequence[Page]) -> list[int]:
        """Bytes of each page: an upper bound if all pages fit even so, exact values otherwise."""
        ...


@runtime_checkable
class CachingEngine(Protocol):
    """An engine that keeps computed state beyond the end of a session."""

    def drop_caches(self) -> None:
        """Discard all cached state. Must not be called while a request runs."""
        ...


async def generate_all(engine: ConcurrentEngine, requests: Sequence[Request]) -> list[Generation]:
    """Answer all requests at once, in their order."""
    return list(await asyncio.gather(*map(engine.generate_one, requests)))
