"""Servers that refuse a sampling parameter: the request is adapted and sent again, and the lesson is remembered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai_fakes import CALL, FREE, engine_for
from serving_fakes import Say

from seer.engines.base import Chat, Request, Sampling
from seer.engines.openai.dialect import Dialect


def refusing(refused: dict[str, str], shape: str = "message") -> Any:
    """A script that answers 400 as long as a parameter is sent, with the text for it."""

    def script(body: dict[str, Any], number: int) -> Say:
        for name, text in refused.items():
            if name in body:
                error = {"error": {"message": text}} if shape == "message" else {"detail": text}
                return Say(status=400 if shape == "message" else 422, raw=json.dumps(error).encode())
        return Say("ok")

    return script


OPENAI = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
REFUSALS = {
    "openai reasoning models": {
        "max_tokens": OPENAI,
        "temperature": "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) is supported.",
        "top_p": "Unsupported parameter: 'top_p' is not supported with this model.",
    },
    "gemini": {"seed": 'Invalid JSON payload received. Unknown name "seed": Cannot find field.'},
    "litellm": {
        "seed": "litellm.UnsupportedParamsError: anthropic does not support parameters: ['seed']",
        "top_p": "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
    },
    "strict validation": {"seed": "body.seed: Extra inputs are not permitted"},
}


@pytest.mark.parametrize("shape", ["message", "detail"])
@pytest.mark.parametrize("refused", REFUSALS.values(), ids=REFUSALS)
def test_engine_adapts_to_refused_parameters_and_remembers_them(refused, shape):
    with engine_for(refusing(refused, shape)) as (engine, server):
        (first,) = engine.generate([FREE])
        asked = len(server.asked)
        (second,) = engine.generate([FREE])
    assert (first.text, second.text) == ("ok", "ok")
    assert asked == len(refused) + 1 and len(server.asked) == asked + 1
    last = server.asked[-1]
    assert not set(refused) & set(last)
    assert (last.get("max_completion_tokens") or last.get("max_tokens")) == FREE.sampling.max_new_tokens
    if "top_p" in refused and "temperature" not in refused:
        assert "temperature" in last


def test_engine_adapts_streams_too():
    pieces: list[str] = []
    from dataclasses import replace

    with engine_for(refusing({"max_tokens": OPENAI})) as (engine, server):
        (answer,) = engine.generate([replace(FREE, on_text=pieces.append)])
    assert answer.text == "ok" and "".join(pieces) == "ok"
    assert [("max_tokens" in body) for body in server.asked] == [True, False]


def test_engine_lowers_a_token_limit_that_the_server_names():
    def script(body: dict[str, Any], number: int) -> Say:
        if body["max_tokens"] > 32:
            text = "max_tokens is too large: 64. This model supports at most 32 completion tokens."
            return Say(status=400, raw=json.dumps({"error": {"message": text}}).encode())
        return Say("ok")

    with engine_for(script) as (engine, server):
        assert engine.generate([FREE])[0].text == "ok"
    assert [body["max_tokens"] for body in server.asked] == [64, 32]


def test_engine_does_not_repeat_a_refusal_that_names_no_parameter():
    with engine_for(
        lambda body, number: Say(status=400, raw=b'{"error": {"message": "The image cannot be read"}}')
    ) as (
        engine,
        server,
    ):
        (answer,) = engine.generate([FREE])
    assert answer.error is not None and len(server.asked) == 1


def test_engine_gives_up_if_a_refusal_names_a_parameter_that_is_not_sent_any_more():
    refusal = Say(status=400, raw=b'{"error": {"message": "seed and temperature are wrong"}}')
    with engine_for(lambda body, number: refusal) as (engine, server):
        (answer,) = engine.generate([CALL])
    assert answer.error is not None and len(server.asked) == 3


def test_dialect_keeps_serialised_bodies_until_something_is_refused():
    dialect, body = Dialect(), b'{"model": "m", "seed": 1}'
    assert dialect.apply(body) is body
    assert dialect.learn('unknown name "seed"', body)
    assert dialect.apply(body) == {"model": "m"}
    assert not dialect.learn('unknown name "seed"', json.dumps(dialect.apply(body)).encode())


def test_engine_never_leaves_out_parameters_that_the_user_set_by_name():
    request = Request(Chat.of("hello"), "c", sampling=Sampling(max_new_tokens=8))
    with engine_for(
        refusing({"chat_template_kwargs": "unknown parameter: chat_template_kwargs"}),
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    ) as (engine, server):
        (answer,) = engine.generate([request])
    assert answer.error is not None and len(server.asked) == 1
