"""Constrained calls: the grammar accepts every valid call and nothing else, in each of its forms."""

from __future__ import annotations

import itertools
import json

import pytest
from fakes import small_encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.protocol.call import parse_call, render_call
from seer.protocol.control import CONTROL
from seer.protocol.grammar import call_grammar, call_structural_tag

xgrammar = pytest.importorskip("xgrammar")


def compiler(stop: str):
    from seer.models.small import wrap_tokenizer

    encoder = small_encoder()
    tokenizer = wrap_tokenizer(encoder.full)
    stops = [encoder.control(stop)]
    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=len(tokenizer), stop_token_ids=stops)
    return xgrammar.GrammarCompiler(info)


COMPILER = compiler(CONTROL.close_call)


def accepts(grammar: str, body: str) -> bool:
    matcher = xgrammar.GrammarMatcher(COMPILER.compile_grammar(grammar))
    encoder = small_encoder()
    ids = [*encoder.encode_text(body), encoder.control(CONTROL.close_call)]
    return all(matcher.accept_token(token) for token in ids)


@pytest.mark.parametrize("limit", [None, 1, 2])
def test_call_grammar_accepts_exactly_the_valid_lists_over_four_pages(limit):
    grammar = call_grammar((1, 2, 3, 4), limit)
    for length in range(4):
        for pages in itertools.product((0, 1, 2, 3, 4, 5, 11), repeat=length):
            body = render_call(pages)
            assert accepts(grammar, body) == (parse_call(body, (1, 2, 3, 4), limit).deviations == ()), pages


@given(st.sets(st.integers(1, 400), min_size=1, max_size=40).map(sorted), st.data())
@settings(max_examples=40, deadline=None)
def test_call_grammar_accepts_any_allowed_choice_and_rejects_other_pages(allowed, data):
    chosen = sorted(data.draw(st.sets(st.sampled_from(allowed), max_size=5)))
    grammar = call_grammar(tuple(allowed), 5)
    assert accepts(grammar, render_call(chosen))
    foreign = data.draw(st.integers(1, 500).filter(lambda page: page not in allowed))
    assert not accepts(grammar, render_call([foreign]))


def test_call_grammar_rejects_malformed_bodies():
    for body in (
        "",
        "{}",
        '{"name": "open", "indices": [1]}',
        '{"name":"select","indices":[1]}',
        render_call((1,)) + " ",
    ):
        assert not accepts(call_grammar((1, 2)), body)


def test_call_grammar_compiles_for_two_hundred_pages():
    grammar = call_grammar(tuple(range(1, 201)), 8)
    assert accepts(grammar, render_call((1, 2, 99, 100, 150, 198, 199, 200)))
    assert not accepts(grammar, render_call((1, 2, 3, 4, 5, 6, 7, 8, 9)))
    assert not accepts(grammar, render_call((200, 1)))


def test_structural_tag_accepts_tags_as_single_tokens_only():
    encoder = small_encoder()
    opening, closing = encoder.control(CONTROL.open_call), encoder.control(CONTROL.close_call)
    tag = call_structural_tag(opening, closing, (1, 2, 3), 2)
    compiled = compiler(CONTROL.user).compile_structural_tag(json.dumps(tag))
    body = encoder.encode_text(render_call((1, 3)))

    def takes(ids: list[int]) -> bool:
        matcher = xgrammar.GrammarMatcher(compiled)
        return all(matcher.accept_token(token) for token in ids)

    assert takes([opening, *body, closing])
    assert not takes([*encoder.encode_text("<tool_call>")])
    assert not takes([opening, *encoder.encode_text(render_call((1, 4)))])
    assert not takes([opening, *encoder.encode_text(render_call((3, 1)))])
