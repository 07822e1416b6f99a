"""The requests that the vLLM engine sends and how it reads the replies. vLLM is a stand-in."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fakes import error_text
from vllm_fakes import (
    CALL,
    DOCUMENT,
    ENCODER,
    END_CALL,
    END_THINK,
    PROMPT,
    SIZES,
    SPREAD,
    THINK,
    USER,
    WAIT_S,
    AsyncLLM,
    Writes,
    engine_for,
    request,
    saying,
    text,
)

from seer.engines.base import (
    Conversation,
    Generation,
    Request,
    Sampling,
    SelectCall,
)
from seer.engines.vllm import engine as vllm
from seer.engines.vllm import runtime
from seer.errors import ConfigError, EngineError, ModelError
from seer.protocol.call import render_call
from seer.protocol.control import CONTROL
from seer.reading.reader import Reader
from seer.schema import Status, Turn

CALLED = [CALL, *text(render_call((1, 3))), END_CALL]
MAY_CALL = SelectCall((1, 2, 3), 2, required=False)


# ── One request ──────────────────────────────────────────────────────────────────────────────────


def test_vllm_sends_images_by_hash_and_draws_them_once(stand_in):
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
    # forbidden tokens have no probability, and the tokens that end a turn end the request
    assert set(sampling.stop_token_ids) == set(ENCODER.stop_ids)
    assert sampling.logit_bias[CALL] == float("-inf") and THINK not in sampling.logit_bias


def test_vllm_prompt_without_pages_sends_no_images(stand_in):
    with engine_for(saying(text("fine"))) as (engine, llm):
        engine.generate([Request(Conversation((Turn(kind="prompt", text="What?"),)), "c")])
    assert llm.asked[0][0].keys() == {"prompt_token_ids"}


def test_vllm_constrained_call_drops_the_stop_token(stand_in):
    with engine_for(saying([*CALLED, USER])) as (engine, llm):
        (said,) = engine.generate([request(constraint=SelectCall((1, 3), 2))])
    assert (said.ids, said.finish, said.completion_tokens) == (tuple(CALLED), "stop", len(CALLED) + 1)
    sampling = llm.asked[0][1]
    assert '"3"' in sampling.structured_outputs.structural_tag.replace("\\", "")
    assert not hasattr(sampling, "stop_token_ids")


def test_vllm_streams_text_and_reports_cached_tokens(stand_in):
    pieces: list[str] = []
    names: list[str] = []
    written = [THINK, *text("so"), END_THINK, *text("The answer is 42.")]
    with engine_for(lambda prompt, sampling: Writes(written, cached=32)) as (engine, _):
        (said,) = engine.generate([request(on_text=pieces.append, on_control=names.append)])
    assert ("".join(pieces), names) == ("soThe answer is 42.", ["<think>", "</think>"])
    assert len(pieces) > 2
    assert (said.cached_tokens, said.ids) == (32, tuple(written))


def test_vllm_reads_a_document_in_three_stages(stand_in):
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
def test_vllm_optional_call_at_once_after_thinking_or_absent(stand_in, replies, whole):
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
def test_vllm_thinking_before_a_call_counts_against_the_limit(stand_in, limit):
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


def test_vllm_rejects_prompt_without_room_for_an_answer(stand_in):
    with engine_for(saying()) as (engine, llm):
        said = one(engine, sampling=Sampling(max_new_tokens=4090))
    assert (said.finish, said.retryable) == ("error", False)
    assert "4090 may follow; vLLM was started with max_model_len=4096: use fewer pages" in error_text(said)
    assert not llm.asked


def test_vllm_rejects_images_of_unexpected_token_count(stand_in, monkeypatch):
    monkeypatch.setattr(AsyncLLM, "spread", SPREAD + 1)
    with engine_for(saying(text("x"))) as (engine, _):
        said = one(engine)
    count = len(ENCODER.encode(PROMPT, SIZES))
    assert f"vLLM made {count + 3} tokens of a prompt that takes {count}" in error_text(said)


def test_vllm_aborted_request_is_retryable(stand_in):
    with engine_for(saying(text("half"), finish="abort")) as (engine, _):
        said = one(engine)
    assert (error_text(said), said.retryable) == ("vLLM ended the request with 'abort'", True)


def test_vllm_exception_fails_one_request_only(stand_in):
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


def test_vllm_silent_end_fails_waiting_requests(stand_in, monkeypatch):
    monkeypatch.setattr(runtime, "LOOK_EVERY_S", 0.02)
    with engine_for(saying()) as (engine, llm):

        async def hanging(*_: Any) -> AsyncIterator[Any]:
            llm.errored = True
            await asyncio.Event().wait()
            yield

        llm.generate = hanging  # type: ignore[method-assign,assignment]
        assert error_text(one(engine)) == "the vLLM engine process has ended; start it again"
        assert engine.admission.under_way == 0


def test_vllm_timeout_cancels_the_request(stand_in):
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
        assert error_text(said) == "vLLM took longer than the 0.05 s that a request may take; raise timeout_s"
        assert taken_back.wait(WAIT_S)
        assert engine.admission.under_way == 0


def test_vllm_admission_refuses_excess_requests(stand_in):
    with engine_for(lambda *_: Writes(text("x")), max_concurrent=1, max_waiting=1) as (engine, _):
        said = engine.generate([request()] * 3)
    assert [reply.finish for reply in said] == ["stop", "stop", "error"]
    assert said[2].retryable and "try again later" in error_text(said[2])


# ── The start and the end ────────────────────────────────────────────────────────────────────────


def runs_on() -> bool:
    """True if an engine left a thread behind."""
    return any(thread.name == "seer-vllm" for thread in threading.enumerate())


@pytest.mark.parametrize(("on_cpu", "seed"), [(True, None), (False, 7)])
def test_vllm_passes_seeds_except_on_a_cpu(stand_in, monkeypatch, on_cpu, seed):
    """On a CPU, vLLM's engine ends if it has computed part of the prompt of a seeded request."""
    monkeypatch.setattr(sys.modules["vllm.platforms"].current_platform, "is_cpu", lambda: on_cpu)
    given = []
    with engine_for(lambda prompt, sampling: given.append(sampling.seed) or Writes(text("yes"))) as (engine, _):
        engine.generate([request(sampling=Sampling(8, temperature=1.0, seed=7))])
    assert given == [seed]


