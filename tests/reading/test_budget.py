"""Token budgets: caps on retrieved text, and prompts in mode auto that never exceed the full-text prompt."""

from __future__ import annotations

import pytest
from fakes import make_document
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_fakes import DOCUMENT, calls, reader

from seer.engines.base import Request
from seer.engines.scripted import oracle_script
from seer.errors import InputError
from seer.protocol.call import render_call
from seer.schema import Status
from seer.selection.base import AllPages, FirstPages, RandomPages


@given(st.integers(1, 200))
@settings(max_examples=40, deadline=None)
def test_retrieved_tokens_never_exceed_their_cap(cap):
    document = make_document([f"line {i} about apples\nline {i} about pears\n" * 5 for i in range(4)])
    answer = reader(oracle_script(pages=(1, 2, 4), answer="x"), max_retrieved_tokens=cap).ask(document, "pears?")
    (observed,) = [step for step in answer.trace if step.name == "retrieve"]
    for excerpt in observed.excerpts:
        assert document.text[excerpt.start : excerpt.end] == excerpt.text
    if observed.excerpts:
        assert answer.usage.retrieved - 1 <= cap


def eager(request: Request) -> str:
    """Selects as many pages as it may, as often as it may, with long thinking before each call."""
    if request.constraint is None:
        return "x<|user|>"
    thought = "" if request.constraint.required else f"<think>{request.prompt.turns[0].text * 3}</think>"
    return f"{thought}<tool_call>{render_call(request.constraint.allowed[: request.constraint.max_pages])}</tool_call>"


@given(st.lists(st.text(min_size=1, max_size=400), min_size=1, max_size=6), st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_auto_mode_never_exceeds_the_full_text_prompt_over_rounds(pages, rounds, max_pages):
    document = make_document([page * 3 for page in pages])
    policy = {"mode": "auto", "rounds": rounds, "max_pages": max_pages, "max_call_tokens": 32}
    answer = reader(eager, **policy).ask(document, "q")
    assert answer.status is Status.ANSWERED
    assert answer.usage.prompt <= answer.usage.full_text


texts = st.lists(st.text(min_size=1, max_size=400), min_size=1, max_size=6)


@given(texts, st.sampled_from([None, FirstPages(), AllPages(), RandomPages(3)]), st.integers(1, 6))
@settings(max_examples=80, deadline=None)
def test_auto_mode_never_exceeds_the_full_text_prompt_with_any_selector(pages, selector, wanted):
    document = make_document(pages)
    script = oracle_script(pages=range(1, wanted + 1), answer="x")
    answer = reader(script, selector, mode="auto").ask(document, "q")
    assert answer.status is Status.ANSWERED
    assert answer.usage.prompt <= answer.usage.full_text


def test_auto_mode_shows_images_if_they_need_fewer_tokens():
    document = make_document(["word " * 400, "other " * 400])
    answer = reader(oracle_script(pages=(1,), answer="x"), mode="auto", max_call_tokens=32).ask(document, "q")
    assert answer.usage.vision > 0
    assert answer.usage.compression > 1


def test_auto_mode_needs_an_engine_that_counts_tokens():
    asked = reader(calls(), mode="auto")
    asked.engine.encoder = None
    with pytest.raises(InputError, match="this engine has no tokenizer; give one, or another mode"):
        asked.ask(DOCUMENT, "What?")
