"""The transformers engine with a real, untrained Glm4v: exact against transformers, cached, batched, constrained."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fakes import error_text, make_document

from seer.engines.base import Conversation, Request, Sampling, SelectCall
from seer.engines.hf.engine import HFEngine, TextStream
from seer.errors import InputError, PromptTooLong
from seer.protocol.call import parse_call_text, render_call
from seer.protocol.control import CONTROL
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import Reader
from seer.schema import Status, Turn

torch = pytest.importorskip("torch")
DOCUMENT = make_document([f"Page {i}: item {i} costs {i * 1111} dollars.\n" for i in range(1, 7)])


@pytest.fixture
def engine(small_checkpoint) -> HFEngine:
    return HFEngine(small_checkpoint, max_batch=4)


def prompt(question: str, pages=(1, 2, 3), **options) -> Request:
    turns = (Turn(kind="prompt", text=question, pages=pages),)
    return Request(Conversation(turns, {n: DOCUMENT.page(n) for n in pages}), question, **options)


def test_hf_greedy_equals_transformers_generate(engine, small_checkpoint):
    """32 tokens after a three-image prompt, from the processor's own inputs and generate()."""
    import torch

    request = prompt("What does item 2 cost?", sampling=Sampling(max_new_tokens=32))
    encoded = engine.encoder.encode(request.prompt.turns, request.prompt.page_sizes)
    images = [request.prompt.pages[slot.page].image() for slot in encoded.slots]
    with torch.inference_mode():
        expected = small_checkpoint.model.generate(
            input_ids=torch.from_numpy(encoded.ids.astype(np.int64))[None],
            mm_token_type_ids=torch.from_numpy(encoded.mm_token_type_ids())[None],
            attention_mask=torch.ones(1, len(encoded), dtype=torch.long),
            pixel_values=small_checkpoint.pixels(images, encoded.slots),
            image_grid_thw=torch.from_numpy(encoded.grid_thw()),
            max_new_tokens=32,
            do_sample=False,
            suppress_tokens=engine._grammars.gate(None)._suppressed,
            eos_token_id=list(engine.encoder.stop_ids),
        )
    (generation,) = engine.generate([request])
    small_checkpoint.model.model.rope_deltas = None  # generate() leaves it behind on the shared model
    assert list(generation.ids) == expected[0, len(encoded) :].tolist()
    assert len(generation.ids) == 32 or generation.finish == "stop"


@pytest.mark.parametrize("pages", [(1,), (1, 2, 3, 4, 5, 6)])
@pytest.mark.parametrize("limit", [1, 3, None])
def test_hf_untrained_model_writes_valid_calls(engine, pages, limit):
    constraint = SelectCall(pages, limit)
    sampling = Sampling(max_new_tokens=128, temperature=1.5)
    requests = [
        prompt(f"question {n}", pages, constraint=constraint, sampling=Sampling(128, 1.5, seed=n)) for n in range(6)
    ]
    for generation in engine.generate([*requests, prompt("greedy", pages, constraint=constraint, sampling=sampling)]):
        assert generation.finish == "stop"
        parsed = parse_call_text(generation.raw, pages, limit)
        assert parsed.deviations == ()


def test_hf_selects_only_allowed_pages(engine):
    """A second round offers the remaining pages: they need not start at 1 nor be adjacent."""
    allowed = (2, 5)
    for seed in range(5):
        request = prompt(f"q{seed}", constraint=SelectCall(allowed), sampling=Sampling(128, 2.0, seed=seed))
        (generation,) = engine.generate([request])
        parsed = parse_call_text(generation.raw, allowed)
        assert parsed.deviations == ()
        assert set(parsed.pages) <= set(allowed)


def test_hf_free_generation_writes_no_stray_control_token(engine):
    (generation,) = engine.generate([prompt("q", sampling=Sampling(64, 2.0, seed=1))])
    allowed = {CONTROL.open_think, CONTROL.close_think, CONTROL.user, CONTROL.end_of_text}
    assert {name for name, _ in generation.parts if name} <= allowed