def test_vllm_starts_with_required_arguments_and_restores_environment(stand_in):
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
def test_vllm_failed_start_names_the_cause_and_leaves_no_thread(stand_in, model, options, error, message):
    with pytest.raises(error, match=message):
        vllm.VLLMEngine(model, **options)
    assert not runs_on()


def test_vllm_request_without_an_output_is_retryable(stand_in):
    def script(prompt: Any, sampling: Any) -> Writes:
        sampling.n = 0
        return Writes(text("half"))

    with engine_for(script) as (engine, _):
        said = one(engine)
    assert (error_text(said), said.retryable) == ("vLLM ended the request without an output", True)


@pytest.mark.parametrize("resets", [("prefix", "mm"), ("prefix", "mm", "encoder")], ids=["older vLLM", "newer vLLM"])
def test_vllm_drop_caches_resets_every_cache_that_vllm_has(stand_in, monkeypatch, resets):
    done: list[str] = []

    def reset(name: str) -> Any:
        async def record(self: Any) -> bool:
            done.append(name)
            return True

        return record

    for name in resets:
        monkeypatch.setattr(AsyncLLM, f"reset_{name}_cache", reset(name), raising=False)
    with engine_for(saying()) as (engine, _):
        engine.drop_caches()
    assert done == list(resets)


def test_vllm_drop_caches_while_requests_run_says_to_wait(stand_in, monkeypatch):
    async def refuse(self: Any) -> bool:
        return False

    monkeypatch.setattr(AsyncLLM, "reset_prefix_cache", refuse, raising=False)
    with engine_for(saying()) as (engine, _), pytest.raises(EngineError, match="while requests run; wait for them"):
        engine.drop_caches()
