"""An answer as an ordinary chat completion, whole or in chunks, with an additional `seer` field.

All functions are pure; the server sends the values that they return.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from seer.schema import Answer, Document, Step


def completion(reply_id: str, created: int, model: str, document: Document, answer: Answer) -> dict[str, Any]:
    """The body of a reply in one piece. `created`: Unix time in seconds."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if thought := thinking(answer):
        message["reasoning_content"] = thought
    return {
        "id": reply_id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(answer), "logprobs": None}],
        "usage": usage(answer),
        "seer": seer_field(document, answer),
    }


def chunk(
    reply_id: str, created: int, model: str, delta: Mapping[str, Any], finish: str | None = None, **more: Any
) -> dict[str, Any]:
    """One chunk of a streamed reply. `more`: further fields, e.g. `seer`."""
    return {
        "id": reply_id,
        "object": "chat.completion.chunk",
        "created": created,
        "model": model,
        "choices": [{"index": 0, "delta": dict(delta), "finish_reason": finish, "logprobs": None}],
        **more,
    }


def event(value: Mapping[str, Any]) -> str:
    """One server-sent event. JSON escapes every newline, so no text can end the event early."""
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def finish_reason(answer: Answer) -> str:
    """ "length" if the last step ended at its token limit, else "stop"."""
    return "length" if answer.trace and answer.trace[-1].finish == "length" else "stop"


def usage(answer: Answer) -> dict[str, Any]:
    """Tokens of all model calls together, in the form of OpenAI's API."""
    prompt = sum(step.usage.prompt for step in answer.trace)
    spent = answer.usage
    return {
        "prompt_tokens": prompt,
        "completion_tokens": spent.completion,
        "total_tokens": prompt + spent.completion,
        "prompt_tokens_details": {"cached_tokens": spent.cached},
    }


def seer_field(document: Document, answer: Answer) -> dict[str, Any]:
    """The `seer` field of a reply: status, selected pages, citations, tokens, deviations and the document's warnings."""
    spent = answer.usage
    return {
        "status": str(answer.status),
        "cause": answer.cause,
        "pages": len(document.pages),
        "selected_pages": [_page(document, number) for number in answer.selected_pages],
        "citations": [citation.model_dump(mode="json") for citation in answer.citations],
        "tokens": {
            **spent.model_dump(mode="json"),
            "saved": max(0, spent.full_text - spent.prompt) if spent.full_text else 0,
        },
        "deviations": sorted({name for step in answer.trace for name in step.deviations}),
        "warnings": [warning.model_dump(mode="json") for warning in document.warnings],
        "seconds": round(answer.seconds, 4),
    }


def step_field(step: Step) -> dict[str, Any] | None:
    """The progress event of a step, for clients to show while they wait.

    None for steps that have no event: thinking and answers are streamed as text, and retrieved text is not sent.
    """
    if step.name == "look":
        return {"step": "look", "pages": len(step.pages)}
    if step.name == "select":
        return {"step": "select", "selected_pages": list(step.pages)}
    if step.name in ("retrieve", "reason", "answer"):
        return None
    outputs = {name: value for name, value in step.outputs.items() if name != "raw"}
    return {"step": step.name, "pages": list(step.pages), "outputs": outputs}


def error_body(message: str, kind: str, code: str, **more: Any) -> dict[str, Any]:
    """The shape in which OpenAI's clients expect errors."""
    return {"error": {"message": message, "type": kind, "code": code, "param": None, **more}}


def thinking(answer: Answer) -> str:
    """The model's thinking in all steps, joined by newlines."""
    return "\n".join(step.text for step in answer.trace if step.name == "reason" and step.text)


def _page(document: Document, number: int) -> dict[str, Any]:
    page = document.page(number)
    return {
        "number": number,
        "label": page.label,
        "source": page.source or document.name,
        "source_number": page.source_number,
    }
