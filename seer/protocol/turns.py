"""The conversation's form: control tokens by name, the prompt's layout, the select call.

A conversation is a list of `Turn`s. `layout` turns it into `Piece`s: control tokens, plain text and image slots, in
order, each with its loss class. `seer.protocol.encoding` turns pieces into ids. Nothing here knows a tokenizer, and nothing that
comes from outside (documents, questions, observations) can become a control piece: text stays text.

    [gMASK]<sop><|user|>
    [Image 1]<|begin_of_image|>...<|end_of_image|>[Image 2]<|begin_of_image|>...<|end_of_image|>
    Query: What is the total price?<|assistant|>
    <tool_call>{"name": "select", "indices": [1, 2]}</tool_call><|observation|>
    Text from image 1: ...
    Text from image 2: ...
    <think>The laptop costs ...</think>
    The total price is $1,749.98.<|user|>

The layout follows the Seer paper's A.1.3; ids follow the loaded tokenizer, whatever they are.
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
    """A stretch of the conversation: one control token, plain text, or the slot of one page image."""

    kind: Literal["control", "text", "image"]
    value: str
    loss_class: LossClass
    page: int = 0


def layout(turns: Sequence[Turn]) -> list[Piece]:
    """The pieces of a conversation, from the start to what its last turn asks for.

    After a prompt stands the mark that lets the model speak, unless it stands outside the chat; after an answer stands
    the stop token. So the pieces of turns[:n] are always a prefix of the pieces of turns[:n + 1]. Raises InputError on
    an order of turns that no conversation has.
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
    head = "\n"
    for page in sorted({*turn.pages, *texts}):
        if page in texts:
            # page 0 is the whole document as text: it needs no label
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
    """The pieces of a free chat, up to the marker after which the assistant speaks.

    messages: (role, content) with roles system, user and assistant. Images are numbered from 1 over the whole chat.
    Without a system token in the tokenizer, a system message becomes the beginning of the first user message. The
    layout is that of the chat template of GLM-4.1V; roles are validated by `seer.engines.base.Chat`.
    """
    prompt = LossClass.PROMPT
    pieces = [_control(CONTROL.mask, prompt), _control(CONTROL.start, prompt)]
    markers = {"user": CONTROL.user, "assistant": CONTROL.assistant, "system": SYSTEM_TOKEN}
    pending = ""
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
    """The text that a model goes on with, where a prompt stands outside any chat template."""
    if turn.pages:
        raise InputError("a prompt outside the chat template shows text only; it has pages as pictures")
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
    # what was read may be thought over before more is asked for; the first call is asked for at once
    "observation, think": {"call", "answer"},
    "answer": set[str](),
}


def _check_order(turns: Sequence[Turn]) -> None:
    previous = ""
    for turn in turns:
        if turn.kind not in _MAY_FOLLOW[previous]:
            allowed = ", ".join(sorted(_MAY_FOLLOW[previous])) or "nothing"
            raise InputError(f"turn '{turn.kind}' after '{previous or 'the start'}'; there may follow: {allowed}")
        previous = "observation, think" if (previous, turn.kind) == ("observation", "think") else turn.kind


# ── What the tool answers ────────────────────────────────────────────────────────────────────────


def observation(excerpts: Sequence[Excerpt]) -> Turn:
    """The observation that carries exact text. With nothing selected it says so."""
    if not excerpts:
        return Turn(kind="observation", text="You selected no images. Please answer based on the visual content.")
    return Turn(kind="observation", excerpts=tuple(excerpts))


def observation_without_text(pages: Sequence[int]) -> Turn:
    """The paper's A.4 observation: the selection is acknowledged, no text is given (k = 0)."""
    listed = json.dumps(list(pages))
    text = f"You identified images {listed} as relevant. Please answer based on the visual content of these images."
    return Turn(kind="observation", text=text)


def render_observation(turn: Turn) -> str:
    if not turn.excerpts:
        return turn.text
    return "\n".join(f"Text from image {excerpt.page}: {excerpt.text}" for excerpt in turn.excerpts)
