"""Prompts as OpenAI-style chat messages. Values in, values out.

Only strings can be sent, so untrusted text is neutralised: the server's tokenizer finds no control token in it.
`seer.engines.openai.replies` restores what a reply quotes of it.

How the later stages of a conversation are sent (`Continuation`):

tool       an assistant message with a tool call and a tool message: Seer's own template renders the exact prompt from it
assistant  one assistant message that the server continues (continue_final_message): for templates without tools
user       plain turns, with a system message that explains the protocol: for models that were not trained on it
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from seer.engines.base import Chat, Message
from seer.protocol.call import CALL_NAME, render_call
from seer.protocol.control import CONTROL
from seer.protocol.literals import CHAT_LITERALS, neutralise
from seer.protocol.turns import layout, plain_prompt, render_observation
from seer.schema import Turn

Continuation = Literal["tool", "assistant", "user"]
ImageFormat = Literal["png", "jpeg"]

INSTRUCTIONS = (
    "You read a document whose pages are given as images, each after its label [Image n]. Work in two steps. First reply "
    f"with nothing but a JSON object that selects the pages whose exact text you need, such as {render_call((1, 3))}, "
    "with page numbers ascending; an empty list is allowed. You then receive the text of these pages. After that, "
    "answer the question briefly. If the document does not answer it, reply: Not answerable."
)


# ── Chats ────────────────────────────────────────────────────────────────────────────────────────


def chat_messages(chat: Chat, images: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """The messages of a chat.

    images: data URLs of the chat's images, by content hash.

    The system message is the program's own text and is sent unchanged. All other text is neutralised.
    """
    return [{"role": message.role, "content": _chat_content(message, images or {})} for message in chat.messages]


def _chat_content(message: Message, images: Mapping[str, str]) -> str | list[dict[str, Any]]:
    """A string for a message of text alone, which every server reads; else a list of parts."""
    if all(isinstance(part, str) for part in message.content):
        return message.text if message.role == "system" else CHAT_LITERALS.neutralise(message.text)
    return [
        {"type": "text", "text": CHAT_LITERALS.neutralise(part)}
        if isinstance(part, str)
        else _image_part(images[part.content_hash])
        for part in message.content
    ]


def _image_part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


# ── Conversations ────────────────────────────────────────────────────────────────────────────────


def conversation_messages(
    turns: Sequence[Turn], images: Mapping[int, str], continuation: Continuation
) -> tuple[list[dict[str, Any]], bool]:
    """The messages of a conversation, and whether the server must continue the last one.

    images: data URLs of the pages shown, by number.
    """
    prompt, *later = turns
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt_parts(prompt, images)}]
    if continuation == "user" and prompt.pages:  # a prompt without images asks for no page
        messages.insert(0, {"role": "system", "content": INSTRUCTIONS})
    if continuation == "user":
        messages += [_plain_message(turn, thought) for turn, thought in _with_thoughts(later)]
        return messages, False
    if continuation == "tool":
        messages += [_tool_message(turn, n // 2, thought) for n, (turn, thought) in enumerate(_with_thoughts(later))]
        return messages, False
    if later:
        messages.append({"role": "assistant", "content": "".join(map(_spelled, later))})
    return messages, bool(later)


def completion_prompt(turns: Sequence[Turn]) -> str | None:
    """The text that the server continues outside any chat; None for a conversation in the chat format."""
    return None if turns[0].chat else neutralise(plain_prompt(turns[0]))


def prompt_parts(turn: Turn, images: Mapping[int, str]) -> list[dict[str, Any]]:
    """The content parts of a prompt: labels and images interleaved, then the question."""
    pieces = [piece for piece in layout([turn]) if piece.kind != "control"]
    # the template itself begins the user's turn and the assistant's with a newline
    pieces = pieces[:-1]
    parts: list[dict[str, Any]] = []
    for index, piece in enumerate(pieces):
        if piece.kind == "image":
            parts.append(_image_part(images[piece.page]))
            continue
        text = piece.value if index else piece.value.removeprefix("\n")
        if text:
            parts.append({"type": "text", "text": neutralise(text)})
    return parts


def _with_thoughts(turns: Sequence[Turn]) -> list[tuple[Turn, str | None]]:
    """Calls and observations, each call with the thinking before it: the two are one message."""
    paired: list[tuple[Turn, str | None]] = []
    thought = None
    for turn in turns:
        if turn.kind == "think":
            thought = turn.text
        else:
            paired.append((turn, thought))
            thought = None
    return paired


def _tool_message(turn: Turn, number: int, thought: str | None) -> dict[str, Any]:
    identity = f"call_{number}"
    if turn.kind == "call":
        function = {"name": CALL_NAME, "arguments": json.dumps({"indices": list(turn.pages)})}
        call = {"id": identity, "type": "function", "function": function}
        reasoning = {} if thought is None else {"reasoning_content": neutralise(thought)}
        return {"role": "assistant", "content": None, **reasoning, "tool_calls": [call]}
    return {"role": "tool", "tool_call_id": identity, "content": neutralise(render_observation(turn))}


def _plain_message(turn: Turn, thought: str | None) -> dict[str, Any]:
    if turn.kind == "call":
        call = render_call(turn.pages)
        return {"role": "assistant", "content": f"{neutralise(thought)}\n{call}" if thought else call}
    return {"role": "user", "content": neutralise(render_observation(turn))}


def _spelled(turn: Turn) -> str:
    """A turn as text from which the server's tokenizer restores the control tokens."""
    if turn.kind == "call":
        return f"{CONTROL.open_call}{render_call(turn.pages)}{CONTROL.close_call}"
    if turn.kind == "think":
        return f"{CONTROL.open_think}{neutralise(turn.text)}{CONTROL.close_think}"
    return f"{CONTROL.observation}\n{neutralise(render_observation(turn))}\n"


# ── Images ───────────────────────────────────────────────────────────────────────────────────────


def data_url(image: np.ndarray, kind: ImageFormat) -> str:
    """An image as a data URL: uint8 of shape (height, width) or (height, width, 3). PNG is exact, JPEG is not."""
    if kind == "png":
        from seer.rendering import png_bytes

        data: bytes = png_bytes(image)
    else:
        import io

        from PIL import Image

        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=85)
        data = buffer.getvalue()
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
