"""What the vLLM engine asks of vLLM and makes of its replies. A stand-in plays vLLM; `test_vllm_load` asks the real one."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fakes import error_text, make_document, small_encoder

from seer.engines.base import (
    Chat,
    ChatImage,
    Conversation,
    Generation,
    JsonSchema,
    Request,
    Sampling,
    SelectCall,
)
from seer.engines.vllm import engine as vllm
from seer.engines.vllm import runtime, start
from seer.errors import ConfigError, ModelError
from seer.protocol.call import render_call
from seer.protocol.control import CONTROL
from seer.reading.reader import Reader
from seer.schema import Status, Turn

DOCUMENT = make_document(["a\n", "b\n", "c\n"], width_px=112, height_px=112)
PAGES = {page.number: page for page in DOCUMENT}
PROMPT = (Turn(kind="prompt", text="What?", pages=(1, 2, 3)),)
SIZES = {page.number: (page.width_px, page.height_px) for page in DOCUMENT}
ENCODER = small_encoder()
SPREAD = ENCODER.encode(PROMPT, SIZES).vision_tokens // 3
THINK, END_THINK, CALL, END_CALL, USER = (
    ENCODER.control(name)
    for name in (CONTROL.open_think, CONTROL.close_think, CONTROL.open_call, CONTROL.close_call, CONTROL.user)
)
WAIT_S = 30


@dataclass
class Writes:
    """What vLLM writes to one request."""

    ids: list[int]
    finish: str | None = "stop"
    cached: int | None = None


@dataclass
class AsyncEngineArgs:
    model: str = ""
    max_model_len: int = 4096
    limit_mm_per_prompt: dict[str, int] = field(default_factory=dict)
    enable_prefix_caching: bool = False
    disable_log_stats: bool = False
    dtype: str = "auto"
    enforce_eager: bool = False
    block_size: int = 16
    distributed_executor_backend: str | None = None


class AsyncLLM:
    """vLLM's own engine as far as ours uses it: it spreads each image and writes what the script says."""

    spread = SPREAD
    script: Callable[[Any, Any], Writes]

    def __init__(self, arguments: AsyncEngineArgs) -> None:
        self.asked: list[tuple[dict[str, Any], Any, str]] = []
        self.ended = self.errored = False
        self.output_handler: asyncio.Task[None] | None = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]
        self.model_config = SimpleNamespace(max_model_len=arguments.max_model_len)
        self.vllm_config = SimpleNamespace(cache_config=SimpleNamespace(block_size=16))

    @classmethod
    def from_engine_args(cls, arguments: AsyncEngineArgs) -> AsyncLLM:
        if arguments.model == "unfit":
            raise ValueError from RuntimeError("no weights for layer 7\nand a long trace")
        return cls(arguments)

    async def generate(self, prompt: dict[str, Any], sampling: Any, request_id: str) -> AsyncIterator[Any]:
        self.asked.append((prompt, sampling, request_id))
        writes = self.script(prompt, sampling)
        await asyncio.sleep(0)
        image, seen = ENCODER.control(CONTROL.image), []
        for token in prompt["prompt_token_ids"]:
            seen += [token] * (self.spread if token == image else 1)
        pieces = [[token] for token in writes.ids] if sampling.output_kind == "delta" else [writes.ids]
        for number, piece in enumerate(pieces, 1):
            finish = writes.finish if number == len(pieces) else None
            text = "".join(part for _, part in ENCODER.split(piece))
            outs = [
                SimpleNamespace(index=index, token_ids=piece, text=text, finish_reason=finish)
                for index in range(sampling.n)
            ]
            yield SimpleNamespace(prompt_token_ids=seen, num_cached_tokens=writes.cached, outputs=outs)

    def shutdown(self) -> None:
        self.ended = True


