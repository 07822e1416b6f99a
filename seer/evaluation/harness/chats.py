"""From lm-evaluation-harness's requests to chats that `seer serve` reads, and back to what the harness expects. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from seer.errors import InputError

DOCUMENT_FIELD = "context"
"""LongBench's name for the document in a record."""
DEFAULT_ANSWER_TOKENS = 256
"""The harness's own default, where a task sets no limit."""


def take_apart(prompt: str, record: Mapping[str, Any], field: str = DOCUMENT_FIELD) -> tuple[str, str]:
    """(document, question): the record's document, and what else the prompt says.

    Raises InputError where the record has no such text, or the prompt does not hold it.
    """
    document = record.get(field)
    if not isinstance(document, str) or not document.strip():
        raise InputError(f"the task's records have no text '{field}'; name the field that holds the document")
    # the harness may have trimmed the prompt at its ends
    held = next((text for text in (document, document.strip()) if text in prompt), None)
    if held is None:
        raise InputError(f"the task's prompt does not hold its record's '{field}'; few-shot prompts cannot be read")
    before, _, after = prompt.partition(held)
    return document, f"{before.strip()}\n\n{after.strip()}".strip()


def chat_of(document: str, question: str) -> list[dict[str, Any]]:
    """One message: the document as a file, which no length can make into talk, then the question."""
    data = base64.b64encode(document.encode("utf-8", "replace")).decode()
    file = {"filename": "document.txt", "file_data": f"data:text/plain;base64,{data}"}
    return [{"role": "user", "content": [{"type": "file", "file": file}, {"type": "text", "text": question}]}]


def sampling_of(arguments: Mapping[str, Any], reasoning_tokens: int) -> dict[str, Any]:
    """Temperature and completion tokens as the task asks for them, with room for reasoning."""
    sizes = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
    size = next((int(arguments[name]) for name in sizes if arguments.get(name)), DEFAULT_ANSWER_TOKENS)
    temperature = float(arguments.get("temperature") or 0) if arguments.get("do_sample") else 0.0
    return {"temperature": temperature, "max_tokens": size + reasoning_tokens}


def cut_at_stops(text: str, stops: str | Sequence[str] | None) -> str:
    """The text before the first stop sequence. A line break before the answer is none of its own."""
    text = text.lstrip("\n")
    for stop in [stops] if isinstance(stops, str) else stops or ():
        if stop:
            text = text.partition(stop)[0]
    return text
