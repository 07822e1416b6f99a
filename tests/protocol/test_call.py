"""Tests of the select call: its format, its tolerant parser, its grammar and its JSON schema."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.protocol.call import DEVIATIONS, parse_call, parse_call_text, render_call
from seer.protocol.control import CONTROL
from seer.protocol.grammar import call_grammar, call_schema

page_sets = st.integers(1, 300).flatmap(
    lambda n: st.tuples(st.just(n), st.sets(st.integers(1, n), max_size=8).map(sorted))
)


@given(page_sets)
def test_parse_call_of_render_call_returns_the_pages(case):
    n, pages = case
    parsed = parse_call(render_call(pages), range(1, n + 1), 8)
    assert parsed.pages == tuple(pages)
    assert parsed.deviations == ()


@given(st.text(max_size=300), st.integers(1, 20), st.one_of(st.none(), st.integers(1, 5)))
@settings(max_examples=500)
def test_parse_call_any_text_yields_usable_pages(text, n, limit):
    for parsed in (parse_call(text, range(1, n + 1), limit), parse_call_text(text, range(1, n + 1), limit)):
        assert list(parsed.pages) == sorted(set(parsed.pages))
        assert all(1 <= page <= n for page in parsed.pages)
        assert limit is None or len(parsed.pages) <= limit
        assert set(parsed.deviations) <= set(DEVIATIONS)


OPEN, CLOSE = CONTROL.open_call, CONTROL.close_call


@pytest.mark.parametrize(
    ("text", "pages", "deviations"),
    [
        (f'{OPEN}{{"name": "select", "indices": [2, 4]}}{CLOSE}', (2, 4), ()),
        (f'{OPEN}{{"name": "select", "indices": []}}{CLOSE}', (), ()),
        (f'{OPEN}{{"name": "select", "indices": [9, 2, 0]}}{CLOSE}', (2,), ("out_of_range",)),
        (f'{OPEN}{{"name": "select", "indices": [2, 2]}}{CLOSE}', (2,), ("duplicate",)),
        (f'{OPEN}{{"name": "select", "indices": [4, 2]}}{CLOSE}', (2, 4), ("not_ascending",)),
        (f'{OPEN}{{"name": "select", "indices": [1, 2, 3, 4]}}{CLOSE}', (1, 2, 3), ("too_many",)),
        (f'{OPEN}{{"name": "open", "indices": [1]}}{CLOSE}', (1,), ("wrong_name",)),
        (f'{OPEN}{{"name": "select", "indices": "1"}}{CLOSE}', (), ("wrong_shape",)),
        (f'{OPEN}{{"name": "select", "indices": [1, true, "2", 3.0]}}{CLOSE}', (1,), ("wrong_shape",)),
        (f'{OPEN}{{"name": "select", "arguments": {{"indices": [3]}}}}{CLOSE}', (3,), ("wrong_shape",)),
        (f'{OPEN}{{"name": "select", "arguments": "{{\\"indices\\": [3]}}"}}{CLOSE}', (3,), ("wrong_shape",)),
        (f"{OPEN}select 1 and 3{CLOSE}", (), ("not_json",)),
        (f"{OPEN}[1, 3]{CLOSE}", (), ("not_json",)),
        (
            f"{OPEN}select\n<arg_key>indices</arg_key>\n<arg_value>[1, 3]</arg_value>{CLOSE}",
            (1, 3),
            ("xml_style",),
        ),
        (f'I look. {OPEN}{{"name": "select", "indices": [1]}}{CLOSE} done', (1,), ("text_around",)),
        (f'I look. {OPEN}{{"name": "select", "indices": [1]}}{CLOSE}', (1,), ("text_around",)),
        (f'{OPEN}{{"name": "select", "indices": [1]}}{CLOSE} done', (1,), ("text_around",)),
        (f'{OPEN}{{"name": "select", "indices": [1]}}', (1,), ("missing_close",)),
        ('{"name": "select", "indices": [1]}', (1,), ("missing_close",)),
        ("The answer is 42.", (), ("no_call",)),
        ("", (), ("no_call",)),
        # A limit that is reached exactly and white space around the call are not deviations.
        (f'\n{OPEN}{{"name": "select", "indices": [1, 2, 3]}}{CLOSE} \n', (1, 2, 3), ()),
        # Text on several lines. The first of two calls counts.
        (f'I look.\nAgain.{OPEN}\n{{"name": "select",\n"indices": [1]}}{CLOSE}\nso', (1,), ("text_around",)),
        (
            f'{OPEN}{{"name": "select", "indices": [1]}}{CLOSE}{OPEN}{{"name": "select", "indices": [2]}}{CLOSE}',
            (1,),
            ("text_around",),
        ),
        (f'I look. {OPEN}{{"name": "select", "indices": [1]}}', (1,), ("missing_close", "text_around")),
        # Several deviations at once are all named, each once, in a fixed order.
        (
            f'{OPEN}{{"name": "open", "indices": [4, 9, 2, 2, 0, "3", 1, 3]}}{CLOSE}',
            (1, 2, 3),
            ("wrong_name", "wrong_shape", "out_of_range", "duplicate", "not_ascending", "too_many"),
        ),
        (f'{OPEN}{{"indices": [1]}}{CLOSE}', (1,), ("wrong_name",)),
        (f'{OPEN}{{"name": "open"}}{CLOSE}', (), ("wrong_name", "wrong_shape")),
        # A top-level 'indices' takes precedence over nested arguments.
        (f'{OPEN}{{"name": "select", "indices": [1], "arguments": {{"indices": [2]}}}}{CLOSE}', (1,), ()),
        (f'{OPEN}{{"name": "select", "arguments": "no JSON"}}{CLOSE}', (), ("wrong_shape",)),
        (f'{OPEN}{{"name": "select", "arguments": "[3]"}}{CLOSE}', (), ("wrong_shape",)),
        (f'{OPEN}{{"name": "select", "arguments": [3]}}{CLOSE}', (), ("wrong_shape",)),
        (f'{OPEN}{{"name": "select", "arguments": "{"[" * 50_000}"}}{CLOSE}', (), ("wrong_shape",)),
        # The other XML spelling. Seven digits are never a page number; six digits are one out of range.
        (f"{OPEN}select<indices>1, 3</indices>{CLOSE}", (1, 3), ("xml_style",)),
        (f"{OPEN}select<arg_value>[1234567, 2]</arg_value>{CLOSE}", (2,), ("xml_style",)),
        (f"{OPEN}select<arg_value>[123456, 2]</arg_value>{CLOSE}", (2,), ("xml_style", "out_of_range")),
        (f"{OPEN}select<arg_value></arg_value>{CLOSE}", (), ("xml_style",)),
        (f"{OPEN}select<indices></indices>{CLOSE}", (), ("xml_style",)),
        # A server that removes special tokens leaves a bare body. Text without page numbers is not a call.
        ('{"name": "open", "indices": [1]}', (1,), ("wrong_name", "missing_close")),
        ("<indices>1, 3</indices>", (1, 3), ("xml_style", "missing_close")),
        ('{"name": "select", "indices": [1, "2"]}', (), ("no_call",)),
        ('{"total": 3}', (), ("no_call",)),
        (f"{OPEN}{'[' * 5000}{CLOSE}", (), ("not_json",)),
        (f'{OPEN}{{"name": "select", "indices": [{"9" * 5000}]}}{CLOSE}', (), ("not_json",)),
    ],
)
def test_parse_call_text_names_every_deviation(text, pages, deviations):
    parsed = parse_call_text(text, range(1, 5), 3)
    assert parsed.pages == pages
    assert parsed.deviations == deviations
    assert set(deviations) <= set(DEVIATIONS)


def test_parse_call_without_limit_keeps_every_page():
    pages = tuple(range(1, 41))
    assert parse_call(render_call(pages), pages).pages == pages
    assert parse_call_text(f"{OPEN}{render_call(pages)}{CLOSE}", pages).pages == pages


def test_call_schema_enforces_range_and_length():
    schema = call_schema((3, 4, 5), 2)
    assert json.loads(json.dumps(schema)) == {
        "type": "object",
        "properties": {
            "name": {"const": "select"},
            "indices": {"type": "array", "minItems": 0, "maxItems": 2, "items": {"type": "integer", "enum": [3, 4, 5]}},
        },
        "required": ["name", "indices"],
        "additionalProperties": False,
    }
    assert call_schema((), 2)["properties"]["indices"] == {"type": "array", "minItems": 0, "maxItems": 0}
    assert json.dumps(call_schema(range(3, 6), 2)) == json.dumps(schema), "any sequence of pages is accepted"
    assert call_schema((3, 4), None)["properties"]["indices"]["maxItems"] == 2
    assert call_schema((3, 4), 8)["properties"]["indices"]["maxItems"] == 2


@pytest.mark.parametrize(("allowed", "limit"), [((), 3), ((), None), ((1, 2), 0)])
def test_call_grammar_without_selectable_pages_allows_only_the_empty_call(allowed, limit):
    assert call_grammar(allowed, limit).splitlines()[1:] == ['list ::= ""']
