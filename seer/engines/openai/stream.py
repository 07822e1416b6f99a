"""A streamed reply: text is passed on as it arrives, and the whole becomes the body of an ordinary reply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from seer.engines.base import Chat, Request
from seer.engines.openai.replies import first_choice, read_text, reasoning_of
from seer.errors import EngineError, EngineUnavailable
from seer.protocol.control import CONTROL
from seer.protocol.literals import CHAT_LITERALS, GLM_LITERALS, Literals

MAX_LITERAL_CHARS = 48
"""Longest spelling of a control token, a joiner or two included."""


async def collect_stream(events: AsyncIterator[Any], request: Request) -> dict[str, Any]:
    """Pass the text of the events on to the request's callbacks and return the reply as one body.

    Raises EngineError. Text that was passed on cannot be taken back, so a stream that breaks after its first text is not
    attempted again.
    """
    text, reasoning, finish = "", "", ""
    ids: list[Any] = []
    usage: Any = None
    stop_reason: Any = None
    tags = TagStream(request)
    try:
        async for event in events:
            if not isinstance(event, Mapping):
                raise EngineError("the server's stream holds an event that is not a JSON object", retryable=True)
            # The usage arrives in the last event, which has no choices.
            usage = event.get("usage") or usage
            if not event.get("choices"):
                continue
            message, ended = first_choice(event)
            finish = ended or finish
            stop_reason = event["choices"][0].get("stop_reason", stop_reason)
            text += message.get("content") or ""
            thought = reasoning_of(message)
            reasoning += thought
            tags(thought, message.get("content") or "")
            new_ids = event["choices"][0].get("token_ids") or []
            ids += new_ids if isinstance(new_ids, list) else [None]  # None is not an id, so the text is read instead
        if not finish:
            raise EngineUnavailable("the server's stream broke off before its end: it gave no finish reason")
    except EngineError as error:
        if text or reasoning:
            error.retryable = False
        raise
    tags.end()
    choice = {"message": {"content": text, "reasoning_content": reasoning}, "finish_reason": finish}
    choice |= {"stop_reason": stop_reason} | ({"token_ids": ids} if ids else {})
    return {"choices": [choice], "usage": usage}


class TagStream:
    """Passes text on as it arrives, and control tokens, which the server spells out, by name.

    The beginning of a possible tag, or of neutralised text, is kept until it is decided.
    """

    def __init__(self, request: Request) -> None:
        self._on_text, self._on_control = request.on_text, request.on_control
        self._literals: Literals = CHAT_LITERALS if isinstance(request.prompt, Chat) else GLM_LITERALS
        self._kept = ""
        self._in_reasoning = False

    def __call__(self, reasoning: str, text: str) -> None:
        if reasoning:
            if not self._in_reasoning:
                self._in_reasoning = True
                self._control(CONTROL.open_think)
            self._text(reasoning)
        if text:
            if self._in_reasoning:
                self._in_reasoning = False
                self._control(CONTROL.close_think)
            self._kept += text
            # Every spelling begins with "<" or "[". One that is still open, and not yet too long, may become a tag.
            last = max(self._kept.rfind("<"), self._kept.rfind("["))
            undecided = last >= 0 and len(self._kept) - last < MAX_LITERAL_CHARS and ">" not in self._kept[last:]
            cut = last if undecided else len(self._kept)
            self._emit(self._kept[:cut])
            self._kept = self._kept[cut:]

    def end(self) -> None:
        """Pass on the text that was kept."""
        self._emit(self._kept)
        self._kept = ""

    def _emit(self, text: str) -> None:
        for name, part in read_text(text, literals=self._literals):
            if name:
                self._control(name)
            else:
                self._text(part)

    def _control(self, name: str) -> None:
        if self._on_control:
            self._on_control(name)

    def _text(self, text: str) -> None:
        if text and self._on_text:
            self._on_text(text)
