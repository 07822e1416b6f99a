"""A conversation as OpenAI-style chat messages, and what comes back as parts. Values in, values out.

Only strings can be sent this way, so everything that comes from outside is neutralised: the server's own tokenizer finds
no control token in it. What the server writes is restored before it is read.

How a second stage is put to the server (`Continuation`):

tool       an assistant message with a tool call and a tool message: Seer's own template makes the exact prompt of it
assistant  one assistant message that the server goes on with (continue_final_message): for templates without tools
user       plain turns, with a system message that explains the protocol: for models that were not trained on it
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from seer.engines.scripted import parts_of_text
from seer.errors import EngineError
from seer.protocol.call import CALL_NAME, render_call
from seer.protocol.control import CONTROL
from seer.protocol.literals import neutralise, restore
from seer.protocol.turns import layout, plain_prompt, render_observation
from seer.schema import Turn

Continuation = Literal["tool", "assistant", "user"]
ImageFormat = Literal["png", "jpeg"]
Parts = tuple[tuple[str, str], ...]

INSTRUCTIONS = (
    "You read a document whose pages are given as images, each after its label [Image n]. Work in two steps. First reply "
    f"with nothing but a JSON object that selects the pages whose exact text you need, such as {render_call((1, 3))}, "
    "with page numbers ascending; an empty list is allowed. You then receive the text of these pages. After that, "
    "answer the question briefly. If the document does not answer it, reply: Not answerable."
)


def chat_messages(
    turns: Sequence[Turn], images: Mapping[int, str], continuation: Continuation
) -> tuple[list[dict[str, Any]], bool]:
    """The messages of a conversation, and whether the server must go on with the last one.

    images: data URLs of the pages shown, by number.
    """
    prompt, *later = turns
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt_parts(prompt, images)}]
    if continuation == "user" and prompt.pages:  # a prompt of text alone asks for no page
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
    """The text that the server is to go on with outside any chat; None for a chat."""
    return None if turns[0].chat else neutralise(plain_prompt(turns[0]))


def as_chat(reply: Any) -> Any:
    """A plain completion as the body of a chat completion, so that both are read alike."""
    choices = reply.get("choices") if isinstance(reply, Mapping) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        return reply
    return {**reply, "choices": [{**choices[0], "message": {"content": choices[0].get("text")}}]}


def prompt_parts(turn: Turn, images: Mapping[int, str]) -> list[dict[str, Any]]:
    """The content parts of a prompt: labels and pictures interleaved, then the question."""
    pieces = [piece for piece in layout([turn]) if piece.kind != "control"]
    # the template itself begins a user's turn with a newline, and the assistant's
    pieces = pieces[:-1]
    parts: list[dict[str, Any]] = []
    for index, piece in enumerate(pieces):
        if piece.kind == "image":
            parts.append({"type": "image_url", "image_url": {"url": images[piece.page]}})
            continue
        text = piece.value if index else piece.value.removeprefix("\n")
        if text:
            parts.append({"type": "text", "text": neutralise(text)})
    return parts


def _with_thoughts(turns: Sequence[Turn]) -> list[tuple[Turn, str | None]]:
    """Calls and observations in turns, each call with the thinking before it: they are one message."""
    told: list[tuple[Turn, str | None]] = []
    thought = None
    for turn in turns:
        if turn.kind == "think":
            thought = turn.text
        else:
            told.append((turn, thought))
            thought = None
    return told


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
        said = render_call(turn.pages)
        return {"role": "assistant", "content": f"{neutralise(thought)}\n{said}" if thought else said}
    return {"role": "user", "content": neutralise(render_observation(turn))}


def _spelled(turn: Turn) -> str:
    """A turn as the text that a server's tokenizer reads back into control tokens."""
    if turn.kind == "call":
        return f"{CONTROL.open_call}{render_call(turn.pages)}{CONTROL.close_call}"
    if turn.kind == "think":
        return f"{CONTROL.open_think}{neutralise(turn.text)}{CONTROL.close_think}"
    return f"{CONTROL.observation}\n{neutralise(render_observation(turn))}\n"


# ── Pictures ─────────────────────────────────────────────────────────────────────────────────────


def data_url(image: np.ndarray, kind: ImageFormat) -> str:
    """A page as a data URL. PNG is exact and, for pages of text, mostly the smaller one."""
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


# ── What comes back ──────────────────────────────────────────────────────────────────────────────

_BRACED = re.compile(r"\{[^{}]*\}")


def read_call(text: str, tool_calls: Any = None) -> Parts:
    """The parts of a reply that should be a call, however the server spelled it. `tool_calls` may be of any shape.

    A call in tags stands as it is. A structured tool call or a bare JSON body gets its tags; what stands around it is
    kept, so that the deviation is seen and named.
    """
    if tool_calls:
        return ((CONTROL.open_call, ""), ("", _call_body(tool_calls)), (CONTROL.close_call, ""))
    if CONTROL.open_call in text:
        return _parts(text)
    match = next((braced for braced in _BRACED.finditer(text) if '"indices"' in braced[0]), None)
    if match is None:
        return _parts(text)
    before, after = text[: match.start()], text[match.end() :]
    parts = [("", before), (CONTROL.open_call, ""), ("", match[0]), (CONTROL.close_call, ""), ("", after)]
    return tuple((name, restore(part)) for name, part in parts if name or part.strip())


def _parts(text: str) -> Parts:
    """Tags are what the model wrote as such; what it quotes of neutralised text is restored in each part, and stays text."""
    return tuple((name, restore(part)) for name, part in parts_of_text(text))


def _call_body(tool_calls: Any) -> str:
    """{"name": "select", "indices": [...]} of the first call, whatever its name and arguments are: the parser judges them."""
    call = tool_calls[0] if isinstance(tool_calls, list) else None
    function = call.get("function") if isinstance(call, Mapping) else None
    function = function if isinstance(function, Mapping) else {}
    arguments = str(function.get("arguments") or "{}")
    return f'{{"name": {json.dumps(function.get("name"))}, {arguments.strip().removeprefix("{")}'


def read_text(text: str, reasoning: str = "") -> Parts:
    """The parts of a free reply; `reasoning` is what the server sent apart as thinking."""
    parts = _parts(text)
    if not reasoning:
        return parts
    return ((CONTROL.open_think, ""), ("", restore(reasoning)), (CONTROL.close_think, ""), *parts)


def first_choice(body: Any) -> tuple[Mapping[str, Any], str]:
    """(message or delta, finish reason) of the first choice. Raises EngineError for a body that has none."""
    choices = body.get("choices") if isinstance(body, Mapping) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = None
    if isinstance(choice, Mapping):
        message = choice["delta"] if "delta" in choice else choice.get("message")
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        raise EngineError(
            "the server's reply has no choices[0].message; is this an OpenAI-compatible address?", retryable=True
        )
    for key in ("content", "reasoning_content", "reasoning"):
        if not isinstance(message.get(key), str | None):
            raise EngineError(
                f"the server's reply holds {key} that is no text; Seer reads text replies", retryable=False
            )
    return message, str(choice.get("finish_reason") or "")


def usage_counts(body: Mapping[str, Any]) -> tuple[int, int, int]:
    """(prompt, cached, completion) tokens that the server counted; 0 where it does not say."""
    usage = body.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, Mapping) else {}
    return _count(usage, "prompt_tokens"), _count(details, "cached_tokens"), _count(usage, "completion_tokens")


def _count(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    return value if isinstance(value, int) and value >= 0 else 0
