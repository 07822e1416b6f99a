"""What every engine offers: requests in, generations out.

A `Request` is the next thing a conversation needs from the model. Requests with the same `conversation` share their
prefix, and an engine may keep what it computed for it until `forget`. One failing request must not fail the others: it
comes back as a `Generation` with `finish="error"`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from seer.errors import EngineError, PromptTooLong, SeerError
from seer.protocol.encoding import Encoder
from seer.schema import Page, Turn

Finish = Literal["stop", "length", "error"]
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Sampling:
    """How to draw tokens. Temperature 0 is greedy. A seed makes sampling repeatable."""

    max_new_tokens: int = 1024
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0


@dataclass(frozen=True)
class SelectConstraint:
    """The generation must be a select call over the `allowed` pages (ascending), with at most `max_pages` of them.

    With `required` False (rounds after the first) the model may think before it calls, and may answer instead.
    """

    allowed: tuple[int, ...]
    max_pages: int | None = None
    required: bool = True


@dataclass(frozen=True)
class Request:
    conversation: str
    turns: tuple[Turn, ...]
    pages: Mapping[int, Page]
    """Every page that a turn shows as an image, by number."""
    written: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Ids of turns that the model wrote itself, by turn index."""
    constraint: SelectConstraint | None = None
    sampling: Sampling = Sampling()
    on_text: Callable[[str], None] | None = None
    """Called with each piece of text as it is generated, control tokens left out. May be ignored by an engine."""
    on_control: Callable[[str], None] | None = None
    """Called with the name of each control token between those pieces: where thinking ends, text begins."""

    @property
    def page_sizes(self) -> dict[int, tuple[int, int]]:
        return {number: (page.width_px, page.height_px) for number, page in self.pages.items()}


@dataclass(frozen=True)
class Generation:
    """What the model wrote. `parts` alternate between control tokens (name, "") and text ("", text)."""

    parts: tuple[tuple[str, str], ...] = ()
    ids: tuple[int, ...] | None = None
    """None where the engine sees text only."""
    finish: Finish = "stop"
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    error: str = ""
    retryable: bool = False
    """For an error: the fault lies with the engine or its place, and another may do."""
    too_long: bool = False
    """For an error: the request takes more than the engine can."""

    @classmethod
    def failed(cls, error: SeerError) -> Generation:
        """What a request that ended in this error was answered with."""
        again = isinstance(error, EngineError) and error.retryable
        return cls(finish="error", error=str(error), retryable=again, too_long=isinstance(error, PromptTooLong))

    @property
    def raw(self) -> str:
        return "".join(name or text for name, text in self.parts)


class Engine(Protocol):
    """Requests in, generations out, in the same order."""

    name: str
    encoder: Encoder | None
    """None where tokens are counted by a remote server."""
    constrains: bool
    """True where a select call is grammatical and in range by construction."""
    max_positions: int

    def generate(self, requests: Sequence[Request]) -> list[Generation]: ...

    def forget(self, conversation: str) -> None:
        """Drop what is kept for this conversation."""
        ...


@runtime_checkable
class ConcurrentEngine(Protocol):
    """An engine that serves many conversations at once, each going on as soon as its own request is answered.

    `generate_one` may be awaited from any event loop; cancelling it takes the request back. `run` waits, from a thread
    without an event loop, for work that awaits this engine.
    """

    max_concurrent: int
    """Requests that are worth having under way at once; more only wait."""

    async def generate_one(self, request: Request) -> Generation: ...

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result: ...


@runtime_checkable
class BoundedEngine(Protocol):
    """An engine that takes only so many bytes of pictures in one request."""

    @property
    def max_picture_bytes(self) -> int: ...

    def picture_bytes(self, conversation: str, pages: Sequence[Page]) -> list[int]:
        """What each page takes of them: at most so much, where all pages fit even so, else exactly."""
        ...


@runtime_checkable
class CachingEngine(Protocol):
    """An engine that keeps what it computed beyond the end of a conversation."""

    def drop_caches(self) -> None:
        """Nothing that was computed is used again. Not while a request runs."""
        ...


async def generate_all(engine: ConcurrentEngine, requests: Sequence[Request]) -> list[Generation]:
    return list(await asyncio.gather(*map(engine.generate_one, requests)))
