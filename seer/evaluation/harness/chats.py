"""Convert requests of lm-evaluation-harness to chats for `seer serve`, and replies to the texts that the harness expects."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from seer.engines.base import Chat
from seer.errors import InputError

DOCUMENT_FIELD = "context"
"""Field of LongBench's records with the document."""
DEFAULT_ANSWER_TOKENS = 256
"""Default of the harness for tasks without a limit."""


def take_apart(prompt: str, record: Mapping[str, Any], field: str = DOCUMENT_FIELD) -> tuple[str, str]:
    """Split a prompt into the record's document and the question, which is the rest of the prompt.

    Raises InputError if the record has no text in `field`, or the prompt does not contain that text.
    """
    document = record.get(field)
    if not isinstance(document, str) or not document.strip():
        raise InputError(f"the task's records have no text '{field}'; name the field that holds the document")
    # The harness may have stripped whitespace at either end of the prompt.
    held = next((text for text in (document, document.strip()) if text in prompt), None)
    if held is None:
        raise InputError(f"the task's prompt does not contain its record's '{field}'; set num_fewshot to 0")
    before, _, after = prompt.partition(held)
    return document, f"{before.strip()}\n\n{after.strip()}".strip()


def chat_of(document: str, question: str) -> Chat:
    """Return a chat of one message: the document, then the question."""
    return Chat.of(document, question)


def render_chat(chat: Chat, images: Mapping[str, str]) -> list[dict[str, Any]]:
    """Render a chat of `chat_of` for `seer serve`: the document as a file, and all text unchanged.

    A file is always read as a document, while the server treats short texts as part of the conversation. No text needs
    to be neutralised, because the server encodes it so that none of it becomes a control token.
    """
    document, question = chat.messages[0].content
    data = base64.b64encode(str(document).encode("utf-8", "replace")).decode()
    file = {"filename": "document.txt", "file_data": f"data:text/plain;base64,{data}"}
    return [{"role": "user", "content": [{"type": "file", "file": file}, {"type": "text", "text": question}]}]


def sampling_of(arguments: Mapping[str, Any], reasoning_tokens: int) -> dict[str, Any]:
    """Return the temperature and the completion tokens of a task's arguments, with tokens added for reasoning."""
    sizes = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
    size = next((int(arguments[name]) for name in sizes if arguments.get(name)), DEFAULT_ANSWER_TOKENS)
    temperature = float(arguments.get("temperature") or 0) if arguments.get("do_sample") else 0.0
    return {"temperature": temperature, "max_tokens": size + reasoning_tokens}


def cut_at_stops(text: str, stops: str | Sequence[str] | None) -> str:
    """Return the text before the first stop sequence. Newlines before the answer do not stop it."""
    text = text.lstrip("\n")
    for stop in [stops] if isinstance(stops, str) else stops or ():
        if stop:
            text = text.partition(stop)[0]
    return text
