"""Calls of one question: chats whose replies are JSON, read tolerantly, within a budget.

caller = Caller(engine.generate_one, session="question-1", spending=Spending(Budget()))
replies = await caller.ask(chat, schema, read=to_pages, n=8, temperature=0.7)
replies.values      # what `read` made of each usable reply
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from seer.engines.base import Chat, Completion, Generation, JsonSchema, Message, Request, Sampling
from seer.engines.json_reply import read_json
from seer.errors import PromptTooLong, ProtocolError, RequestRefused
from seer.schema import StepUsage
from seer.systems.evidence.budget import Spending, out_of_time
from seer.systems.evidence.images import halve_images

Value = TypeVar("Value")
Read = Callable[[dict[str, Any]], Value]
"""Turns a reply's JSON object into what the caller needs. Raises ValueError, TypeError or KeyError if it cannot."""

UNUSABLE = "unusable-reply"
HALVED = "images-halved"
_MAX_HALVINGS = 3
_IMAGE_TOO_LARGE = re.compile(
    r"(image|picture|pixel)[^.]{0,80}(too (large|big|many)|exceed|larger than|maximum|limit)"
    r"|(exceed|too (large|big))[^.]{0,80}(image|picture|pixel)",
    re.IGNORECASE,
)
_REMINDER = "\n\nYour last reply could not be read. Reply with one JSON object of the form above and nothing else."


class UnusableReply(ProtocolError):
    """No reply of the model could be read, after one more request."""


@dataclass(frozen=True)
class Replies(Generic[Value]):
    """The usable replies of one call, and what the call cost."""

    values: tuple[Value, ...]
    raw: tuple[str, ...]
    """The text of every reply, unusable ones included."""
    usage: StepUsage
    seconds: float
    """Time from the first request to the last reply."""
    finish: str
    deviations: tuple[str, ...] = ()
    """`unusable-reply` if a reply could not be read, `images-halved` if the server rejected the images' size."""

    @property
    def value(self) -> Value:
        """The first usable reply."""
        return self.values[0]


class Caller:
    """Sends the chats of one question. Calls may run at the same time; the budget counts all of them."""

    def __init__(
        self, generate_one: Callable[[Request], Awaitable[Generation]], session: str, spending: Spending
    ) -> None:
        self._generate_one, self._session, self.spending = generate_one, session, spending
        self._num_sessions = 0

    async def ask(
        self,
        chat: Chat,
        schema: Mapping[str, Any],
        read: Read[Value],
        *,
        n: int = 1,
        temperature: float = 0.0,
        seed: int = 0,
        max_new_tokens: int = 1024,
    ) -> Replies[Value]:
        """Send a chat and read its replies.

        Args:
            chat: The messages. If the server rejects the size of its images, they are halved, at most three times.
            schema: JSON schema of the reply; engines that can hold the model to it do.
            read: Turns the JSON object of a reply into a value.
            n: Samples, drawn by one request where the engine can.
            temperature, seed: How they are drawn; sample i uses `seed + i`.
            max_new_tokens: Limit of each reply.

        Raises UnusableReply if no reply can be read, after one more request, BudgetSpent if the budget allows no call,
        and the engine's error if it fails.
        """
        sampling = Sampling(max_new_tokens, temperature, seed=seed)
        constraint = JsonSchema(json.dumps(schema, sort_keys=True))
        generations: list[Generation] = []
        deviations: list[str] = []
        values: list[Value] = []
        for number in range(2):
            request = Request(chat, self._new_session(), constraint, sampling, n=n if number == 0 else 1)
            generation, halved = await self._send(request)
            generations.append(generation)
            deviations += [HALVED] * halved
            values = [value for sample in generation.samples for value in _read_sample(sample, schema, read)]
            if len(values) < len(generation.samples):
                deviations.append(UNUSABLE)
            if values:
                break
            chat = _remind(halve_images(chat) if halved else chat)
            sampling = replace(sampling, seed=seed + n)
        if not values:
            ending = "ended at its token limit" if generations[-1].finish == "length" else "held no such object"
            raise UnusableReply(
                f"the model's reply {ending} ({generations[-1].raw[:120]!r}); it must be a JSON object with "
                f"{', '.join(schema.get('required', ()))}: raise max_new_tokens, or use a model that follows a schema"
            )
        return Replies(
            values=tuple(values),
            raw=tuple(sample.raw for generation in generations for sample in generation.samples),
            usage=sum_usage(generations),
            seconds=sum(generation.seconds for generation in generations),
            finish=generations[-1].finish,
            deviations=tuple(dict.fromkeys(deviations)),
        )

    def _new_session(self) -> str:
        """Return the name of a session of its own: the calls of a question share no prefix that an engine could keep."""
        self._num_sessions += 1
        return f"{self._session}:{self._num_sessions}"

    @property
    def sessions(self) -> tuple[str, ...]:
        """The sessions of all calls, for `Engine.forget`."""
        return tuple(f"{self._session}:{number}" for number in range(1, self._num_sessions + 1))

    async def _send(self, request: Request) -> tuple[Generation, bool]:
        """Send a request; return its outcome, and whether its images were halved. Raises the engine's error."""
        halvings = 0
        while True:
            generation = await self._send_once(request)
            error = generation.error
            if error is None:
                return generation, halvings > 0
            assert isinstance(request.prompt, Chat)
            is_size = isinstance(error, RequestRefused | PromptTooLong) and _IMAGE_TOO_LARGE.search(str(error))
            if not is_size or not request.prompt.images or halvings == _MAX_HALVINGS:
                raise error
            request = replace(request, prompt=halve_images(request.prompt), session=self._new_session())
            halvings += 1

    async def _send_once(self, request: Request) -> Generation:
        self.spending.open_call()
        try:
            async with asyncio.timeout(self.spending.seconds_left):
                generation = await self._generate_one(request)
        except TimeoutError:
            raise out_of_time(self.spending.budget) from None
        self.spending.add(generation)
        return generation


