"""Passages: exact excerpts within a limit of tokens, best ones first, in document order."""

from __future__ import annotations

import pytest
from fakes import make_document
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.rendering.layout.sentences import is_boundary
from seer.selection.base import build_selector
from seer.selection.passages import PassageIndex, estimate_tokens, observed_tokens

FILLER = "The sky was grey over the harbour. Ships came and went all day. "
TEXTS = [FILLER * 10, FILLER * 5 + "The treaty of Utrecht was signed in 1713. " + FILLER * 5, FILLER * 10]
DOCUMENT = make_document(TEXTS)
TOKENS = st.sampled_from(
    ["apple", "pear", "梨", "苹果", ". ", "。", "\n", "\n\n", " ", "\t", "e\u0301", "👍🏽", "\r\n", "🇩🇪"]
)
PAGES = st.lists(st.lists(TOKENS, min_size=1, max_size=60).map("".join), min_size=1, max_size=4)


def choose(pages, max_tokens, question="When was the treaty of Utrecht signed?", document=DOCUMENT):
    return PassageIndex(document, question).choose(pages, max_tokens, len)


def test_choose_returns_the_sentence_that_matches():
    (excerpt,) = choose({1, 2, 3}, 199)
    assert excerpt.page == 2
    assert "signed in 1713" in excerpt.text
    assert DOCUMENT.text[excerpt.start : excerpt.end] == excerpt.text


def test_choose_stays_in_the_given_pages():
    assert choose({1, 3}, 400) == ()
    assert not PassageIndex(DOCUMENT, "treaty").matches({1, 3})
    assert PassageIndex(DOCUMENT, "treaty").matches({2})


@pytest.mark.parametrize("question", ["", "?!", "zebra", "\x00", "的"])
def test_choose_without_a_match_returns_nothing(question):
    assert choose({1, 2, 3}, 400, question) == ()


@given(PAGES, st.integers(1, 300), st.sampled_from(["apple?", "苹果 and pear", "梨", "the"]))
@settings(max_examples=300, deadline=None)
def test_choose_any_document_returns_exact_ordered_excerpts_within_the_limit(texts, max_tokens, question):
    document = make_document(texts)
    pages = set(range(1, len(texts) + 1, 2))
    excerpts = PassageIndex(document, question).choose(pages, max_tokens, len)
    end = 0
    for excerpt in excerpts:
        page = document.page(excerpt.page)
        assert excerpt.page in pages
        assert excerpt.text
        assert page.start <= excerpt.start < excerpt.end <= page.end
        assert document.text[excerpt.start : excerpt.end] == excerpt.text
        assert is_boundary(page.text, excerpt.start - page.start)
        assert is_boundary(page.text, excerpt.end - page.start)
        assert excerpt.start >= end
        end = excerpt.end
    if excerpts:
        assert observed_tokens(excerpts, len) <= max_tokens


def test_choose_gives_tokens_that_are_left_to_neighbours():
    short, long = choose({2}, 300), choose({2}, 600)
    assert sum(len(excerpt.text) for excerpt in long) > sum(len(excerpt.text) for excerpt in short) + 200


def test_choose_keeps_the_beginning_of_the_paragraph_from_200_tokens_on():
    paragraph = (
        "Paragraph 7\nOn the history of harbours in the north. " + FILLER * 8 + "The treaty was signed in 1713. "
    )
    document = make_document([paragraph + FILLER * 8])
    with_lead = choose({1}, 330, "Which treaty?", document)
    assert with_lead[0].text.startswith("Paragraph 7\nOn the history")
    assert with_lead[0].end < with_lead[1].start
    assert "1713" in with_lead[1].text
    assert not any("Paragraph 7" in excerpt.text for excerpt in choose({1}, 199, "Which treaty?", document))


def test_choose_never_continues_over_a_page_end():
    document = make_document(["apple. apple. ", "apple. apple. "])
    excerpts = choose({1, 2}, 500, "apple", document)
    assert [excerpt.page for excerpt in excerpts] == [1, 2]


def test_estimate_tokens_is_cautious_for_every_script():
    assert estimate_tokens("") == 0
    assert estimate_tokens("hello") == 2
    assert estimate_tokens("漢字") == 2
    assert estimate_tokens("\ud800") == 1


def test_passages_selector_selects_the_pages_of_the_best_passages():
    selector = build_selector("passages")
    assert selector.select(DOCUMENT, "When was the treaty of Utrecht signed?", 1) == (2,)
    assert len(selector.select(DOCUMENT, "zebra", 2)) == 2
