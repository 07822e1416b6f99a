"""The real vLLM (on a CPU if there is no GPU) reads with the small checkpoint exactly as transformers does.

One engine serves every test here; it is started once, which takes most of a minute.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from fakes import error_text, make_document

from seer.engines.admission import Admission
from seer.engines.base import Chat, ChatImage, Conversation, JsonSchema, Request, Sampling, SelectCall
from seer.engines.hf.engine import HFEngine
from seer.errors import ConfigError
from seer.protocol.call import parse_call_text
from seer.protocol.control import CONTROL
from seer.protocol.turns import observation
from seer.reading.conversation import converse, split_thought
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import Reader, read_one
from seer.schema import Excerpt, Status, Turn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed (scripts/install_vllm_cpu.sh)"),
]
TEXTS = [f"Page {i}: item {i} costs {i * 7}.\n" for i in range(1, 4)]
DOCUMENT = make_document(TEXTS, width_px=280, height_px=196)
PAGES = {page.number: page for page in DOCUMENT}
PROMPT = (Turn(kind="prompt", text="What does item 2 cost?", pages=tuple(PAGES)),)


@pytest.fixture(scope="module")
def engine(small_checkpoint_dir) -> Iterator[object]:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    from seer.engines.vllm.engine import VLLMEngine

    engine = VLLMEngine(str(small_checkpoint_dir), max_model_len=4096, timeout_s=120)
    yield engine
    engine.close()
    gc.collect()


def whole_blocks(tokens: int, engine) -> int:
    return tokens // engine.block_tokens * engine.block_tokens


KILLED = """
import multiprocessing, os, signal, sys
from seer.engines.vllm.engine import VLLMEngine