@pytest.fixture
def stand_in(monkeypatch) -> None:
    """vLLM is the stand-in, and any checkpoint has the small encoder."""

    def module(name: str, **members: Any) -> None:
        made = ModuleType(name)
        made.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, made)

    kinds = SimpleNamespace(DELTA="delta", FINAL_ONLY="final")

    def params(**values: Any) -> SimpleNamespace:
        return SimpleNamespace(**{"structured_outputs": None, **values})

    for package in ("vllm", "vllm.engine", "vllm.v1", "vllm.v1.engine"):
        module(package)
    module("vllm.engine.arg_utils", AsyncEngineArgs=AsyncEngineArgs)
    module("vllm.platforms", current_platform=SimpleNamespace(is_cpu=lambda: True))
    module("vllm.v1.engine.async_llm", AsyncLLM=AsyncLLM)
    module(
        "vllm.sampling_params", SamplingParams=params, RequestOutputKind=kinds, StructuredOutputsParams=SimpleNamespace
    )
    monkeypatch.setattr("importlib.metadata.version", lambda package: "0.32.0")
    monkeypatch.setattr("seer.models.checkpoint.load_encoder", lambda path: (ENCODER, None, None))
    monkeypatch.setattr(start, "usable_cores", lambda: 2)
    for name in ("VLLM_LOGGING_LEVEL", "VLLM_NO_USAGE_STATS", "VLLM_ENABLE_V1_MULTIPROCESSING"):
        monkeypatch.setenv(name, "")  # which is undone, while what is set where nothing was would stay
        monkeypatch.delenv(name)


@contextmanager
def engine_for(script: Callable[[Any, Any], Writes], **options: Any) -> Iterator[tuple[vllm.VLLMEngine, AsyncLLM]]:
    engine = vllm.VLLMEngine("model", **options)
    engine._llm.script = script
    try:
        yield engine, engine._llm
    finally:
        engine.close()


def saying(*replies: list[int], finish: str = "stop") -> Callable[[Any, Any], Writes]:
    told = iter(replies)
    return lambda prompt, sampling: Writes(next(told), finish)


def text(words: str) -> list[int]:
    return ENCODER.encode_text(words)


def request(**more: Any) -> Request:
    return Request(Conversation(PROMPT, PAGES), "c", **{"sampling": Sampling(max_new_tokens=64), **more})


CALLED = [CALL, *text(render_call((1, 3))), END_CALL]
MAY_CALL = SelectCall((1, 2, 3), 2, required=False)


# ── One request ──────────────────────────────────────────────────────────────────────────────────


def test_images_go_by_their_hash_with_one_placeholder_each_and_are_drawn_once(stand_in):
    with engine_for(saying(text("one"), text("two"))) as (engine, llm):
        first, second = (engine.generate([request()])[0] for _ in range(2))
    assert (first.raw, second.raw, first.finish) == ("one", "two", "stop")
    (prompt, sampling, number), (again, _, other) = llm.asked
    assert prompt["prompt_token_ids"].count(ENCODER.control(CONTROL.image)) == 3
    assert prompt["multi_modal_uuids"]["image"] == [page.content_hash for page in DOCUMENT]
    drawn, drawn_again = (asked["multi_modal_data"]["image"] for asked in (prompt, again))
    assert all(one is two for one, two in zip(drawn, drawn_again, strict=True))
    assert number != other
    assert first.prompt_tokens == len(ENCODER.encode(PROMPT, SIZES))
    # what the model may not write has no probability, and what ends a turn ends the request
    assert set(sampling.stop_token_ids) == set(ENCODER.stop_ids)
    assert sampling.logit_bias[CALL] == float("-inf") and THINK not in sampling.logit_bias


def test_a_prompt_without_pages_sends_no_pictures(stand_in):
    with engine_for(saying(text("fine"))) as (engine, llm):
        engine.generate([Request(Conversation((Turn(kind="prompt", text="What?"),)), "c")])
    assert llm.asked[0][0].keys() == {"prompt_token_ids"}


def test_a_call_is_constrained_and_the_stop_token_behind_it_is_no_part_of_it(stand_in):
    with engine_for(saying([*CALLED, USER])) as (engine, llm):
        (said,) = engine.generate([request(constraint=SelectCall((1, 3), 2))])
    assert (said.ids, said.finish, said.completion_tokens) == (tuple(CALLED), "stop", len(CALLED) + 1)
    sampling = llm.asked[0][1]
    assert '"3"' in sampling.structured_outputs.structural_tag.replace("\\", "")
    assert not hasattr(sampling, "stop_token_ids")


