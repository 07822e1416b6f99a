"""The conversation's form: order, layout, the select call and its tolerant reader."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.protocol import (
    CONTROL,
    DEVIATIONS,
    call_grammar,
    call_regex,
    call_schema,
    layout,
    observation,
    observation_without_text,
    parse_call,
    parse_call_text,
    render_call,
)
from seer.schema import Excerpt, LossClass, Turn

PROMPT = Turn(kind="prompt", text="What is the total price of the laptop and the monitor?", pages=(1, 2, 3))
EXAMPLE = (
    PROMPT,
    Turn(kind="call", pages=(1, 3)),
    observation(
        [Excerpt(page=1, start=0, text="Laptop: $1,299.99"), Excerpt(page=3, start=40, text="Monitor: $449.99")]
    ),
    Turn(kind="think", text="1,299.99 + 449.99 = 1,749.98"),
    Turn(kind="answer", text="The total price is $1,749.98."),
)


TWO_ROUNDS = (
    PROMPT,
    Turn(kind="call", pages=(1,)),
    observation([Excerpt(page=1, start=0, text="The desk costs what page 3 says.")]),
    Turn(kind="think", text="On to page 3."),
    Turn(kind="call", pages=(3,)),
    observation([Excerpt(page=3, start=40, text="$449.99")]),
    *EXAMPLE[3:],
)


def spelled(pieces) -> str:
    return "".join(piece.value for piece in pieces)


def test_the_papers_example_reads_as_it_should():
    image = "<|begin_of_image|><|image|><|end_of_image|>"
    assert spelled(layout(EXAMPLE)) == (
        f"[gMASK]<sop><|user|>\n[Image 1]{image}[Image 2]{image}[Image 3]{image}"
        "\nQuery: What is the total price of the laptop and the monitor?<|assistant|>\n"
        '<tool_call>{"name": "select", "indices": [1, 3]}</tool_call>'
        "<|observation|>\nText from image 1: Laptop: $1,299.99\nText from image 3: Monitor: $449.99\n"
        "<think>1,299.99 + 449.99 = 1,749.98</think>\nThe total price is $1,749.98.<|user|>"
    )


def test_loss_classes_follow_who_speaks():
    spoken = [(p.value, p.loss_class) for p in layout(EXAMPLE)]
    assert (CONTROL.open_call, LossClass.STRUCTURE) in spoken
    assert (render_call((1, 3)), LossClass.CALL) in spoken
    assert spoken[-1] == (CONTROL.user, LossClass.STOP)
    given_to_model = {LossClass.PROMPT, LossClass.OBSERVATION}
    assert [c for v, c in spoken if v in (CONTROL.assistant, CONTROL.observation)] == [
        LossClass.PROMPT,
        LossClass.OBSERVATION,
    ]
    written = spelled(p for p in layout(EXAMPLE) if p.loss_class not in given_to_model)
    assert written.startswith("<tool_call>")
    assert "Text from image" not in written


@pytest.mark.parametrize("turns", [EXAMPLE, TWO_ROUNDS])
def test_every_prefix_of_a_conversation_is_a_prefix_of_its_pieces(turns):
    for n in range(1, len(turns)):
        assert layout(turns)[: len(layout(turns[:n]))] == layout(turns[:n])


def test_what_was_read_may_be_thought_over_before_more_is_asked_for():
    text = spelled(layout(TWO_ROUNDS))
    assert "says.\n<think>On to page 3.</think><tool_call>" in text
    thought = next(piece for piece in layout(TWO_ROUNDS) if piece.value == "On to page 3.")
    assert thought.loss_class is LossClass.THINK


@pytest.mark.parametrize(
    "turns",
    [
        (EXAMPLE[1],),
        (PROMPT, PROMPT),
        (PROMPT, EXAMPLE[2]),
        (PROMPT, EXAMPLE[1], EXAMPLE[4]),
        (PROMPT, EXAMPLE[4], EXAMPLE[4]),
        (PROMPT, EXAMPLE[3], EXAMPLE[1]),
        (*EXAMPLE[:4], EXAMPLE[3]),
    ],
)
def test_impossible_orders_are_refused(turns):
    with pytest.raises(InputError, match="there may follow"):
        layout(turns)


@pytest.mark.parametrize(
    "kinds",
    [
        "answer",
        "think answer",
        "call observation answer",
        "call observation call observation",
        "call observation think call observation think answer",
    ],
)
def test_the_model_may_answer_at_once_think_first_and_select_again(kinds):
    by_kind = {turn.kind: turn for turn in EXAMPLE}
    layout((PROMPT, *(by_kind[kind] for kind in kinds.split())))


def test_pieces_are_control_tokens_texts_and_images():
    kinds = {(piece.kind, piece.value in CONTROL.names()) for piece in layout(EXAMPLE)}
    assert kinds == {("control", True), ("text", False), ("image", True)}


def test_nothing_selected_is_said_so():
    text = spelled(layout((PROMPT, Turn(kind="call"), observation(()))))
    assert text.endswith("<|observation|>\nYou selected no images. Please answer based on the visual content.\n")


def test_an_observation_without_text_acknowledges_the_selection():
    text = spelled(layout((*EXAMPLE[:2], observation_without_text((1, 3)))))
    assert text.endswith(
        "<|observation|>\nYou identified images [1, 3] as relevant. "
        "Please answer based on the visual content of these images.\n"
    )


def test_text_pages_and_picture_pages_stand_in_order():
    turn = Turn(kind="prompt", text="q", pages=(1, 3), excerpts=(Excerpt(page=2, start=0, text="two"),))
    text = spelled(layout((turn,)))
    assert text.index("[Image 1]") < text.index("[Image 2] two\n[Image 3]")


# ── The call ─────────────────────────────────────────────────────────────────────────────────────

page_sets = st.integers(1, 300).flatmap(
    lambda n: st.tuples(st.just(n), st.sets(st.integers(1, n), max_size=8).map(sorted))
)


@given(page_sets)
def test_parse_of_render_is_the_call(case):
    n, pages = case
    parsed = parse_call(render_call(pages), range(1, n + 1), 8)
    assert parsed.pages == tuple(pages)
    assert parsed.deviations == ()
    assert re.fullmatch(call_regex(range(1, n + 1), 8), render_call(pages))


@given(st.text(max_size=300), st.integers(1, 20), st.one_of(st.none(), st.integers(1, 5)))
@settings(max_examples=500)
def test_whatever_arrives_the_pages_are_usable(text, n, limit):
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
        (f"{OPEN}{'[' * 5000}{CLOSE}", (), ("not_json",)),
        (f'{OPEN}{{"name": "select", "indices": [{"9" * 5000}]}}{CLOSE}', (), ("not_json",)),
    ],
)
def test_every_deviation_has_its_name(text, pages, deviations):
    parsed = parse_call_text(text, range(1, 5), 3)
    assert parsed.pages == pages
    assert parsed.deviations == deviations
    assert set(deviations) <= set(DEVIATIONS)


def test_the_schema_holds_range_and_length():
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


def test_with_no_page_allowed_only_the_empty_call_matches():
    for allowed, limit in (((), 3), ((1, 2), 0)):
        assert re.fullmatch(call_regex(allowed, limit), render_call(()))
        assert not re.fullmatch(call_regex(allowed, limit), render_call((1,)))
        assert call_grammar(allowed, limit).splitlines()[1:] == ['list ::= ""']
