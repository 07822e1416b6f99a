"""Hostile replies: the openai engine reads any reply of a server or raises one clear error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fakes import small_encoder
from hypothesis import given, settings
from hypothesis import strategies as st
from openai_fakes import CALL, FREE, engine_for
from serving_fakes import Say

from seer.engines.base import Generation
from seer.engines.openai.engine import OpenAIEngine
from seer.engines.openai.probe import choose_model
from seer.engines.openai.replies import read_call
from seer.engines.openai.stream import collect_stream
from seer.protocol.call import parse_call_text, render_call
from tests.rendering.test_hostile_input import anything, numbers, objects, read, values

calls = st.fixed_dictionaries({"function": values | objects("name", "arguments")})
tool_calls = values | st.lists(values | calls, max_size=2)
messages = st.fixed_dictionaries(
    {}, optional={**dict.fromkeys(("content", "reasoning_content", "reasoning"), values), "tool_calls": tool_calls}
)
token_ids = values | st.lists(numbers | st.integers(0, 3000), max_size=4)
MORE = {"finish_reason": values, "token_ids": token_ids}
replies = st.fixed_dictionaries({"message": messages}, optional=MORE).map(lambda choice: {"choices": [choice]})
events = st.fixed_dictionaries({"delta": messages}, optional=MORE).map(lambda choice: {"choices": [choice]})


@pytest.fixture(scope="module")
def engine() -> Iterator[OpenAIEngine]:
    with engine_for(lambda body, number: Say("x")) as (one, _):
        one.encoder = small_encoder()
        yield one


@pytest.mark.parametrize("request_", [CALL, FREE], ids=["call", "free"])
@given(reply=replies | values)
@settings(anything, max_examples=200)
def test_any_reply_is_read_or_raises_a_seer_error(engine: OpenAIEngine, request_: Any, reply: Any) -> None:
    check(read(engine._read, request_, reply))


@given(stream=st.lists(events | values, max_size=3))
@settings(anything, max_examples=200)
def test_any_stream_is_read_or_raises_a_seer_error(engine: OpenAIEngine, stream: list[Any]) -> None:
    async def sent() -> AsyncIterator[Any]:
        for event in stream:
            yield event

    reply = read(lambda: asyncio.run(collect_stream(sent(), FREE)))
    check(reply and read(engine._read, FREE, reply))


def check(said: Generation | None) -> None:
    """A generation can be shown, and its ids can enter the next request."""
    if said is not None:
        assert isinstance(said.raw, str)
        small_encoder().encode(CALL.prompt.turns, CALL.prompt.page_sizes, {0: said.ids or ()})


@pytest.mark.parametrize("ids", [5, "12", {"1": 2}, [-1], [2**31], [2**40], [None], [True], [1.0]])
def test_reply_with_malformed_ids_is_read_from_its_text(engine: OpenAIEngine, ids: Any) -> None:
    whole = {"message": {"content": "fine"}, "finish_reason": "stop", "token_ids": ids}
    pieces = [{**whole, "delta": {"content": piece}} for piece in ("fi", "ne")]

    async def sent() -> AsyncIterator[Any]:
        for piece in pieces:
            yield {"choices": [piece]}

    for reply in ({"choices": [whole]}, asyncio.run(collect_stream(sent(), FREE))):
        assert engine._read(FREE, reply).raw == "fine"


@pytest.mark.parametrize("called", [5, "x", [5], [None], [[]], {"a": 1}, [{}], [{"function": 5}], [{"function": [1]}]])
def test_malformed_tool_call_is_recorded_as_not_json(engine: OpenAIEngine, called: Any) -> None:
    reply = {"choices": [{"message": {"content": None, "tool_calls": called}, "finish_reason": "tool_calls"}]}
    said = engine._read(CALL, reply)
    assert parse_call_text(said.raw, (1, 2, 3)).deviations == ("not_json",)


@given(values | objects("data") | st.fixed_dictionaries({"data": st.lists(values | objects("id"))}))
@anything
def test_any_list_of_models_is_read_or_raises_a_seer_error(listed: Any) -> None:
    read(choose_model, listed, None)
    read(choose_model, listed, "m")


@pytest.mark.parametrize("part", ["{", "}", '"indices"', "{" + '"indices"' * 4000, "{" + "x" * 20_000])
def test_bare_call_is_found_in_linear_time(part: str) -> None:
    """A hang shows as the time limit of the whole suite."""
    text = part * (2_000_000 // len(part))
    assert parse_call_text("".join(map("".join, read_call(text))), (1, 2)).pages == ()
    found = read_call(f"{text} {render_call((1, 2))} {text}")
    assert ("", render_call((1, 2))) in found
