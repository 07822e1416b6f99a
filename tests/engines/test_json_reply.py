"""JSON objects found in free replies."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.engines.json_reply import read_json

SCHEMA = {
    "type": "object",
    "properties": {"page": {"type": "integer"}, "sure": {"type": "boolean"}, "of": {"type": ["string", "null"]}},
    "required": ["page"],
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"page": 7}', '{"page": 7}'),
        ('Sure! {"page": 7, "sure": true} I hope it helps.', '{"page": 7, "sure": true}'),
        ('```json\n{"page": 7}\n```', '{"page": 7}'),
        ('First {"page": 1}, no: {"page": 2}', '{"page": 2}'),
        ('{"page": 1} as in {"example": 2}', '{"page": 1}'),
        ('{"answer": {"page": 3}}', None),
        ('{{"page": 3}}', '{"page": 3}'),
        ('{"page": 1, "of": 5}', '{"page": 1, "of": 5}'),
        ('{"page": true}', None),
        ('{"page": "7"}', None),
        ('{"page": 7, "sure": 1}', None),
        ("{page: 7}", None),
        ('{"page": 7', None),
        ("", None),
    ],
)
def test_read_json_returns_the_last_object_that_fits(text, found):
    assert read_json(text, SCHEMA) == found
    assert read_json(text, json.dumps(SCHEMA)) == found


@settings(deadline=None)
@given(st.text(alphabet='{}[]":, ab1\\', max_size=60))
def test_read_json_never_fails_and_returns_a_piece_of_the_text(text):
    found = read_json(text)
    assert found is None or (found in text and isinstance(json.loads(found), dict))


@pytest.mark.parametrize("part", ["{", '{"a":', '{"a":[{"b":0},', '[{"a":', '{"' + "x" * 5000, '{"a": 1' + "0" * 5000])
def test_read_json_takes_linear_time_on_hostile_text(part):
    """Quadratic time would exceed the time limit of the test."""
    read_json(part * (1_000_000 // len(part)))
