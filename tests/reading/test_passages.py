"""Reading with passages: retrieval within tokens, fallback to pages, the gate, citations and the trace."""

from __future__ import annotations

import pytest
from fakes import make_document
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from reading_fakes import reader

from seer.engines.scripted import oracle_script
from seer.reading.policy import ReadingPolicy
from seer.schema import Status
from seer.selection.base import build_selector

FILLER = "The sky was grey over the harbour. Ships came and went all day. "
FACT = "The treaty of Utrecht was signed in 1713. "
DOCUMENT = make_document([FILLER * 10, FILLER * 5 + FACT + FILLER * 5, FILLER * 10])
QUESTION = "When was the treaty of Utrecht signed?"


def retrieved(answer):
    (step,) = [step for step in answer.trace if step.name == "retrieve"]
    return step


def ask(pages=(1, 2), answer="signed in 1713", selector=None, question=QUESTION, document=DOCUMENT, **policy):
    script = oracle_script(pages=pages, answer=answer)
    return reader(script, selector, **{"retrieve": "passages", "max_retrieved_tokens": 150, **policy}).ask(
        document, question
    )


def test_passages_retrieve_the_fact_within_the_limit():
    answer = ask()
    step = retrieved(answer)
    assert any(FACT.strip() in excerpt.text for excerpt in step.excerpts)
    assert 0 < answer.usage.retrieved - 1 <= 150
    assert step.deviations == ("trimmed_text",)
    assert {region.page for region in step.regions} == {2}
    assert all(DOCUMENT.text[r.start : r.end] == e.text for r, e in zip(step.regions, step.excerpts, strict=True))


def test_passages_are_cited_exactly():
    (citation,) = ask().citations
    assert citation.verified
    assert DOCUMENT.text[citation.start : citation.end] == "signed in 1713"
    assert citation.page == 2


def test_passages_without_a_match_fall_back_to_pages():
    step = retrieved(ask(question="zebra?", max_retrieved_tokens=None))
    assert [excerpt.text for excerpt in step.excerpts] == [DOCUMENT.page(1).text, DOCUMENT.page(2).text]
    assert step.deviations == ()


def test_pages_within_the_limit_are_retrieved_whole():
    step = retrieved(ask(max_retrieved_tokens=None, document=make_document([FACT, FILLER, FILLER])))
    assert [excerpt.text for excerpt in step.excerpts] == [FACT, FILLER]
    assert step.deviations == ()


def test_pages_trimmed_to_a_limit_record_a_deviation():
    assert retrieved(ask(retrieve="pages")).deviations == ("trimmed_text",)
    assert retrieved(ask(retrieve=True, max_retrieved_tokens=None)).deviations == ()


def test_pages_and_true_retrieve_the_same():
    named, flag = (ask(retrieve=value, max_retrieved_tokens=None) for value in ("pages", True))
    assert retrieved(named).excerpts == retrieved(flag).excerpts


def test_passages_selector_needs_no_page_selection():
    answer = ask(pages=(), selector=build_selector("passages"), retrieve=True)
    assert answer.selected_pages == (2,)
    assert "1713" in "".join(excerpt.text for excerpt in retrieved(answer).excerpts)


def test_passages_over_rounds_share_one_limit():
    def script(request):
        constraint = request.constraint
        if constraint is None or not constraint.allowed:
            return "x<|user|>"
        thought = "" if constraint.required else "<think>t</think>"
        return f'{thought}<tool_call>{{"name": "select", "indices": [{constraint.allowed[0]}]}}</tool_call>'

    answer = reader(script, retrieve="passages", max_retrieved_tokens=200, rounds=3, max_pages=1).ask(
        make_document([FILLER * 3 + FACT + FILLER * 3] * 3), QUESTION
    )
    assert answer.status is Status.ANSWERED
    steps = [step for step in answer.trace if step.name == "retrieve"]
    assert len(steps) == 3
    assert steps[0].excerpts
    assert answer.usage.retrieved <= 200 + 3 * 40  # observations without room carry one fixed sentence


@given(
    st.lists(st.text(alphabet="ab .\n漢。", min_size=1, max_size=400), min_size=1, max_size=5),
    st.sampled_from(["bm25", "passages", "first", "all", "model"]),
    st.sampled_from([None, 20, 200]),
    st.sampled_from(["a?", "漢", "zebra"]),
)
@settings(max_examples=100, deadline=None)
def test_auto_mode_with_passages_never_exceeds_the_full_text_prompt(texts, selector, cap, question):
    document = make_document([text * 3 for text in texts])
    script = oracle_script(pages=tuple(range(1, len(texts) + 1)), answer="x")
    policy = {"mode": "auto", "retrieve": "passages", "max_retrieved_tokens": cap, "max_call_tokens": 32}
    answer = reader(script, build_selector(selector), **policy).ask(document, question)
    assert answer.status is Status.ANSWERED, answer.cause
    assert answer.usage.prompt <= answer.usage.full_text


def test_policy_with_passages_selects_three_pages_by_default():
    assert ReadingPolicy(retrieve="passages").selector_pages == 3
    assert ReadingPolicy(retrieve="passages", selector_pages=1).selector_pages == 1
    assert ReadingPolicy(retrieve="pages").selector_pages == ReadingPolicy().selector_pages == 2
    assert ReadingPolicy.model_validate(ReadingPolicy(retrieve="passages").model_dump()).selector_pages == 3
    with pytest.raises(ValidationError):
        ReadingPolicy(retrieve="sentences")
