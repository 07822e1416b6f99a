"""Replies of an OpenAI-compatible server as parts and samples. Values in, values out.

A reply may have any shape: what cannot be read raises an EngineError. What a reply quotes of neutralised text is restored
in each part and stays text; tags count as control tokens only where the model wrote them itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any

from seer.engines.base import Completion, Parts
from seer.engines.json_reply import read_json
from seer.engines.text_replies import read_parts
from seer.errors import EngineError, RequestRefused
from seer.protocol.control import CONTROL
from seer.protocol.literals import GLM_LITERALS, Literals

Choice = tuple[Mapping[str, Any], str]
"""(message or delta, finish reason)."""
_BRACED = re.compile(r"\{[^{}]*\}")
_NO_MESSAGE = "the server's reply has no choices[0].message; is this an OpenAI-compatible address?"


def as_chat(reply: Any) -> Any:
    """A plain completion as the body of a chat completion, so that both are read alike."""
    choices = reply.get("choices") if isinstance(reply, Mapping) else None
    if not isinstance(choices, list) or not all(isinstance(choice, Mapping) for choice in choices):
        return reply
    return {**reply, "choices": [{**choice, "message": {"content": choice.get("text")}} for choice in choices]}


def all_choices(body: Any) -> list[Mapping[str, Any]]:
    """The choices of a reply. Raises EngineError if there is none."""
    choices = body.get("choices") if isinstance(body, Mapping) else None
    if not isinstance(choices, list) or not choices:
        raise EngineError(_NO_MESSAGE, retryable=True)
    return choices


def first_choice(body: Any) -> Choice:
    """The first choice of a reply. Raises EngineError if there is none."""
    return read_choice(all_choices(body)[0])


def read_choice(choice: Any) -> Choice:
    """Message or delta, and finish reason. Raises EngineError for a choice without a message of text."""
    message = None
    if isinstance(choice, Mapping):
        message = choice["delta"] if "delta" in choice else choice.get("message")
    if not isinstance(message, Mapping):
        raise EngineError(_NO_MESSAGE, retryable=True)
    # Some servers send the content in parts, as messages of a request may have them.
    if isinstance(message.get("content"), list):
        message = {**message, "content": _joined(message["content"])}
    for key in ("content", "reasoning_content", "reasoning"):
        if not isinstance(message.get(key), (str, NoneType)):
            raise EngineError(f"the server's reply holds {key} that is not text; Seer reads text replies")
    return message, str(choice.get("finish_reason") or "")


def _joined(content: Sequence[Any]) -> Any:
    """Content in text parts as one text; any other content unchanged."""
    texts = [part.get("text") for part in content if isinstance(part, Mapping)]
    if len(texts) < len(content) or not all(isinstance(text, str) for text in texts):
        return content
    return "".join(map(str, texts))


def reasoning_of(message: Mapping[str, Any]) -> str:
    """The thinking that the server sent separately."""
    return message.get("reasoning_content") or message.get("reasoning") or ""


def check_finish(finish: str) -> None:
    """Raises RequestRefused if the server withheld the reply, EngineError if it failed while it wrote it."""
    if finish == "content_filter":
        raise RequestRefused("the server's content filter withheld the reply")
    if finish in ("error", "abort", "aborted", "cancelled"):
        raise EngineError(f"the server ended the reply with '{finish}'", retryable=True)


def read_sample(choice: Any, literals: Literals, schema: str | None = None) -> Completion:
    """A free reply as a sample. Raises EngineError for a choice that cannot be read.

    literals: the spellings that were neutralised in the prompt.
    schema: the JSON schema that the answer should fit. If the answer holds a fitting object, it is reduced to the object;
        otherwise it stays as it is, and the caller decides.
    """
    message, finish = read_choice(choice)
    check_finish(finish)
    parts = read_text(message.get("content") or "", reasoning_of(message), literals)
    sample = Completion(parts, None, "length" if finish == "length" else "stop")
    if schema is None or (found := read_json(sample.text, schema)) is None or found == sample.text:
        return sample
    # The thinking is kept: only the answer is reduced.
    thinking = ((CONTROL.open_think, ""), ("", sample.reasoning), (CONTROL.close_think, ""))
    return replace(sample, parts=(*(thinking if sample.reasoning else ()), ("", found)))


def read_text(text: str, reasoning: str = "", literals: Literals = GLM_LITERALS) -> Parts:
    """The parts of a free reply; `reasoning` is the thinking that the server sent separately."""
    parts = read_parts(text, literals)
    if not reasoning:
        return parts
    return ((CONTROL.open_think, ""), ("", literals.restore(reasoning)), (CONTROL.close_think, ""), *parts)


def read_call(text: str, tool_calls: Any = None) -> Parts:
    """The parts of a reply that should be a call, in any spelling of it. `tool_calls` may have any shape.

    A call in tags is kept as it is. A structured tool call or a bare JSON body gets its tags. The text around it is
    kept, so that the deviation is recorded.
    """
    if tool_calls:
        return ((CONTROL.open_call, ""), ("", _call_body(tool_calls)), (CONTROL.close_call, ""))
    if CONTROL.open_call in text:
        return read_parts(text, GLM_LITERALS)
    # A call has no nested braces, and a pattern without nesting takes linear time on any reply.
    match = next((braced for braced in _BRACED.finditer(text) if '"indices"' in braced[0]), None)
    if match is None:
        return read_parts(text, GLM_LITERALS)
    before, after = text[: match.start()], text[match.end() :]
    parts = [("", before), (CONTROL.open_call, ""), ("", match[0]), (CONTROL.close_call, ""), ("", after)]
    return tuple((name, GLM_LITERALS.restore(part)) for name, part in parts if name or part.strip())


def _call_body(tool_calls: Any) -> str:
    """{"name": "select", "indices": [...]} of the first call. The parser judges its name and its arguments."""
    call = tool_calls[0] if isinstance(tool_calls, list) else None
    function = call.get("function") if isinstance(call, Mapping) else None
    function = function if isinstance(function, Mapping) else {}
    arguments = str(function.get("arguments") or "{}")
    return f'{{"name": {json.dumps(function.get("name"))}, {arguments.strip().removeprefix("{")}'


def usage_counts(body: Mapping[str, Any]) -> tuple[int, int, int]:
    """(prompt, cached, completion) tokens that the server counted; 0 for a count that is missing."""
    usage = body.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, Mapping) else {}
    return _count(usage, "prompt_tokens"), _count(details, "cached_tokens"), _count(usage, "completion_tokens")


def _count(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    return value if isinstance(value, int) and value >= 0 else 0
