"""Tests of the layout of conversations: order of turns, control tokens, loss classes, observations."""

from __future__ import annotations

import re

import pytest

from seer.errors import InputError
from seer.models.small import SPECIAL_TOKENS
from seer.protocol.call import render_call
from seer.protocol.control import CONTROL, KNOWN_CONTROL_LITERALS
from seer.protocol.turns import layout, observation, observation_without_text, render_observation
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


def test_layout_paper_example_matches_appendix():
    image = "<|begin_of_image|><|image|><|end_of_image|>"
    assert spelled(layout(EXAMPLE)) == (
        f"[gMASK]<sop><|user|>\n[Image 1]{image}[Image 2]{image}[Image 3]{image}"
        "\nQuery: What is the total price of the laptop and the monitor?<|assistant|>\n"
        '<tool_call>{"name": "select", "indices": [1, 3]}</tool_call>'
        "<|observation|>\nText from image 1: Laptop: $1,299.99\nText from image 3: Monitor: $449.99\n"
        "<think>1,299.99 + 449.99 = 1,749.98</think>\nThe total price is $1,749.98.<|user|>"
    )


def test_layout_loss_classes_follow_the_speaker():
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
def test_layout_of_first_turns_is_a_prefix(turns):
    for n in range(1, len(turns)):
        assert layout(turns)[: len(layout(turns[:n]))] == layout(turns[:n])


def test_layout_allows_reasoning_between_observation_and_call():
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
def test_layout_rejects_impossible_order(turns):
    with pytest.raises(InputError, match="allowed here"):
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
def test_layout_accepts_possible_order(kinds):
    by_kind = {turn.kind: turn for turn in EXAMPLE}
    layout((PROMPT, *(by_kind[kind] for kind in kinds.split())))


def test_known_control_literals_cover_both_model_families():
    """Text that is sent as a string must not contain the name of any control token of either family."""
    assert {*SPECIAL_TOKENS["glm-4.1v"], *SPECIAL_TOKENS["glm-4.5v"], *CONTROL.names()} <= {*KNOWN_CONTROL_LITERALS}
    assert {*CONTROL.names()} <= {*SPECIAL_TOKENS["glm-4.1v"]}


def test_layout_impossible_order_names_allowed_turns():
    with pytest.raises(InputError, match="^turn 'call' cannot follow the start; allowed here: prompt$"):
        layout((EXAMPLE[1],))
    with pytest.raises(
        InputError, match="^turn 'observation' cannot follow 'prompt'; allowed here: answer, call, think$"
    ):
        layout((PROMPT, EXAMPLE[2]))
    with pytest.raises(InputError, match="^turn 'think' cannot follow 'answer'; allowed here: nothing$"):
        layout((PROMPT, EXAMPLE[4], EXAMPLE[3]))


def test_layout_pieces_are_control_tokens_texts_and_images():
    kinds = {(piece.kind, piece.value in CONTROL.names()) for piece in layout(EXAMPLE)}
    assert kinds == {("control", True), ("text", False), ("image", True)}
    assert {piece.page for piece in layout(EXAMPLE) if piece.kind != "image"} == {0}, "only an image piece has a page"


def test_layout_pages_in_any_order_come_out_ascending():
    read = tuple(Excerpt(page=page, start=0, text=f"text of {page}") for page in (400, 2))
    text = spelled(layout((Turn(kind="prompt", text="q", pages=(64, 8, 300, 1), excerpts=read),)))
    assert re.findall(r"\[Image (\d+)\]", text) == ["1", "2", "8", "64", "300", "400"]


def test_observation_without_excerpts_says_nothing_was_selected():
    text = spelled(layout((PROMPT, Turn(kind="call"), observation(()))))
    assert text.endswith("<|observation|>\nYou selected no images. Please answer based on the visual content.\n")


def test_observation_without_text_confirms_the_selection():
    text = spelled(layout((*EXAMPLE[:2], observation_without_text((1, 3)))))
    assert text.endswith(
        "<|observation|>\nYou identified images [1, 3] as relevant. "
        "Please answer based on the visual content of these images.\n"
    )


def test_layout_mixes_text_pages_and_image_pages_in_order():
    turn = Turn(kind="prompt", text="q", pages=(1, 3), excerpts=(Excerpt(page=2, start=0, text="two"),))
    pieces = layout((turn,))
    image = "<|begin_of_image|><|image|><|end_of_image|>"
    assert spelled(pieces) == (
        f"[gMASK]<sop><|user|>\n[Image 1]{image}[Image 2] two\n[Image 3]{image}\nQuery: q<|assistant|>\n"
    )
    assert [piece.page for piece in pieces if piece.kind == "image"] == [1, 3]
    assert {piece.loss_class for piece in pieces} == {LossClass.PROMPT}


def test_layout_whole_document_as_text_has_no_label():
    turn = Turn(kind="prompt", text="q", excerpts=(Excerpt(page=0, start=0, text="All of it."),))
    assert spelled(layout((turn,))) == "[gMASK]<sop><|user|>\nAll of it.\n\nQuery: q<|assistant|>\n"


def test_layout_prompt_outside_chat_is_text_only():
    shown = (Excerpt(page=0, start=0, text="Question: a\nType: b"), Excerpt(page=0, start=20, text="Question: c"))
    turn = Turn(kind="prompt", text="Type:", excerpts=shown, chat=False)
    pieces = layout((turn,))
    assert spelled(pieces) == "[gMASK]<sop>Question: a\nType: b\nQuestion: c\nType:"
    assert {piece.loss_class for piece in pieces} == {LossClass.PROMPT}
    with pytest.raises(InputError, match=r"shows text only, but it has page images \(1\)"):
        layout((turn.model_copy(update={"pages": (1,)}),))


def test_layout_empty_think_or_answer_has_no_text_piece():
    empty_think = layout((PROMPT, Turn(kind="think"), Turn(kind="answer", text="Yes.")))[len(layout((PROMPT,))) :]
    assert [piece.value for piece in empty_think] == ["<think>", "</think>", "\nYes.", "<|user|>"]
    empty_answer = layout((PROMPT, Turn(kind="answer")))[len(layout((PROMPT,))) :]
    assert [piece.value for piece in empty_answer] == ["<|user|>"]


def test_render_observation_labels_each_page_once_and_marks_what_is_left_out():
    spans = [(1, 0, "One. "), (1, 5, "Two."), (1, 20, "Five."), (3, 90, "Nine.")]
    turn = observation([Excerpt(page=page, start=start, text=text) for page, start, text in spans])
    assert render_observation(turn) == "Text from image 1: One. Two. […] Five.\nText from image 3: Nine."
