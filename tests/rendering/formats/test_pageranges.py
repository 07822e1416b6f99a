"""Page ranges as users write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.rendering.formats.pageranges import parse_pages


def test_parse_pages_returns_pages_of_lists_and_ranges():
    assert parse_pages("2-4,9,3", 10) == (2, 3, 4, 9)
    assert parse_pages("8-", 10) == (8, 9, 10) and parse_pages("-2", 10) == (1, 2)


@pytest.mark.parametrize("text", ["", "x", "-", "1,,2"])
def test_parse_pages_rejects_malformed_text(text):
    with pytest.raises(InputError, match=f"pages='{text}': not a list of pages; write for example"):
        parse_pages(text, 10)


@pytest.mark.parametrize("text", ["4-2", "0", "11", "1-99"])
def test_parse_pages_rejects_pages_out_of_range(text):
    with pytest.raises(InputError, match=f"pages '{text}': must lie within the document's pages, 1 to 10"):
        parse_pages(text, 10)


@settings(max_examples=50, deadline=None)
@given(st.sets(st.integers(1, 40), min_size=1))
def test_parse_pages_of_list_returns_sorted_numbers(numbers):
    assert parse_pages(",".join(map(str, numbers)), 40) == tuple(sorted(numbers))
