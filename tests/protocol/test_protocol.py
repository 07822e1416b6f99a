"""The conversation's form: order, layout, the select call and its tolerant reader."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.models.small import SPECIAL_TOKENS
from seer.protocol.call import DEVIATIONS, parse_call, parse_call_text, render_call
from seer.protocol.control import CONTROL, KNOWN_CONTROL_LITERALS
from seer.protocol.grammar import call_grammar, call_schema
from seer.protocol.turns import layout, observation, observation_without_text
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


def test_every_control_token_of_the_family_is_known_as_a_spelling():
    """The tokenizers of both model families; text that is sent as a string must not hold one of their names."""
    assert {*SPECIAL_TOKENS["glm-4.1v"], *SPECIAL_TOKENS["glm-4.5v"], *CONTROL.names()} <= {*KNOWN_CONTROL_LITERALS}
    assert {*CONTROL.names()} <= {*SPECIAL_TOKENS["glm-4.1v"]}


def test_an_impossible_order_says_what_may_follow():
    with pytest.raises(InputError, match="^turn 'call' after 'the start'; there may follow: prompt$"):
        layout((EXAMPLE[1],))
    with pytest.raises(InputError, match="^turn 'observation' after 'prompt'; there may follow: answer, call, think$"):
        layout((PROMPT, EXAMPLE[2]))
    with pytest.raises(InputError, match="^turn 'think' after 'answer'; there may follow: nothing$"):
        layout((PROMPT, EXAMPLE[4], EXAMPLE[3]))


def test_pieces_are_control_tokens_texts_and_images():
    kinds = {(piece.kind, piece.value in CONTROL.names()) for piece in layout(EXAMPLE)}
    assert kinds == {("control", True), ("text", False), ("image", True)}
    assert {piece.page for piece in layout(EXAMPLE) if piece.kind != "image"} == {0}, "only a picture has a page"


def test_pages_stand_in_ascending_order_however_they_were_given():
    read = tuple(Excerpt(page=page, start=0, text=f"text of {page}") for page in (400, 2))
    text = spelled(layout((Turn(kind="prompt", text="q", pages=(64, 8, 300, 1), excerpts=read),)))
    assert re.findall(r"\[Image (\d+)\]", text) == ["1", "2", "8", "64", "300", "400"]


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
    pieces = layout((turn,))
    image = "<|begin_of_image|><|image|><|end_of_image|>"
    assert spelled(pieces) == (
        f"[gMASK]<sop><|user|>\n[Image 1]{image}[Image 2] two\n[Image 3]{image}\nQuery: q<|assistant|>\n"
    )
    assert [piece.page for piece in pieces if piece.kind == "image"] == [1, 3]
    assert {piece.loss_class for piece in pieces} == {LossClass.PROMPT}


def test_a_document_given_as_text_has_no_label():
    turn = Turn(kind="prompt", text="q", excerpts=(Excerpt(page=0, start=0, text="All of it."),))
    assert spelled(layout((turn,))) == "[gMASK]<sop><|user|>\nAll of it.\n\nQuery: q<|assistant|>\n"


def test_a_prompt_outside_the_chat_is_its_text_and_nothing_else():
    shown = (Excerpt(page=0, start=0, text="Question: a\nType: b"), Excerpt(page=0, start=20, text="Question: c"))
    turn = Turn(kind="prompt", text="Type:", excerpts=shown, chat=False)
    pieces = layout((turn,))
    assert spelled(pieces) == "[gMASK]<sop>Question: a\nType: b\nQuestion: c\nType:"
    assert {piece.loss_class for piece in pieces} == {LossClass.PROMPT}
    with pytest.raises(InputError, match="shows text only"):
        layout((turn.model_copy(update={"pages": (1,)}),))


def test_a_thought_or_an_answer_without_words_has_no_text_piece():
    silent = layout((PROMPT, Turn(kind="think"), Turn(kind="answer", text="Yes.")))[len(layout((PROMPT,))) :]
    assert [piece.value for piece in silent] == ["<think>", "</think>", "\nYes.", "<|user|>"]
    nothing = layout((PROMPT, Turn(kind="answer")))[len(layout((PROMPT,))) :]
    assert [piece.value for piece in nothing] == ["<|user|>"]


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
        # a limit that is reached, and white space around the call, are no deviations
        (f'\n{OPEN}{{"name": "select", "indices": [1, 2, 3]}}{CLOSE} \n', (1, 2, 3), ()),
        # text over several lines; of two calls the first counts
        (f'I look.\nAgain.{OPEN}\n{{"name": "select",\n"indices": [1]}}{CLOSE}\nso', (1,), ("text_around",)),
        (
            f'{OPEN}{{"name": "select", "indices": [1]}}{CLOSE}{OPEN}{{"name": "select", "indices": [2]}}{CLOSE}',
            (1,),
            ("text_around",),
        ),
        (f'I look. {OPEN}{{"name": "select", "indices": [1]}}', (1,), ("missing_close", "text_around")),
        # several departures at once are all named, each once, in a fixed order
        (
            f'{OPEN}{{"name": "open", "indices": [4, 9, 2, 2, 0, "3", 1, 3]}}{CLOSE}',
            (1, 2, 3),
            ("wrong_name", "wrong_shape", "out_of_range", "duplicate", "not_ascending", "too_many"),
        ),
        (f'{OPEN}{{"indices": [1]}}{CLOSE}', (1,), ("wrong_name",)),
        (f'{OPEN}{{"name": "open"}}{CLOSE}', (), ("wrong_name", "wrong_shape")),
        # 'indices' where it belongs is what counts, whatever else is said
        (f'{OPEN}{{"name": "select", "indices": [1], "arguments": {{"indices": [2]}}}}{CLOSE}', (1,), ()),
        (f'{OPEN}{{"name": "select", "arguments": "no JSON"}}{CLOSE}', (), ("wrong_shape",)),
        (f'{OPEN}{{"name": "select", "arguments": "[3]"}}{CLOSE}', (), ("wrong_shape",)),
        (f'{OPEN}{{"name": "select", "arguments": [3]}}{CLOSE}', (), ("wrong_shape",)),
        (f'{OPEN}{{"name": "select", "arguments": "{"[" * 50_000}"}}{CLOSE}', (), ("wrong_shape",)),
        # the other XML spelling; a run of seven digits is no page number, six digits are a page that is not there
        (f"{OPEN}select<indices>1, 3</indices>{CLOSE}", (1, 3), ("xml_style",)),
        (f"{OPEN}select<arg_value>[1234567, 2]</arg_value>{CLOSE}", (2,), ("xml_style",)),
        (f"{OPEN}select<arg_value>[123456, 2]</arg_value>{CLOSE}", (2,), ("xml_style", "out_of_range")),
        # a server that drops special tokens leaves a bare body; text that names no pages stays text
        ('{"name": "open", "indices": [1]}', (1,), ("wrong_name", "missing_close")),
        ("<indices>1, 3</indices>", (1, 3), ("xml_style", "missing_close")),
        ('{"name": "select", "indices": [1, "2"]}', (), ("no_call",)),
        ('{"total": 3}', (), ("no_call",)),
        (f"{OPEN}{'[' * 5000}{CLOSE}", (), ("not_json",)),
        (f'{OPEN}{{"name": "select", "indices": [{"9" * 5000}]}}{CLOSE}', (), ("not_json",)),
    ],
)
def test_every_deviation_has_its_name(text, pages, deviations):
    parsed = parse_call_text(text, range(1, 5), 3)
    assert parsed.pages == pages
    assert parsed.deviations == deviations
    assert set(deviations) <= set(DEVIATIONS)


def test_without_a_limit_every_page_may_be_asked_for():
    pages = tuple(range(1, 41))
    assert parse_call(render_call(pages), pages).pages == pages
    assert parse_call_text(f"{OPEN}{render_call(pages)}{CLOSE}", pages).pages == pages


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
    assert json.dumps(call_schema(range(3, 6), 2)) == json.dumps(schema), "any sequence of pages will do"
    assert call_schema((3, 4), None)["properties"]["indices"]["maxItems"] == 2
    assert call_schema((3, 4), 8)["properties"]["indices"]["maxItems"] == 2


@pytest.mark.parametrize(("allowed", "limit"), [((), 3), ((), None), ((1, 2), 0)])
def test_where_nothing_may_be_asked_for_the_empty_call_is_the_only_one(allowed, limit):
    assert call_grammar(allowed, limit).splitlines()[1:] == ['list ::= ""']
