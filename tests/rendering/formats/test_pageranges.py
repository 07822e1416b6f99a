"""Page ranges as users write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.rendering.formats.pageranges import parse_pages


def test_parse_pages_accepts_lists_and_ranges_and_rejects_others():
    assert parse_pages("2-4,9,3", 10) == (2, 3, 4, 9)
    assert parse_pages("8-", 10) == (8, 9, 10) and parse_pages("-2", 10) == (1, 2)
    for bad in ("", "x", "-", "4-2", "0", "11", "1,,2", "1-99"):
        with pytest.raises(InputError, match="pages"):
            parse_pages(bad, 10)


@settings(max_examples=50, deadline=None)
@given(st.sets(st.integers(1, 40), min_size=1))
def test_parse_pages_of_list_returns_sorted_numbers(numbers):
    assert parse_pages(",".join(map(str, numbers)), 40) == tuple(sorted(numbers))
