"""Calls of the evidence systems: tolerant reading, one repetition, halved images, budgets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from seer.engines.base import Chat, ChatImage, Completion, Generation, Request
from seer.errors import EngineUnavailable, PromptTooLong, RequestRefused, SeerError
from seer.systems.evidence.budget import Budget, BudgetSpent, Spending
from seer.systems.evidence.calls import HALVED, UNUSABLE, Caller, UnusableReply, read_pages

SCHEMA = {"type": "object", "properties": {"pages": {"type": "array"}}, "required": ["pages"]}


def completion(text: str) -> Completion:
    return Completion((("", text),))


def caller(*outcomes: str | list[str] | SeerError, budget: Budget | None = None) -> tuple[Caller, list[Request]]:
    """A caller whose requests get these outcomes in order: a reply, the replies of several samples, or an error."""
    sent: list[Request] = []
    remaining = list(outcomes)

    async def generate_one(request: Request) -> Generation:
        sent.append(request)
        outcome = remaining.pop(0)
        if isinstance(outcome, SeerError):
            return Generation.failed(outcome)
        first, *others = [outcome] if isinstance(outcome, str) else outcome
        parts = (("", first),)
        return Generation(
            parts, others=tuple(map(completion, others)), prompt_tokens=100, completion_tokens=10, seconds=0.5
        )

    return Caller(generate_one, "q", Spending(budget or Budget())), sent


def ask(
    of: Caller, chat: Chat | None = None, read: Callable[[dict[str, Any]], Any] | None = None, **options: Any
) -> Any:
    return asyncio.run(
        of.ask(chat or Chat.of("Which pages?"), SCHEMA, read or (lambda reply: reply["pages"]), **options)
    )


def test_ask_reads_object_inside_prose_and_fences():
    of, sent = caller('Here it is:\n```json\n{"pages": [3]}\n```\nGood luck!')
    replies = ask(of)
    assert replies.value == [3] and replies.deviations == ()
    assert (replies.usage.prompt, replies.usage.completion, replies.seconds) == (100, 10, 0.5)
    assert json.loads(sent[0].constraint.schema) == SCHEMA


def test_ask_draws_samples_by_one_request_and_keeps_the_usable_ones():
    of, sent = caller(['{"pages": [1]}', "no idea", '{"pages": [2]}'])
    replies = ask(of, n=3, temperature=0.7, seed=5)
    assert replies.values == ([1], [2]) and replies.deviations == (UNUSABLE,)
    assert len(sent) == 1 and sent[0].n == 3 and sent[0].sampling.temperature == 0.7 and sent[0].sampling.seed == 5
    assert len(replies.raw) == 3


@pytest.mark.parametrize(
    "bad", ["", "no", "[1]", '{"other": 1}', '{"pages": "x"}', '{"pages": [1]', '{"pages": ["a"]}']
)
def test_ask_repeats_unusable_reply_once_with_a_reminder(bad):
    def read(reply: dict[str, Any]) -> list[int]:
        return [int(page) for page in reply["pages"]]

    of, sent = caller(bad, '{"pages": [4]}')
    replies = ask(of, read=read)
    assert replies.value == [4] and replies.deviations == (UNUSABLE,) and replies.usage.prompt == 200
    assert len(sent) == 2 and "could not be read" in sent[1].prompt.messages[-1].text
    assert sent[1].sampling.seed != sent[0].sampling.seed and sent[1].session != sent[0].session


def test_ask_raises_after_two_unusable_replies():
    of, sent = caller("no", "still no", '{"pages": [1]}')
    with pytest.raises(UnusableReply, match="held no such object .*still no.*JSON object with pages"):
        ask(of)
    assert len(sent) == 2


def test_ask_raises_engine_error_without_repeating():
    of, sent = caller(EngineUnavailable("away"), '{"pages": [1]}')
    with pytest.raises(EngineUnavailable):
        ask(of)
    assert len(sent) == 1


@pytest.mark.parametrize(
    "message",
    [
        "Image exceeds the maximum size of 2048 px",
        "messages.0.content.1.image: image dimensions are too large",
        "The picture is too big",
        "too large an image for this model",
        "total pixels exceed the limit",
    ],
)
def test_ask_halves_images_that_the_server_rejects(message):
    image = ChatImage.of_pixels(np.full((400, 200), 255, np.uint8))
    of, sent = caller(RequestRefused(message), PromptTooLong(message), '{"pages": [1]}')
    replies = ask(of, Chat.of("look", image))
    assert replies.deviations == (HALVED,)
    sizes = [(request.prompt.images[0].width_px, request.prompt.images[0].height_px) for request in sent]
    assert sizes == [(200, 400), (100, 200), (50, 100)]
    assert sent[2].prompt.images[0].draw().shape == (100, 50)
    assert len({request.prompt.images[0].content_hash for request in sent}) == 3


def test_ask_halves_images_at_most_three_times():
    image = ChatImage.of_pixels(np.full((400, 400), 255, np.uint8))
    of, sent = caller(*[RequestRefused("image too large")] * 9)
    with pytest.raises(RequestRefused):
        ask(of, Chat.of("look", image))
    assert len(sent) == 4


@pytest.mark.parametrize("error", [RequestRefused("content filter"), PromptTooLong("maximum context length is 8192")])
def test_ask_raises_refusals_that_are_not_about_image_size(error):
    image = ChatImage.of_pixels(np.full((40, 40), 255, np.uint8))
    of, sent = caller(error)
    with pytest.raises(type(error)):
        ask(of, Chat.of("look", image))
    assert len(sent) == 1


@pytest.mark.parametrize(
    ("budget", "calls", "name"),
    [
        (Budget(max_calls=2), 2, "max_calls=2"),
        (Budget(max_tokens=150), 2, "max_tokens=150"),
        (Budget(max_usd=0.0002, usd_per_million_prompt=1, usd_per_million_completion=1), 2, "max_usd=0.0002"),
    ],
)
def test_ask_refuses_calls_beyond_the_budget(budget, calls, name):
    of, sent = caller(*['{"pages": [1]}'] * 5, budget=budget)
    for _ in range(calls):
        ask(of)
    with pytest.raises(BudgetSpent, match=f"budget is spent: .* of {name}; raise {name.split('=')[0]}"):
        ask(of)
    assert len(sent) == calls


def test_ask_ends_call_that_takes_longer_than_the_budget():
    async def slow(request: Request) -> Generation:
        await asyncio.sleep(30)
        raise AssertionError

    of = Caller(slow, "q", Spending(Budget(max_seconds=0.05)))
    with pytest.raises(BudgetSpent, match=r"max_seconds=0\.05; raise max_seconds"):
        ask(of)


def test_spending_charges_cached_tokens_by_their_price():
    budget = Budget(usd_per_million_prompt=10, usd_per_million_cached=1, usd_per_million_completion=100)
    spending = Spending(budget)
    spending.add(Generation(prompt_tokens=1000, cached_tokens=400, completion_tokens=10))
    assert spending.usd == pytest.approx((600 * 10 + 400 * 1 + 10 * 100) / 1e6)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([3, 1, 3], (1, 3)),
        (["2", "page 4"], (2, 4)),
        ("pages 3, 5-7", (3, 5, 6, 7)),
        (7, (7,)),
        ([2.0], (2,)),
        ([0, -1, 99, 2.5], ()),
        ("1-999999", tuple(range(1, 11))),
        ("7–5", ()),
        ("none", ()),
        ([], ()),
    ],
)
def test_read_pages_accepts_what_models_write(value, expected):
    assert read_pages(value, 10) == expected


@pytest.mark.parametrize("value", [None, True, {"a": 1}, [[1]], [None]])
def test_read_pages_rejects_other_values(value):
    with pytest.raises(ValueError, match="not a page number"):
        read_pages(value, 10)
