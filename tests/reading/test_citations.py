"""Quotes are found again where they stand, or marked as not found."""

from __future__ import annotations

import pytest
from fakes import make_document
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from seer.reading.citations import find_citations, locate
from seer.schema import Excerpt

DOCUMENT = make_document(
    ["Alpha cost 1,204 euros in 1999.\n", "“Beta”  was\nbuilt by Dr. Grey; nobody asked why it leaned.\n"]
)
EXCERPTS = [Excerpt(page=page.number, start=page.start, text=page.text) for page in DOCUMENT]


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("1,204 euros", "1,204 euros"),
        ("ALPHA COST", "Alpha cost"),
        ("Beta was built by dr. grey", "Beta”  was\nbuilt by Dr. Grey"),
        ("nobody asked why it leanned", "nobody asked why it leaned"),
        ("cost 1,205 euros in 1999", None),  # a near miss in a number is another number
        ("99", None),  # and so is a part of one
        ("204 EUROS IN 199", None),
        ("1999", "1999"),
        ("gamma rays everywhere today", None),
    ],
)
def test_quotes_are_found_exactly_then_levelled_then_by_likeness(quote, found):
    place = locate(quote, EXCERPTS)
    assert (place is None) == (found is None)
    if place:
        _, start, end = place
        assert DOCUMENT.text[start:end].strip() == found


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_any_piece_of_the_text_is_found_where_it_reads_the_same(data):
    text = data.draw(st.text(min_size=1, max_size=60))
    document = make_document(["before\n", text])
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    for edge in (start, end):  # a piece of a number is another number
        assume(not (text[max(0, edge - 1) : edge].isdigit() and text[edge : edge + 1].isdigit()))
    excerpts = [Excerpt(page=page.number, start=page.start, text=page.text) for page in document]
    _, found_start, found_end = locate(text[start:end], excerpts)
    assert document.text[found_start:found_end] == text[start:end]


def test_an_answer_is_cited_and_an_invented_quote_is_not_verified():
    answer = 'It cost "1,204 euros", he said "and it was cheap at that".'
    good, bad = find_citations(DOCUMENT, EXCERPTS, answer)
    assert (good.page, good.verified, good.quote) == (1, True, "1,204 euros")
    assert (bad.verified, bad.quote) == (False, "and it was cheap at that")


def test_a_quote_inside_another_is_not_cited_twice():
    (citation,) = find_citations(DOCUMENT, EXCERPTS, "Alpha cost 1,204 euros in 1999.", 'It says "1,204 euros".')
    assert citation.quote == "Alpha cost 1,204 euros in 1999."