def test_text_streams_token_by_token_and_cached_tokens_are_reported(stand_in):
    pieces: list[str] = []
    names: list[str] = []
    written = [THINK, *text("so"), END_THINK, *text("The answer is 42.")]
    with engine_for(lambda prompt, sampling: Writes(written, cached=32)) as (engine, _):
        (said,) = engine.generate([request(on_text=pieces.append, on_control=names.append)])
    assert ("".join(pieces), names) == ("soThe answer is 42.", ["<think>", "</think>"])
    assert len(pieces) > 2
    assert (said.cached_tokens, said.ids) == (32, tuple(written))


def test_a_whole_reading(stand_in):
    with engine_for(saying(CALLED, [*text("found"), USER])) as (engine, _):
        answer = Reader(engine).ask(DOCUMENT, "What?")
    assert (answer.status, answer.text, answer.selected_pages) == (Status.ANSWERED, "found", (1, 3))


# ── A further call, or the answer ────────────────────────────────────────────────────────────────

THOUGHT = [*text("hm"), END_THINK]


@pytest.mark.parametrize(
    ("replies", "whole"),
    [
        ([[CALL], CALLED], CALLED),
        ([[THINK], THOUGHT, [CALL], CALLED], [THINK, *THOUGHT, *CALLED]),
        ([[THINK], THOUGHT, text("42")[:1], text("2")], [THINK, *THOUGHT, *text("42")[:1], *text("2")]),
        ([text("4")[:1], [*text("2"), USER]], [*text("4")[:1], *text("2"), USER]),
        ([[THINK], THOUGHT, [USER]], [THINK, *THOUGHT, USER]),
        ([[USER]], [USER]),
    ],
    ids=["call", "thought, call", "thought, answer", "answer", "thought alone", "nothing"],
)
def test_a_further_call_may_come_at_once_or_after_thinking_or_not(stand_in, replies, whole):
    with engine_for(saying(*replies)) as (engine, llm):
        (said,) = engine.generate([request(constraint=MAY_CALL)])
    assert (error_text(said), said.ids, said.completion_tokens) == ("", tuple(whole), sum(map(len, replies)))
    assert said.parts == tuple(ENCODER.split(whole))
    assert len(llm.asked) == len(replies)
    begin = llm.asked[0][0]["prompt_token_ids"]
    for (asked, sampling, _), before in zip(llm.asked[1:], replies, strict=False):
        # every later request begins with all that was said, but for the call's first token, which the grammar writes
        assert asked["prompt_token_ids"][: len(begin)] == begin
        if sampling.structured_outputs is None:
            assert asked["prompt_token_ids"][-len(before) :] == before
        else:
            assert asked["prompt_token_ids"][-1] != CALL


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_what_is_said_before_a_further_call_counts_against_the_limit(stand_in, limit):
    def script(prompt: Any, sampling: Any) -> Writes:
        return Writes([THINK] if sampling.max_tokens == 1 else text("hm hm hm")[: sampling.max_tokens], "length")

    with engine_for(script) as (engine, _):
        (said,) = engine.generate([request(constraint=MAY_CALL, sampling=Sampling(max_new_tokens=limit))])
    assert said.finish == "length"
    assert len(said.ids or ()) <= limit


# ── Faults ───────────────────────────────────────────────────────────────────────────────────────


def one(engine: vllm.VLLMEngine, **more: Any) -> Generation:
    (said,) = engine.generate([request(**more)])
    return said


def test_a_prompt_without_room_for_an_answer_is_refused_with_what_to_change(stand_in):
    with engine_for(saying()) as (engine, llm):
        said = one(engine, sampling=Sampling(max_new_tokens=4090))
    assert (said.finish, said.retryable) == ("error", False)
    assert "4090 may follow; vLLM was started with max_model_len=4096: use fewer pages" in error_text(said)
    assert not llm.asked


def test_images_of_another_size_than_counted_are_refused(stand_in, monkeypatch):
    monkeypatch.setattr(AsyncLLM, "spread", SPREAD + 1)
    with engine_for(saying(text("x"))) as (engine, _):
        said = one(engine)
    count = len(ENCODER.encode(PROMPT, SIZES))
    assert f"vLLM made {count + 3} tokens of a prompt that takes {count}" in error_text(said)


def test_a_request_that_vllm_aborts_may_be_tried_again(stand_in):
    with engine_for(saying(text("half"), finish="abort")) as (engine, _):
        said = one(engine)
    assert (error_text(said), said.retryable) == ("vLLM ended the request with 'abort'", True)


