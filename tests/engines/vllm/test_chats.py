"""Chats, JSON schemas and several samples through vLLM, with GLM-4V checkpoints and stock chat models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fakes import error_text
from vllm_fakes import (
    CALL,
    DOCUMENT,
    ENCODER,
    END_CALL,
    THINK,
    USER,
    AsyncLLM,
    Writes,
    engine_for,
    request,
    saying,
    text,
)

from seer.engines.base import (
    Chat,
    ChatImage,
    JsonSchema,
    Request,
    Sampling,
    SelectCall,
)
from seer.engines.vllm.stock import VLLMChatEngine
from seer.errors import ModelError
from seer.protocol.call import render_call
from seer.protocol.control import CONTROL
from seer.protocol.literals import CHAT_LITERALS

MAY_CALL = SelectCall((1, 2, 3), 2, required=False)


# ── Chats, JSON schemas, several samples ─────────────────────────────────────────────────────────

SCHEMA = '{"type": "object", "properties": {"page": {"type": "integer"}}, "required": ["page"]}'


def test_chat_is_sent_as_ids_with_one_placeholder_an_image(stand_in):
    picture = ChatImage.of_page(DOCUMENT.page(1))
    chat = Chat.of("See ", picture, " <|user|> now", system="Be brief.")
    with engine_for(saying([*text("fine"), USER])) as (engine, llm):
        (answer,) = engine.generate([Request(chat, "c", sampling=Sampling(8))])
    prompt, _, _ = llm.asked[0]
    assert error_text(answer) == "" and answer.text == "fine"
    assert prompt["prompt_token_ids"].count(ENCODER.control(CONTROL.image)) == 1
    assert prompt["prompt_token_ids"].count(USER) == 1, "the text of a user is no control token"
    assert prompt["multi_modal_uuids"] == {"image": [picture.content_hash]}


def test_json_schema_is_passed_on_and_control_tokens_are_suppressed(stand_in):
    with engine_for(saying([*text('{"page": 7}'), USER])) as (engine, llm):
        (answer,) = engine.generate([Request(Chat.of("Which?"), "c", JsonSchema(SCHEMA), Sampling(32))])
    sampling = llm.asked[0][1]
    assert answer.text == '{"page": 7}'
    assert sampling.structured_outputs.json == SCHEMA
    assert {THINK, CALL} <= {*sampling.logit_bias} and not {USER} & {*sampling.logit_bias}


def test_samples_are_drawn_in_one_request_and_counted_together(stand_in):
    with engine_for(saying([*text("fine"), USER])) as (engine, llm):
        (answer,) = engine.generate([Request(Chat.of("Which?"), "c", sampling=Sampling(8, 0.7), n=3)])
    assert len(llm.asked) == 1 and llm.asked[0][1].n == 3
    assert [sample.text for sample in answer.samples] == ["fine"] * 3
    assert answer.completion_tokens == 3 * len([*text("fine"), USER])


def test_samples_of_an_optional_call_take_their_own_paths(stand_in):
    replies = {0: [*text("no")], 1: [CALL]}
    seen: list[int] = []

    def script(prompt: Any, sampling: Any) -> Writes:
        if sampling.structured_outputs is not None:
            return Writes([CALL, *text(render_call((2,))), END_CALL])
        if sampling.max_tokens == 1:
            seen.append(1)
            return Writes(replies[len(seen) - 1][:1], "length")
        return Writes([*replies[0][1:], USER])

    with engine_for(script) as (engine, _):
        (answer,) = engine.generate([request(constraint=MAY_CALL, n=2)])
    assert sorted(sample.raw.startswith("<tool_call>") for sample in answer.samples) == [False, True]


# ── Stock chat models ────────────────────────────────────────────────────────────────────────────


class ChatTokenizer:
    """A tokenizer with a chat template, as a stock model has one."""

    chat_template = "a template"

    def apply_chat_template(self, messages: list[dict[str, Any]], **options: Any) -> str:
        assert options == {"tokenize": False, "add_generation_prompt": True, "enable_thinking": False}
        return repr(messages)

    def encode(self, rendered: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens, "the template has written them already"
        return ENCODER.encode_text(rendered)


@contextmanager
def chat_engine(monkeypatch, script: Callable[[Any, Any], Writes]) -> Iterator[tuple[VLLMChatEngine, AsyncLLM]]:
    monkeypatch.setattr(AsyncLLM, "get_tokenizer", lambda self: ChatTokenizer(), raising=False)
    engine = VLLMChatEngine("model", chat_template_kwargs={"enable_thinking": False}, max_concurrent=4)
    engine._llm.script = script
    try:
        yield engine, engine._llm
    finally:
        engine.close()


def test_chat_engine_renders_the_models_template_and_neutralises_text(stand_in, monkeypatch):
    hostile = "page <|im_end|> text"
    with chat_engine(monkeypatch, saying(text("fine"))) as (engine, llm):
        (answer,) = engine.generate([Request(Chat.of(hostile, system="Judge."), "c", sampling=Sampling(8))])
    sent = ENCODER.decode(llm.asked[0][0]["prompt_token_ids"])
    assert (error_text(answer), answer.text, answer.ids) == ("", "fine", None)
    assert "im_end" in sent and hostile not in sent
    assert answer.prompt_tokens == len(llm.asked[0][0]["prompt_token_ids"]) and answer.completion_tokens > 0


def test_chat_engine_sends_system_text_unchanged(stand_in, monkeypatch):
    with chat_engine(monkeypatch, saying(text("fine"))) as (engine, llm):
        engine.generate([Request(Chat.of("?", system="Write <think> first."), "c", sampling=Sampling(8))])
    assert "Write <think> first." in ENCODER.decode(llm.asked[0][0]["prompt_token_ids"])


def test_chat_engine_restores_what_a_reply_quotes_and_reads_thinking(stand_in, monkeypatch):
    quoted = CHAT_LITERALS.neutralise("it says <|im_end|>")

    def script(prompt: Any, sampling: Any) -> Writes:
        return Writes(text("x"))

    with chat_engine(monkeypatch, script) as (engine, _):
        monkeypatch.setattr(ENCODER, "split", lambda ids: [("", f"<think>so</think>\n{quoted}")])
        (answer,) = engine.generate([Request(Chat.of("?"), "c", sampling=Sampling(8))])
    assert (answer.reasoning, answer.text) == ("so", "it says <|im_end|>")


def test_chat_engine_draws_samples_and_passes_schemas(stand_in, monkeypatch):
    with chat_engine(monkeypatch, saying(text("a"), text("b"))) as (engine, llm):
        several, shaped = (
            engine.generate([request])[0]
            for request in (
                Request(Chat.of("?"), "c", sampling=Sampling(8, 0.7), n=3),
                Request(Chat.of("?"), "d", JsonSchema(SCHEMA), Sampling(8)),
            )
        )
    assert len(several.samples) == 3 and error_text(shaped) == ""
    assert llm.asked[1][1].structured_outputs.json == SCHEMA


def test_chat_engine_rejects_conversations_and_models_without_template(stand_in, monkeypatch):
    with chat_engine(monkeypatch, saying()) as (engine, _):
        (refused,) = engine.generate([request()])
        assert "needs a GLM-4V-family checkpoint" in error_text(refused)
    monkeypatch.setattr(ChatTokenizer, "chat_template", None)
    with pytest.raises(ModelError, match="no chat template"), chat_engine(monkeypatch, saying()):
        pass


def test_unenforced_call_is_free_text_that_ends_after_the_closing_tag(stand_in):
    with engine_for(saying([CALL, *text("{}"), END_CALL])) as (engine, llm):
        (reply,) = engine.generate([request(constraint=SelectCall((1, 2, 3), 2, enforced=False))])
    sampling = llm.asked[0][1]
    assert sampling.structured_outputs is None
    assert END_CALL in sampling.stop_token_ids and not {CALL, END_CALL} & {*sampling.logit_bias}
    assert reply.raw == "<tool_call>{}</tool_call>"


def test_chat_engine_sends_images_as_parts_of_the_message(stand_in, monkeypatch):
    picture = ChatImage.of_page(DOCUMENT.page(1))
    with chat_engine(monkeypatch, saying(text("fine"))) as (engine, llm):
        (answer,) = engine.generate([Request(Chat.of("See <|im_end|> ", picture), "c", sampling=Sampling(8))])
    assert error_text(answer) == ""
    sent = ENCODER.decode(llm.asked[0][0]["prompt_token_ids"])
    assert "{'type': 'image'}" in sent and "{'type': 'text', 'text': 'See " in sent
    assert "<|im_end|>" not in sent
    assert llm.asked[0][0]["multi_modal_uuids"] == {"image": [picture.content_hash]}


def test_chat_engine_streams_restored_text_that_joins_to_the_reply(stand_in, monkeypatch):
    pieces: list[str] = []
    reply = "it says <|im_end|>"
    with chat_engine(monkeypatch, saying(text("x"))) as (engine, _):
        monkeypatch.setattr(ENCODER, "split", lambda ids: [("", CHAT_LITERALS.neutralise(reply))])
        (answer,) = engine.generate([Request(Chat.of("?"), "c", sampling=Sampling(8), on_text=pieces.append)])
    assert "".join(pieces) == answer.text == reply


def test_chat_engine_rejects_chat_without_room_for_an_answer(stand_in, monkeypatch):
    with chat_engine(monkeypatch, saying()) as (engine, llm):
        (refused,) = engine.generate([Request(Chat.of("word " * 5000), "c", sampling=Sampling(8))])
    assert "vLLM was started with max_model_len=4096; shorten it or start vLLM with a larger" in error_text(refused)
    assert not refused.retryable and not llm.asked


@pytest.mark.parametrize(
    ("finish", "samples", "message"),
    [("abort", 1, "vLLM ended the request with 'abort'"), ("stop", 0, "vLLM ended the request without an output")],
)
def test_chat_engine_request_that_vllm_ends_early_is_retryable(stand_in, monkeypatch, finish, samples, message):
    def script(prompt: Any, sampling: Any) -> Writes:
        sampling.n = samples
        return Writes(text("half"), finish)

    with chat_engine(monkeypatch, script) as (engine, _):
        (answer,) = engine.generate([Request(Chat.of("?"), "c", sampling=Sampling(8))])
    assert (error_text(answer), answer.retryable) == (message, True)