def test_hf_optional_call_comes_at_once_or_after_thinking(engine):
    """All tokens are random: <tool_call> comes first or right after </think>, and the call is valid."""
    encoder = engine.encoder
    opening, think, close = (
        encoder.control(name) for name in (CONTROL.open_call, CONTROL.open_think, CONTROL.close_think)
    )
    suppressed = engine._grammars.gate(None)._suppressed

    def allowed(gate) -> torch.Tensor:
        logits = torch.zeros(engine._grammars.vocabulary)
        gate.mask(logits)
        return torch.isfinite(logits)

    gate = engine._grammars.gate(SelectCall((1, 2), 2, required=False))
    assert allowed(gate)[opening] and allowed(gate)[think]
    assert not allowed(gate)[[token for token in suppressed if token != opening]].any()
    assert not gate.accept(think)
    for token in encoder.encode_text("so far"):
        assert not allowed(gate)[suppressed].any()
        gate.accept(token)
    assert not gate.accept(close)
    assert allowed(gate)[opening] and allowed(gate).sum() > 100
    assert not gate.accept(opening)
    body = encoder.encode_text(render_call((2,)))
    for token in body:
        assert allowed(gate)[token]
        assert not gate.accept(token)
    assert allowed(gate)[encoder.control(CONTROL.close_call)]
    assert gate.accept(encoder.control(CONTROL.close_call))


@pytest.mark.parametrize("constraint", [None, SelectCall((1, 2), 2)])
def test_hf_thinking_does_not_permit_a_forbidden_call(engine, constraint):
    gate = engine._grammars.gate(constraint)
    if constraint is None:
        for name in (CONTROL.open_think, CONTROL.close_think):
            gate.accept(engine.encoder.control(name))
    logits = torch.zeros(engine._grammars.vocabulary)
    gate.mask(logits)
    assert bool(torch.isfinite(logits[engine.encoder.control(CONTROL.open_call)])) == (constraint is not None)


def test_hf_second_stage_feeds_only_new_tokens(engine):
    reader = Reader(engine, policy=ReadingPolicy(max_new_tokens=8))
    before = engine.images_encoded
    answer = reader.ask(DOCUMENT, "What does item 5 cost?")
    call, last = answer.trace[1], answer.trace[-1]
    assert call.usage.cached == 0
    # every position that stage 1 fed: its prompt and its call except the closing tag, which is never fed
    assert last.usage.cached == call.usage.prompt + call.usage.completion - 1
    assert engine.images_encoded - before == len(DOCUMENT.pages)
    assert not engine._memories


def test_hf_rows_that_end_early_leave_the_batch_and_keep_their_cache(small_checkpoint):
    """Six rows of lengths 1 to 24 in one batch, in two stages, give the outputs that each gives alone."""
    limits = {"one": 1, "two": 2, "three": 2, "four": 9, "five": 24, "six": 24}
    first = {
        name: prompt(name, (1, 2, 3)[: 1 + n % 3], sampling=Sampling(limits[name])) for n, name in enumerate(limits)
    }

    def go_on(name, said):
        turns = (*first[name].prompt.turns, Turn(kind="call", pages=(1,)), Turn(kind="observation", text="so"))
        return Request(Conversation(turns, first[name].prompt.pages, {1: said.ids}), name, sampling=Sampling(6))

    together = HFEngine(small_checkpoint, max_batch=6)
    said = dict(zip(first, together.generate(list(first.values())), strict=True))
    then = dict(zip(first, together.generate([go_on(name, said[name]) for name in first]), strict=True))
    for name, request in first.items():
        alone = HFEngine(small_checkpoint)
        assert alone.generate([request])[0].ids == said[name].ids
        (after,) = alone.generate([go_on(name, said[name])])
        assert (after.ids, after.cached_tokens) == (then[name].ids, then[name].cached_tokens)
        assert after.cached_tokens >= said[name].prompt_tokens


def test_hf_cache_reuse_leaves_outputs_unchanged(small_checkpoint):
    class Forgetful(HFEngine):
        def _remember(self, *batch):
            pass

    policy = ReadingPolicy(max_new_tokens=16)
    questions = [f"What does item {n} cost?" for n in range(1, 4)]
    with_memory = Reader(HFEngine(small_checkpoint), policy=policy)
    without = Reader(Forgetful(small_checkpoint), policy=policy)
    for question in questions:
        a, b = with_memory.ask(DOCUMENT, question), without.ask(DOCUMENT, question)
        assert (a.selected_pages, a.text) == (b.selected_pages, b.text)
        assert b.trace[-1].usage.cached == 0