def test_what_vllm_raises_fails_one_request_and_no_other(stand_in):
    def script(prompt: Any, sampling: Any) -> Writes:
        if sampling.temperature:
            raise RuntimeError from ValueError("the grammar does not compile\nat line 3")
        return Writes(text("fine"))

    with engine_for(script) as (engine, llm):
        bad = request(sampling=Sampling(max_new_tokens=8, temperature=1.0))
        failed, fine = engine.generate([bad, request()])
        assert (error_text(failed), fine.raw) == ("vLLM: the grammar does not compile", "fine")
        assert engine.trouble() == ""
        llm.errored = True
        assert error_text(one(engine, sampling=bad.sampling)) == "the vLLM engine process has ended; start it again"


def test_an_engine_that_ends_in_silence_fails_what_waits_for_it(stand_in, monkeypatch):
    monkeypatch.setattr(runtime, "LOOK_EVERY_S", 0.02)
    with engine_for(saying()) as (engine, llm):

        async def hanging(*_: Any) -> AsyncIterator[Any]:
            llm.errored = True
            await asyncio.Event().wait()
            yield

        llm.generate = hanging  # type: ignore[method-assign,assignment]
        assert error_text(one(engine)) == "the vLLM engine process has ended; start it again"
        assert engine.admission.under_way == 0


def test_a_request_that_takes_too_long_is_taken_back(stand_in):
    taken_back = threading.Event()

    async def hanging(*_: Any) -> AsyncIterator[Any]:
        try:
            await asyncio.Event().wait()
            yield
        finally:
            taken_back.set()

    with engine_for(saying(), timeout_s=0.05) as (engine, llm):
        llm.generate = hanging  # type: ignore[method-assign,assignment]
        said = one(engine)
        assert error_text(said) == "vLLM took longer than the 0.05 s that a request may take"
        assert taken_back.wait(WAIT_S)
        assert engine.admission.under_way == 0


def test_more_requests_than_may_wait_are_refused_at_once(stand_in):
    with engine_for(lambda *_: Writes(text("x")), max_concurrent=1, max_waiting=1) as (engine, _):
        said = engine.generate([request()] * 3)
    assert [reply.finish for reply in said] == ["stop", "stop", "error"]
    assert said[2].retryable and "try again later" in error_text(said[2])


# ── The start and the end ────────────────────────────────────────────────────────────────────────


def runs_on() -> bool:
    """Whether a thread of some engine was left behind."""
    return any(thread.name == "seer-vllm" for thread in threading.enumerate())


@pytest.mark.parametrize(("on_cpu", "seed"), [(True, None), (False, 7)])
def test_a_cpu_is_given_no_seed(stand_in, monkeypatch, on_cpu, seed):
    """vLLM's engine ends where it has computed a part of a seeded request's prompt on a CPU."""
    monkeypatch.setattr(sys.modules["vllm.platforms"].current_platform, "is_cpu", lambda: on_cpu)
    given = []
    with engine_for(lambda prompt, sampling: given.append(sampling.seed) or Writes(text("yes"))) as (engine, _):
        engine.generate([request(sampling=Sampling(8, temperature=1.0, seed=7))])
    assert given == [seed]


def test_it_starts_with_what_seer_needs_and_ends_without_a_trace(stand_in):
    with engine_for(saying(), max_model_len=8192) as (engine, llm):
        assert (engine.max_positions, engine.block_tokens, engine.version) == (8192, 16, "0.32.0")
        # on two cores vLLM computes in the engine's own process, which it must be told twice
        assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert llm.ended and llm.output_handler is not None and llm.output_handler.cancelled()
    assert not runs_on()


@pytest.mark.parametrize(
    ("model", "options", "error", "message"),
    [
        ("unfit", {}, ModelError, "vLLM does not start with 'unfit': no weights for layer 7$"),
        ("model", {"max_modellen": 1}, ConfigError, "did you mean 'max_model_len'"),
        ("model", {"zzz": 1}, ConfigError, "see `vllm serve --help`"),
    ],
)
def test_a_start_that_fails_says_why_and_leaves_no_thread(stand_in, model, options, error, message):
    with pytest.raises(error, match=message):
        vllm.VLLMEngine(model, **options)
    assert not runs_on()


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
