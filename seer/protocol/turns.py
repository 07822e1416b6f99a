"""The layout of a conversation: which control tokens, texts and images it consists of, in which order.

A conversation is a list of `Turn`s. `layout` converts it into `Piece`s: control tokens, plain text and image slots, in
order, each with its loss class. `seer.protocol.encoding` converts pieces into ids. This module uses no tokenizer.
Documents, questions and observations become text pieces only, never control pieces.

    [gMASK]<sop><|user|>
    [Image 1]<|begin_of_image|>...<|end_of_image|>[Image 2]<|begin_of_image|>...<|end_of_image|>
    Query: What is the total price?<|assistant|>
    <tool_call>{"name": "select", "indices": [1, 2]}</tool_call><|observation|>
    Text from image 1: ...
    Text from image 2: ...
    <think>The laptop costs ...</think>
    The total price is $1,749.98.<|user|>

The layout follows section A.1.3 of the Seer paper. The ids of the tokens are those of the loaded tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from seer.errors import InputError
from seer.protocol.call import render_call
from seer.protocol.control import CONTROL, SYSTEM_TOKEN
from seer.schema import Excerpt, LossClass, Turn


@dataclass(frozen=True)
class Piece:
    """A part of the conversation: one control token, plain text, or the slot of one page image."""

    kind: Literal["control", "text", "image"]
    value: str
    loss_class: LossClass
    page: int = 0
    """The page number of an image; 0 for other pieces."""


def layout(turns: Sequence[Turn]) -> list[Piece]:
    """Convert a conversation into its pieces.

    A prompt ends with the assistant marker, after which the model generates, unless the prompt is outside the chat
    template; an answer ends with the stop token. The pieces of turns[:n] are therefore always a prefix of the pieces
    of turns[:n + 1].

    Raises InputError if the turns are in an order that the protocol does not allow, or if a prompt outside the chat
    template shows images.
    """
    _check_order(turns)
    pieces: list[Piece] = []
    for index, turn in enumerate(turns):
        previous = turns[index - 1].kind if index else ""
        pieces.extend(_LAYOUTS[turn.kind](turn, previous))
    return pieces


def _control(name: str, loss_class: LossClass) -> Piece:
    return Piece("control", name, loss_class)


def _prompt(turn: Turn, _: str) -> Iterator[Piece]:
    prompt = LossClass.PROMPT
    for name in (CONTROL.mask, CONTROL.start):
        yield _control(name, prompt)
    if not turn.chat:
        yield Piece("text", plain_prompt(turn), prompt)
        return
    yield _control(CONTROL.user, prompt)
    texts = {excerpt.page: excerpt.text for excerpt in turn.excerpts}
    head = "\n"  # text that has not been emitted yet; adjacent texts form one piece
    for page in sorted({*turn.pages, *texts}):
        if page in texts:
            # Page 0 is the whole document as text, which needs no label.
            head += f"[Image {page}] {texts[page]}\n" if page else f"{texts[page]}\n"
            continue
        yield Piece("text", f"{head}[Image {page}]", prompt)
        yield _control(CONTROL.begin_image, prompt)
        yield Piece("image", CONTROL.image, prompt, page)
        yield _control(CONTROL.end_image, prompt)
        head = ""
    yield Piece("text", f"{head}\nQuery: {turn.text}", prompt)
    yield _control(CONTROL.assistant, prompt)
    yield Piece("text", "\n", prompt)


ChatContent = Sequence[str | tuple[int, int]]
"""Content of a chat message in order: texts, and (width_px, height_px) of images."""


def chat_layout(messages: Sequence[tuple[str, ChatContent]], *, has_system_token: bool) -> list[Piece]:
    """Convert a free chat into its pieces, up to the marker after which the assistant generates.

    messages: (role, content) with roles system, user and assistant. Images are numbered from 1 over the whole chat.
    has_system_token: whether the tokenizer has one; without it, a system message becomes the beginning of the next user
    message.

    The layout is that of GLM-4.1V's chat template. `seer.engines.base.Chat` validates the roles.
    """
    prompt = LossClass.PROMPT
    pieces = [_control(CONTROL.mask, prompt), _control(CONTROL.start, prompt)]
    markers = {"user": CONTROL.user, "assistant": CONTROL.assistant, "system": SYSTEM_TOKEN}
    pending = ""  # a system message that waits for the next user message
    images = 0
    for role, content in messages:
        if role == "system" and not has_system_token:
            pending = "".join(part for part in content if isinstance(part, str)) + "\n\n"
            continue
        pieces.append(_control(markers[role], prompt))
        text, pending = "\n" + pending, ""
        for part in content:
            if isinstance(part, str):
                text += part
                continue
            images += 1
            if text:
                pieces.append(Piece("text", text, prompt))
            pieces.append(_control(CONTROL.begin_image, prompt))
            pieces.append(Piece("image", CONTROL.image, prompt, images))
            pieces.append(_control(CONTROL.end_image, prompt))
            text = ""
        if text:
            pieces.append(Piece("text", text, prompt))
    return [*pieces, _control(CONTROL.assistant, prompt), Piece("text", "\n", prompt)]


def plain_prompt(turn: Turn) -> str:
    """Return the text of a prompt outside the chat template, which the model continues.

    Raises InputError if the prompt shows pages as images.
    """
    if turn.pages:
        pages = ", ".join(map(str, turn.pages))
        raise InputError(
            f"a prompt outside the chat template shows text only, but it has page images ({pages}); pass their text as "
            "excerpts"
        )
    return "".join(f"{excerpt.text}\n" for excerpt in turn.excerpts) + turn.text


def _call(turn: Turn, _: str) -> Iterator[Piece]:
    yield _control(CONTROL.open_call, LossClass.STRUCTURE)
    yield Piece("text", render_call(turn.pages), LossClass.CALL)
    yield _control(CONTROL.close_call, LossClass.STRUCTURE)


def _observation(turn: Turn, _: str) -> Iterator[Piece]:
    yield _control(CONTROL.observation, LossClass.OBSERVATION)
    yield Piece("text", f"\n{render_observation(turn)}\n", LossClass.OBSERVATION)


def _think(turn: Turn, _: str) -> Iterator[Piece]:
    yield _control(CONTROL.open_think, LossClass.STRUCTURE)
    if turn.text:
        yield Piece("text", turn.text, LossClass.THINK)
    yield _control(CONTROL.close_think, LossClass.STRUCTURE)


def _answer(turn: Turn, previous: str) -> Iterator[Piece]:
    text = f"\n{turn.text}" if previous == "think" else turn.text
    if text:
        yield Piece("text", text, LossClass.ANSWER)
    yield _control(CONTROL.user, LossClass.STOP)


_LAYOUTS = {"prompt": _prompt, "call": _call, "observation": _observation, "think": _think, "answer": _answer}
_MAY_FOLLOW = {
    "": {"prompt"},
    "prompt": {"call", "think", "answer"},
    "call": {"observation"},
    "observation": {"call", "think", "answer"},
    "think": {"answer"},
    # After an observation the model may reason and then select again; the first call comes without reasoning.
    "observation, think": {"call", "answer"},
    "answer": set[str](),
}


def _check_order(turns: Sequence[Turn]) -> None:
    """Raise InputError at the first turn that cannot follow the one before it."""
    previous = ""
    for turn in turns:
        if turn.kind not in _MAY_FOLLOW[previous]:
            allowed = ", ".join(sorted(_MAY_FOLLOW[previous])) or "nothing"
            place = f"'{previous}'" if previous else "the start"
            raise InputError(f"turn '{turn.kind}' cannot follow {place}; allowed here: {allowed}")
        previous = "observation, think" if (previous, turn.kind) == ("observation", "think") else turn.kind


GAP_MARK = " […] "
"""Mark between two excerpts of one page whose text does not adjoin."""

# ── Observations ─────────────────────────────────────────────────────────────────────────────────


def observation(excerpts: Sequence[Excerpt]) -> Turn:
    """Return the observation that carries the exact text of `excerpts`; without any, a fixed sentence says so."""
    if not excerpts:
        return Turn(kind="observation", text="You selected no images. Please answer based on the visual content.")
    return Turn(kind="observation", excerpts=tuple(excerpts))


def observation_without_text(pages: Sequence[int]) -> Turn:
    """Return the observation that confirms the selected pages without their text (k = 0, section A.4 of the paper)."""
    listed = json.dumps(list(pages))
    text = f"You identified images {listed} as relevant. Please answer based on the visual content of these images."
    return Turn(kind="observation", text=text)


def render_observation(turn: Turn) -> str:
    """Return the text of an observation turn: a labelled text for each run of excerpts of one page, or the turn's own text.

    Consecutive excerpts of one page share a label, and a mark shows where text between them is left out.
    """
    parts = [turn.text] if not turn.excerpts else []
    for n, excerpt in enumerate(turn.excerpts):
        previous = turn.excerpts[n - 1] if n else None
        if previous is None or previous.page != excerpt.page:
            parts.append(f"{chr(10) if n else ''}Text from image {excerpt.page}: {excerpt.text}")
        else:
            parts.append(excerpt.text if previous.end == excerpt.start else f"{GAP_MARK}{excerpt.text}")
    return "".join(parts)