if __name__ == "__main__":
    engine = VLLMEngine(sys.argv[1], max_model_len=1024)
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not os.path.exists("/proc"), reason="looks at processes through /proc")
def test_vllm_process_ends_with_a_killed_parent(small_checkpoint_dir, tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1"}
    words = [sys.executable, str(script), str(small_checkpoint_dir)]
    # the output goes to a file: the engine would keep its end of a pipe open and this test would wait for it
    with open(tmp_path / "said", "w") as said:
        done = subprocess.run(words, env=environment, stdout=said, stderr=subprocess.DEVNULL, timeout=300, check=False)
    engines = [int(word) for word in (tmp_path / "said").read_text().split() if word.isdigit()]
    assert done.returncode == -9 and engines
    deadline = time.monotonic() + 60
    while any(os.path.exists(f"/proc/{pid}/exe") for pid in engines) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(os.path.exists(f"/proc/{pid}/exe") for pid in engines)


def test_vllm_greedy_tokens_equal_transformers(engine, small_checkpoint):
    asked = Request(Conversation(PROMPT, PAGES), "c", sampling=Sampling(max_new_tokens=32))
    (expected,) = HFEngine(small_checkpoint).generate([asked])
    (first,) = engine.generate([asked])
    assert (error_text(first), first.ids) == ("", expected.ids)
    assert first.prompt_tokens == expected.prompt_tokens
    (second,) = engine.generate([asked])
    assert second.ids == expected.ids
    assert second.cached_tokens >= whole_blocks(first.prompt_tokens - 1, engine)


def test_vllm_call_is_valid_and_second_stage_reuses_the_first(engine):
    document = make_document([f"{text} again" for text in TEXTS], width_px=280, height_px=196)
    pages = {page.number: page for page in document}
    call = Request(Conversation(PROMPT, pages), "d", SelectCall((1, 2, 3), 2), Sampling(max_new_tokens=64))
    (said,) = engine.generate([call])
    parsed = parse_call_text(said.raw, (1, 2, 3), 2)
    assert (error_text(said), parsed.deviations, said.finish) == ("", (), "stop")
    shown = observation([Excerpt(page=n, start=document.page(n).start, text=document.page(n).text) for n in (2, 3)])
    turns = (*PROMPT, Turn(kind="call", pages=parsed.pages), shown)
    (answer,) = engine.generate(
        [Request(Conversation(turns, pages, {1: said.ids}), "d", sampling=Sampling(max_new_tokens=8))]
    )
    assert error_text(answer) == ""
    assert answer.cached_tokens >= whole_blocks(said.prompt_tokens + len(said.ids) - 1, engine)


def test_vllm_sampled_calls_are_valid(engine):
    """Too many new pages for one step: some prompts are computed in parts, which ended vLLM for seeded requests on a CPU."""
    constraint = SelectCall((1, 3), 2)
    asked = []
    for seed in range(20):
        pages = make_document([f"{seed} {text}" for text in TEXTS], width_px=280, height_px=196)
        shown = {page.number: page for page in pages}
        asked.append(
            Request(Conversation(PROMPT, shown), f"s{seed}", constraint, Sampling(64, temperature=1.5, seed=seed))
        )
    for said in engine.generate(asked):
        assert not parse_call_text(said.raw, (1, 3), 2).deviations, said


def test_vllm_optional_call_is_decided_by_the_first_token(engine, small_checkpoint):
    asked = Request(
        Conversation(PROMPT, PAGES), "o", SelectCall((1, 2), 2, required=False), Sampling(max_new_tokens=16)
    )
    (expected,) = HFEngine(small_checkpoint).generate([asked])
    (said,) = engine.generate([asked])
    assert (error_text(said), said.ids, said.parts) == ("", expected.ids, expected.parts)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_vllm_thinking_may_precede_a_call(engine, temperature, monkeypatch):
    """The small model does not think by itself: the test forces its first token and the end of its thinking."""
    control = engine.encoder.control
    forced = {1: control(CONTROL.open_think), 2: control(CONTROL.close_think), 3: control(CONTROL.open_call)}
    send, asked_for = engine._send, []

    async def steered(request, encoded, after, sampling):
        asked_for.append(tuple(after))
        if len(asked_for) in forced:
            sampling = sampling.clone()
            sampling.logit_bias, sampling.allowed_token_ids = None, [forced[len(asked_for)]]
        return await send(request, encoded, after, sampling)

    monkeypatch.setattr(engine, "_send", steered)
    constraint = SelectCall((1, 2), 2, required=False)
    (said,) = engine.generate(
        [Request(Conversation(PROMPT, PAGES), "w", constraint, Sampling(64, temperature, seed=3))]
    )
    assert (error_text(said), said.finish) == ("", "stop")
    names = [name for name, _ in said.parts if name]
    assert names == [CONTROL.open_think, CONTROL.close_think, CONTROL.open_call, CONTROL.close_call]
    thought, call = split_thought(said, engine.encoder)
    assert thought is not None and (*thought.ids, *call.ids) == said.ids
    assert not parse_call_text(call.raw, (1, 2), 2).deviations
    assert asked_for[1] == (forced[1],) and len(asked_for) == 4


def test_vllm_streamed_pieces_join_to_the_whole_text(engine):
    pieces: list[str] = []
    asked = Request(Conversation(PROMPT, PAGES), "t", sampling=Sampling(max_new_tokens=24), on_text=pieces.append)
    (said,) = engine.generate([asked])
    assert len(pieces) > 1
    assert "".join(text for _, text in said.parts).startswith("".join(pieces))


def test_vllm_concurrent_sessions_do_not_mix(engine):
    documents = [make_document([f"Only here: {n}.\n", "Nothing.\n"], 140, 112, f"d{n}") for n in range(24)]
    reader = Reader(engine, policy=ReadingPolicy(max_new_tokens=8, max_pages=2))
    answers = reader.ask_many([(document, f"What is in {n}?") for n, document in enumerate(documents)])
    for n, answer in enumerate(answers):
        assert answer.cause in ("", "no answer within the token limit", "the model gave no answer"), answer.cause
        given = [excerpt.text for step in answer.trace for excerpt in step.excerpts]
        assert given == [documents[n].page(page).text for page in answer.selected_pages]
        assert not any(step.deviations for step in answer.trace)


def test_vllm_failed_request_does_not_affect_others(engine):
    long = Request(Conversation((Turn(kind="prompt", text="word " * 6000),)), "l", sampling=Sampling(max_new_tokens=4))
    fine = Request(Conversation(PROMPT, PAGES), "f", sampling=Sampling(max_new_tokens=4))
    failed, served = engine.generate([long, fine])
    assert failed.finish == "error"
    assert "max_model_len=4096" in error_text(failed)
    assert error_text(served) == ""


def test_vllm_cancelled_reading_cancels_its_request(engine):
    before = len(engine._drawn)

    async def run() -> int:
        policy = ReadingPolicy(max_new_tokens=3000, mode="visual")
        task = asyncio.create_task(read_one(converse(DOCUMENT, "What?", engine, None, policy), engine.generate_one))
        while not engine._llm.get_num_unfinished_requests():
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while engine._llm.get_num_unfinished_requests():
            await asyncio.sleep(0.02)
        return engine.admission.under_way

    assert asyncio.run(run()) == 0
    assert len(engine._drawn) == before


def test_vllm_request_times_out(engine):
    engine.timeout_s, kept = 0.05, engine.timeout_s
    try:
        (said,) = engine.generate(
            [Request(Conversation(PROMPT, PAGES), "slow", sampling=Sampling(max_new_tokens=2000))]
        )
    finally:
        engine.timeout_s = kept
    assert said.finish == "error"
    assert "0.05 s" in error_text(said)


def test_vllm_refuses_more_requests_than_may_wait(engine):
    door = engine.admission
    engine.admission = Admission(1, 1)
    try:
        asked = [Request(Conversation(PROMPT, PAGES), f"w{n}", sampling=Sampling(max_new_tokens=4)) for n in range(4)]
        said = engine.generate(asked)
    finally:
        engine.admission = door
    assert [generation.finish == "error" for generation in said] == [False, False, True, True]
    assert "try again later" in error_text(said[-1])


def test_vllm_rejects_misspelt_argument_before_start(small_checkpoint_dir):
    from seer.engines.vllm.engine import VLLMEngine

    with pytest.raises(ConfigError, match="max_model_len"):
        VLLMEngine(str(small_checkpoint_dir), max_model_length=1)


# ── Chats, JSON schemas, several samples ─────────────────────────────────────────────────────────

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"page": {"type": "integer", "enum": [3, 7]}},
        "required": ["page"],
        "additionalProperties": False,
    }
)