async def run_together(work: Iterable[Coroutine[Any, Any, Value]]) -> list[Value]:
    """Run coroutines at the same time and return their results in order.

    If one fails, the others are cancelled and its error is raised by itself, without a group around it.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def sum_usage(generations: Sequence[Generation]) -> StepUsage:
    """Return the tokens of several requests together."""
    return StepUsage(
        prompt=sum(generation.prompt_tokens for generation in generations),
        completion=sum(generation.completion_tokens for generation in generations),
        cached=sum(generation.cached_tokens for generation in generations),
    )


def _read_sample(sample: Completion, schema: Mapping[str, Any], read: Read[Value]) -> list[Value]:
    """Return the value of a reply, or an empty list if it cannot be read."""
    found = read_json(sample.text, schema)
    if found is None:
        return []
    try:
        return [read(json.loads(found))]
    except (ValueError, TypeError, KeyError):
        return []


def _remind(chat: Chat) -> Chat:
    """Return the chat with a reminder of the reply's form at its end."""
    *before, last = chat.messages
    return Chat((*before, Message(last.role, (*last.content, _REMINDER))))


# ── Reading values that models write in many ways ────────────────────────────────────────────────

_PAGE = re.compile(r"(\d{1,6})(?:\s*[-–—]\s*(\d{1,6}))?")


def read_pages(value: Any, num_pages: int) -> tuple[int, ...]:
    """Return the page numbers in a reply, ascending and unique; those outside 1 to `num_pages` are left out.

    Accepts a list of numbers or texts, a number, or a text such as "pages 3, 5-7". Raises ValueError for anything else.
    """
    items = value if isinstance(value, list) else [value]
    pages: set[int] = set()
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int | float | str):
            raise ValueError(f"{item!r:.80} is not a page number")
        if isinstance(item, str):
            for first, last in _PAGE.findall(item):
                # A range is clipped to the document before it is expanded, so a hostile one costs nothing.
                pages.update(range(max(1, int(first)), min(num_pages, int(last or first)) + 1))
        elif 1 <= item <= num_pages and item == int(item):
            pages.add(int(item))
    return tuple(sorted(pages))