def test_hf_batch_equals_single_requests(engine):
    reader = Reader(engine, policy=ReadingPolicy(max_new_tokens=16))
    documents = [make_document([f"doc {d} page {p}\n" * p for p in range(1, d + 2)]) for d in range(6)]
    asked = [(document, "Which page?" + "?" * n) for n, document in enumerate(documents)]
    together = reader.ask_many(asked)
    for answer, question in zip(together, asked, strict=True):
        alone = reader.ask(*question)
        assert answer.selected_pages == alone.selected_pages
        assert answer.text == alone.text


def test_hf_sampling_repeats_with_its_seed(engine):
    drawn = [
        engine.generate([prompt("q", sampling=Sampling(24, 1.0, 0.95, 50, seed=seed))])[0].ids for seed in (7, 7, 8)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_hf_prompt_beyond_the_window_fails_alone(small_checkpoint):
    engine = HFEngine(small_checkpoint)
    engine.max_positions = 400
    long, short = engine.generate([prompt("x" * 2000), prompt("q", sampling=Sampling(max_new_tokens=4))])
    assert long.finish == "error"
    assert "the model has 400" in error_text(long)
    assert short.finish != "error"


def test_hf_cached_tokens_stay_bounded(small_checkpoint):
    engine = HFEngine(small_checkpoint, max_cached_tokens=150)
    for n in range(5):
        engine.generate([prompt(f"question {n}", sampling=Sampling(max_new_tokens=2))])
    assert sum(len(memory.ids) for memory in engine._memories.values()) <= 150


def test_hf_repeated_request_gives_the_same_answer(engine):
    reader = Reader(engine, policy=ReadingPolicy(max_new_tokens=12))
    first, second = (reader.ask(DOCUMENT, "Again?") for _ in range(2))
    assert first.text == second.text
    assert first.status in (Status.ANSWERED, Status.NOT_ANSWERABLE, Status.FAILED)


def test_recalling_engine_returns_equal_replies_without_generating(small_checkpoint):
    """An equal request of another session is free; another image, limit or constraint makes another request."""
    from seer.engines.recalling import RecallingEngine

    inner = HFEngine(small_checkpoint)
    engine = RecallingEngine(inner)
    sampling = Sampling(max_new_tokens=4)
    first = prompt("What?", (1, 2), sampling=sampling)
    (said,) = engine.generate([first])
    drawn = inner.images_encoded
    again = Request(Conversation(first.prompt.turns, first.prompt.pages), "another", sampling=sampling)
    assert engine.generate([again, first]) == [said, said]
    assert (inner.images_encoded, engine.num_recalled) == (drawn, 2)
    other_picture = Request(
        Conversation(first.prompt.turns, {1: DOCUMENT.page(3), 2: DOCUMENT.page(2)}), "c", sampling=sampling
    )
    longer = Request(Conversation(first.prompt.turns, first.prompt.pages), "d", sampling=Sampling(max_new_tokens=5))
    call = Request(
        Conversation(first.prompt.turns, first.prompt.pages), "e", constraint=SelectCall((1, 2)), sampling=sampling
    )
    heard: list[str] = []
    streamed = Request(
        Conversation(first.prompt.turns, first.prompt.pages), "f", sampling=sampling, on_text=heard.append
    )
    replies = engine.generate([other_picture, again, longer, call, streamed])
    assert engine.num_recalled == 3
    assert replies[1] is said
    assert (len(replies[2].ids), "".join(heard)) == (5, "".join(text for _, text in said.parts))


# ── What fails in a batch ────────────────────────────────────────────────────────────────────────


def damaged(page):
    raise InputError(f"page {page.number} is damaged")


def test_hf_page_that_cannot_be_drawn_fails_only_its_request(engine):
    bad = make_document(["nobody can draw this\n"])
    bad.page(1).attach(damaged)
    sampling = Sampling(max_new_tokens=4)
    broken = Request(
        Conversation((Turn(kind="prompt", text="q", pages=(1,)),), {1: bad.page(1)}), "broken", sampling=sampling
    )
    good = [prompt(f"question {n}", sampling=sampling) for n in range(2)]
    first, failed, second = engine.generate([good[0], broken, good[1]])
    assert (failed.finish, error_text(failed), isinstance(failed.error, PromptTooLong)) == (
        "error",
        "page 1 is damaged",
        False,
    )
    assert [first.ids, second.ids] == [engine.generate([one])[0].ids for one in good]


@pytest.mark.parametrize("after", [0, 3])
def test_hf_out_of_memory_batch_is_retried_row_by_row(engine, monkeypatch, after):
    """Out of memory at once, or while tokens are generated."""
    asked = [prompt(f"question {n}", sampling=Sampling(max_new_tokens=6)) for n in range(3)]
    expected = [engine.generate([one])[0].ids for one in asked]
    forward, steps = engine.checkpoint.model.forward, []

    def small(input_ids, **inputs):
        if len(input_ids) > 1:
            steps.append(len(input_ids))
            if len(steps) > after:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nand more")
        return forward(input_ids=input_ids, **inputs)

    monkeypatch.setattr(engine.checkpoint.model, "forward", small)
    heard: list[str] = []
    streamed = prompt("a stream", sampling=Sampling(max_new_tokens=6), on_text=heard.append)
    for one in asked:
        engine.forget(one.session)
    *said, told = engine.generate([*asked, streamed])
    assert [one.ids for one in said] == expected
    if after:  # what was streamed cannot be taken back
        assert told.finish == "error" and error_text(told).startswith("CUDA out of memory. Tried to allocate 2 GiB; ")
    else:
        assert "".join(heard) == "".join(text for _, text in told.parts)


def test_hf_cached_session_holds_no_other_rows(small_checkpoint):
    engine = HFEngine(small_checkpoint, max_batch=4)
    turns = (Turn(kind="prompt", text="q", pages=(1,)),)
    alike = [
        Request(Conversation(turns, {1: DOCUMENT.page(1)}), f"c{n}", sampling=Sampling(max_new_tokens=3))
        for n in range(4)
    ]
    engine.generate(alike)
    held = {memory.keys[0].untyped_storage().data_ptr() for memory in engine._memories.values()}
    sizes = [memory.keys[0].untyped_storage().nbytes() for memory in engine._memories.values()]
    least = [memory.keys[0].numel() * memory.keys[0].element_size() for memory in engine._memories.values()]
    assert len(held) == len(alike)
    assert sizes == least


def test_hf_concurrent_threads_run_one_at_a_time(small_checkpoint):
    engine = HFEngine(small_checkpoint, max_cached_tokens=400)
    asked = [prompt(f"question {n}", pages=(n % 3 + 1,), sampling=Sampling(max_new_tokens=5)) for n in range(12)]
    expected = [HFEngine(small_checkpoint).generate([one])[0].ids for one in asked]
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda one: engine.generate([one])[0].ids, asked))
    assert said == expected


