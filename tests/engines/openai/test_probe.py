"""The probe of a server at the start, and the requests to a server with all abilities."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from openai_fakes import CALL, FREE, PAGES, PROMPT
from serving_fakes import FakeServer, Say, serve

from seer.engines.base import Conversation, Request, SelectCall
from seer.engines.openai.engine import OpenAIEngine
from seer.engines.openai.probe import choose_model
from seer.errors import EngineError, InputError
from seer.protocol.call import parse_call_text, render_call
from seer.protocol.control import CONTROL

IDS = {name: 100 + n for n, name in enumerate(CONTROL.names())}
CARD = {"id": "seer-9b", "owned_by": "vllm", "max_model_len": 16384}
TAGGED = f"{CONTROL.open_call}{render_call((7,))}{CONTROL.close_call}"
REFUSED = Say(status=400)


def tokens(*ids: Any) -> Say:
    return Say(raw=json.dumps({"tokens": ids}).encode())


class VLLM:
    """A vLLM server; its reply to each request of the probe can be set."""

    def __init__(self, **says: Any) -> None:
        self.token = says.get("token", lambda name: tokens(IDS[name]))
        self.chat = says.get(
            "chat", tokens(*(IDS[n] for n in (CONTROL.assistant, CONTROL.open_call, CONTROL.observation)))
        )
        self.tagged = says.get("tagged", Say(TAGGED))
        self.schema = says.get("schema", Say(render_call((7,))))
        self.other = says.get("other", Say("fine"))

    def tokenize(self, body: Mapping[str, Any]) -> Say:
        return self.token(body["prompt"]) if "prompt" in body else self.chat

    def script(self, body: Mapping[str, Any], number: int) -> Say:
        if "structured_outputs" in body:
            return self.tagged
        return self.schema if "response_format" in body else self.other


@contextmanager
def engine_for(
    server: VLLM, card: Mapping[str, Any] = CARD, **options: Any
) -> Iterator[tuple[OpenAIEngine, FakeServer]]:
    with serve(server.script, dict(card), server.tokenize) as one:
        engine = OpenAIEngine(one.base_url, backoff_s=0.0, timeout_s=10.0, **options)
        try:
            yield engine, one
        finally:
            engine.close()


# ── Abilities ────────────────────────────────────────────────────────────────────────────


def test_probe_of_vllm_with_seer_checkpoint_finds_the_grammar():
    with engine_for(VLLM()) as (engine, _):
        found = engine.abilities
        assert (found.model, found.structure, found.continuation) == ("seer-9b", "structural_tag", "tool")
        assert (found.is_vllm, engine.max_positions, dict(found.ids)) == (True, 16384, IDS)
        assert engine.constrains


@pytest.mark.parametrize("tagged", [REFUSED, Say("As you wish."), Say(render_call((7,)) + " it is"), Say("")])
def test_probe_ignores_a_grammar_that_is_not_followed(tagged):
    with engine_for(VLLM(tagged=tagged)) as (engine, _):
        assert engine.abilities.structure == "json_schema"
    with engine_for(VLLM(tagged=tagged, schema=Say(render_call((8,))))) as (engine, _):
        assert engine.abilities.structure == "none"


def test_probe_accepts_text_after_the_closing_tag():
    with engine_for(VLLM(tagged=Say(TAGGED + "<|user|>"))) as (engine, _):
        assert engine.abilities.structure == "structural_tag"


NO_SINGLE_TOKENS = [
    REFUSED,
    tokens(1, 2),
    tokens(),
    tokens("12"),
    tokens(True),
    Say(raw=b"[1]"),
    Say(raw=b'{"tokens": 3}'),
]


@pytest.mark.parametrize("token", NO_SINGLE_TOKENS, ids=lambda say: str(say.raw or say.status))
def test_probe_of_vllm_without_control_tokens_finds_schemas(token):
    server = VLLM(token=lambda name: token if name == CONTROL.close_think else tokens(IDS[name]))
    with engine_for(server) as (engine, asked):
        found = engine.abilities
        assert (found.structure, found.continuation, found.ids) == ("json_schema", "user", {})
        assert not any("structured_outputs" in body for body in asked.asked)
    with (
        pytest.raises(InputError, match="needs a vLLM server whose tokenizer has Seer's control tokens"),
        engine_for(server, structure="structural_tag"),
    ):
        pass


@pytest.mark.parametrize("chat", [REFUSED, tokens(), tokens(*[IDS[CONTROL.assistant]] * 2), Say(raw=b"null")])
def test_probe_of_template_without_tools_finds_assistant_continuation(chat):
    with engine_for(VLLM(chat=chat)) as (engine, _):
        assert engine.abilities.continuation == "assistant"


def broken_once(say: Say) -> Any:
    """Fails the first time, with an error that a retry may fix."""
    said = iter([Say(status=503)])
    return lambda *_: next(said, say)


def test_passing_fault_during_the_probe_is_retried_and_decides_nothing():
    """A server that is only just starting must not be taken for one that can do less."""
    server = VLLM()
    chat, tagged = broken_once(server.chat), broken_once(server.tagged)
    token = server.token
    first = broken_once(Say())
    server.token = lambda name: say if (say := first()).status == 503 else token(name)
    server.tokenize = lambda body: server.token(body["prompt"]) if "prompt" in body else chat()  # type: ignore[method-assign]
    server.script = lambda body, n: tagged()  # type: ignore[method-assign]
    with engine_for(server) as (engine, _):
        assert (engine.abilities.structure, engine.abilities.continuation) == ("structural_tag", "tool")


@pytest.mark.parametrize("part", ["token", "chat", "tagged"])
def test_server_broken_during_the_probe_raises_a_retryable_error(part):
    broken = Say(status=503)
    server = VLLM(**{part: (lambda name: broken) if part == "token" else broken})
    with pytest.raises(EngineError, match="answered 503") as caught, engine_for(server, attempts=2):
        pass
    assert caught.value.retryable


def test_given_abilities_are_not_probed():
    with engine_for(VLLM(), structure="structural_tag", continuation="assistant", max_positions=99) as (engine, server):
        assert (engine.abilities.structure, engine.abilities.continuation) == ("structural_tag", "assistant")
        assert engine.max_positions == 99
        assert not server.asked


@pytest.mark.parametrize("length", [None, "long", 16384.5])
def test_window_that_is_not_an_integer_becomes_the_default(length):
    with engine_for(VLLM(), {**CARD, "max_model_len": length}) as (engine, _):
        assert engine.max_positions == 131072


ONE, TWO = {"data": [{"id": "a"}]}, {"data": [{"id": "a"}, {"id": "b"}, {"id": ""}, 5]}


def test_choose_model_returns_the_named_or_the_only_model():
    assert choose_model(ONE, None) == {"id": "a"}
    assert choose_model(TWO, "b") == {"id": "b"}
    with pytest.raises(InputError, match="name the model with --model; the server has: a, b$"):
        choose_model(TWO, None)
    with pytest.raises(InputError, match="no model 'c'; it has: a, b$"):
        choose_model(TWO, "c")


@pytest.mark.parametrize("listed", [{}, {"data": None}, {"data": []}, [], None])
def test_choose_model_trusts_the_name_if_the_server_lists_none(listed):
    assert choose_model(listed, "hidden") == {"id": "hidden"}
    with pytest.raises(InputError, match="name the model with --model; the server has: no list of models"):
        choose_model(listed, None)


# ── Requests and replies ───────────────────────────────────────────────────────────────────


def test_call_is_constrained_to_the_pages_of_its_request():
    with engine_for(VLLM()) as (engine, server):
        engine.generate([CALL])
    body = server.asked[-1]
    opening, grammar, closing = json.loads(body["structured_outputs"]["structural_tag"])["format"]["elements"]
    assert (opening["token"], closing["token"]) == (IDS[CONTROL.open_call], IDS[CONTROL.close_call])
    assert '"3"' in grammar["grammar"] and '"4"' not in grammar["grammar"]
    assert (body["return_token_ids"], body["skip_special_tokens"]) == (True, False)
    assert "logit_bias" not in body  # the grammar alone decides


@pytest.mark.parametrize("may_call", [False, True])
def test_free_text_suppresses_misplaced_control_tokens(may_call):
    constraint = SelectCall((1, 2), 1, required=False) if may_call else None
    with engine_for(VLLM()) as (engine, server):
        engine.generate([Request(Conversation(PROMPT, PAGES), "c", constraint=constraint)])
    body = server.asked[-1]
    assert body["stop_token_ids"] == [IDS[CONTROL.user], IDS[CONTROL.end_of_text]]
    allowed = {CONTROL.user, CONTROL.end_of_text, CONTROL.open_think, CONTROL.close_think}
    allowed |= {CONTROL.open_call, CONTROL.close_call} if may_call else set()
    assert {int(key) for key in body["logit_bias"]} == {IDS[name] for name in set(IDS) - allowed}


def test_reply_with_token_ids_is_read_from_them(small_checkpoint_dir):
    """Text that only looks like a control token stays text, and generated ids enter the next request unchanged."""
    with engine_for(VLLM(), tokenizer=str(small_checkpoint_dir)) as (engine, _):
        encoder = engine.encoder
        assert encoder is not None
        opening, closing, stop = map(encoder.control, (CONTROL.open_call, CONTROL.close_call, CONTROL.user))
        call = [opening, *encoder.encode_text(render_call((1, 3))), closing]
        choice = {"message": {"content": "unread"}, "finish_reason": "stop", "token_ids": [*call, stop]}
        said = engine._read(CALL, {"choices": [choice]})
        assert said.ids == tuple(call)
        assert parse_call_text(said.raw, (1, 2, 3)).pages == (1, 3)
        free = engine._read(FREE, {"choices": [{**choice, "token_ids": call}]})
        assert (free.raw, free.ids) == (said.raw, None)


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("stream", [False, True])
def test_unenforced_call_ends_at_its_closing_tag_which_is_restored(required, stream):
    """vLLM leaves the stop token out of the text and names it as the stop reason."""
    call = SelectCall((1, 2, 3), required=required, enforced=False)
    request = Request(Conversation(PROMPT, PAGES), "c", call, on_text=[].append if stream else None)
    content = f"{CONTROL.open_call}{render_call((1,))}"
    choice = {"message": {"content": content}, "finish_reason": "stop", "stop_reason": IDS[CONTROL.close_call]}
    with engine_for(VLLM(other=Say(raw=json.dumps({"choices": [choice]}).encode()))) as (engine, server):
        (answer,) = engine.generate([request])
    assert "structured_outputs" not in server.asked[-1]
    assert IDS[CONTROL.close_call] in server.asked[-1]["stop_token_ids"]
    assert answer.raw == f"{content}{CONTROL.close_call}"
    assert not parse_call_text(answer.raw, (1, 2, 3)).deviations