def chat(words: str = "Which page?") -> Chat:
    return Chat.of("Look: ", ChatImage.of_page(DOCUMENT.page(1)), words, system="Be brief.")


def test_chat_with_an_image_continues_as_transformers_does(engine, small_checkpoint):
    (expected,) = HFEngine(small_checkpoint).generate([Request(chat(), "c", sampling=Sampling(16))])
    (answer,) = engine.generate([Request(chat(), "c", sampling=Sampling(16))])
    assert (error_text(answer), answer.ids) == ("", expected.ids)
    assert answer.prompt_tokens == expected.prompt_tokens


def test_json_schema_holds_for_an_untrained_model(engine):
    requests = [Request(chat(), f"j{n}", JsonSchema(SCHEMA), Sampling(64, temperature=1.5)) for n in range(4)]
    for answer in engine.generate(requests):
        assert error_text(answer) == ""
        assert json.loads(answer.text)["page"] in (3, 7)


def test_several_samples_come_from_one_request(engine):
    (answer,) = engine.generate([Request(chat(), "n", sampling=Sampling(16, temperature=1.5), n=4)])
    assert error_text(answer) == ""
    assert len({sample.ids for sample in answer.samples}) > 1
    assert answer.completion_tokens == sum(len(sample.ids or ()) for sample in answer.samples)


def test_vllm_killed_engine_process_fails_requests_with_a_cause(engine):
    """Last in this file: it ends the engine that the others used."""
    import psutil

    # the engine core is the only child of this process that vLLM started
    for child in psutil.Process().children():
        if "EngineCore" in child.name() or "EngineCore" in " ".join(child.cmdline()):
            child.kill()
            break
    else:
        pytest.skip("the engine core has no process of its own here")
    answer = Reader(engine, policy=ReadingPolicy(max_new_tokens=64)).ask(DOCUMENT, "What?")
    assert answer.status is Status.FAILED
    assert "has ended" in answer.cause
    assert "has ended" in engine.trouble()