def test_text_stream_emits_incomplete_character_before_a_control_token(engine):
    heard: list[tuple[str, str]] = []
    encoder = engine.encoder
    stream = TextStream(encoder, lambda text: heard.append(("", text)), lambda name: heard.append((name, "")))
    *_, first = encoder.encode_text("\U00010348")[:1]  # one token of several, of a character without a token of its own
    for token in (first, encoder.control(CONTROL.close_think), *encoder.encode_text("yes")):
        stream(token)
    assert heard[1] == (CONTROL.close_think, "")
    assert "".join(text for _, text in heard[2:]) == "yes"


@pytest.mark.parametrize("height_px", [56, 84, 168])
def test_hf_session_with_another_page_reuses_no_part_of_the_old_image(small_checkpoint, height_px):
    """The ids of both prompts agree up to the image, or into it, or beyond it; only the images differ."""
    other = make_document(["Another page."], height_px=height_px).page(1)
    turns = (Turn(kind="prompt", text="What?", pages=(1,)),)

    def ask(engine: HFEngine, page) -> tuple:
        (reply,) = engine.generate([Request(Conversation(turns, {1: page}), "one", sampling=Sampling(16))])
        return reply.ids, reply.cached_tokens

    used, fresh = HFEngine(small_checkpoint), HFEngine(small_checkpoint)
    ask(used, DOCUMENT.page(1))
    ids, cached = ask(used, other)
    assert ids == ask(fresh, other)[0]
    start = used.encoder.encode(turns, {1: (other.width_px, other.height_px)}).slots[0].start
    assert 0 < cached <= start
