"""Request bodies of chat completions and plain completions. Values in, values out.

A chat's body has only fields that every server knows, so it does not depend on a server's abilities. A ledger of calls
identifies a call by this body (`body_key`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seer.engines.base import Constraint, Conversation, JsonSchema, Request, Sampling, SelectCall
from seer.engines.openai.messages import completion_prompt, conversation_messages
from seer.engines.openai.probe import Abilities
from seer.protocol.control import CONTROL
from seer.protocol.grammar import call_schema, call_structural_tag


@dataclass(frozen=True)
class SerialisedRequest(Request):
    """A chat whose body was serialised already, to compute its key. The engine sends it unchanged: one sample, whole."""

    data: bytes = b""
    key: str = ""
    """`body_key` of the data, sent as its Idempotency-Key."""


def serialise(body: Mapping[str, Any]) -> bytes:
    """The body as it is sent. Equal bodies give equal bytes."""
    return json.dumps(body, sort_keys=True).encode()


def body_key(data: bytes) -> str:
    """Identifies a call by its serialised body: 32 hexadecimal digits. The address is not part of it."""
    return hashlib.sha256(data).hexdigest()[:32]


# ── Chats ────────────────────────────────────────────────────────────────────────────────────────


def chat_body(
    messages: Sequence[Mapping[str, Any]],
    model: str,
    sampling: Sampling,
    extra: Mapping[str, Any] | None = None,
    *,
    n: int = 1,
    schema: JsonSchema | None = None,
) -> dict[str, Any]:
    """The body of a chat.

    Args:
        messages: The rendered messages.
        model: The model's name at the server.
        sampling: Sampling parameters. `top_k` is sent only if it is set, because not every server knows it.
        extra: Further keys of the body, which override the others.
        n: Samples to draw; 1 is not sent.
        schema: Constrains the reply, on servers that follow it.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": list(messages),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_new_tokens,
        "seed": sampling.seed,
    }
    if sampling.top_k:
        body["top_k"] = sampling.top_k
    if n > 1:
        body["n"] = n
    if schema is not None:
        body["response_format"] = json_format(schema.name, json.loads(schema.schema))
    return {**body, **(extra or {})}


def json_format(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The `response_format` for a JSON schema."""
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}


# ── Conversations ────────────────────────────────────────────────────────────────────────────────


def conversation_body(request: Request, urls: Mapping[int, str], abilities: Abilities) -> dict[str, Any]:
    """The body of a conversation: with `messages`, or with `prompt` if the prompt is outside the chat format.

    urls: data URLs of the pages, by number.
    """
    assert isinstance(request.prompt, Conversation)
    prompt, continues = completion_prompt(request.prompt.turns), False
    content: dict[str, Any] = {"prompt": prompt}
    if prompt is None:
        messages, continues = conversation_messages(request.prompt.turns, urls, abilities.continuation)
        content = {"messages": messages}
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": abilities.model,
        **content,
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
    }
    if request.n > 1:
        body["n"] = request.n
    if abilities.is_vllm:
        body |= {"top_k": sampling.top_k, "repetition_penalty": 1.0}
        body |= {"skip_special_tokens": False, "return_token_ids": True}
    if continues:
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    return body | constraint_fields(request.constraint, abilities)


def constraint_fields(constraint: Constraint | None, abilities: Abilities) -> dict[str, Any]:
    """The fields that constrain the reply, as far as the server supports it, and exclude control tokens from it."""
    if isinstance(constraint, SelectCall) and constraint.required and constraint.enforced:
        return call_fields(constraint, abilities)
    if isinstance(constraint, JsonSchema) and abilities.follows_schemas:
        return {"response_format": json_format(constraint.name, json.loads(constraint.schema))}
    if abilities.ids:
        bias = dict.fromkeys(map(str, suppressed(constraint, abilities.ids)), -100)
        stops = [CONTROL.user, CONTROL.end_of_text]
        if isinstance(constraint, SelectCall) and not constraint.enforced:
            stops.append(CONTROL.close_call)
        return {"stop_token_ids": [abilities.ids[name] for name in stops], "logit_bias": bias}
    return {}


def suppressed(constraint: Constraint | None, ids: Mapping[str, int]) -> list[int]:
    """Control tokens that the model must not write under this constraint."""
    spoken = {CONTROL.user, CONTROL.end_of_text, CONTROL.open_think, CONTROL.close_think}
    if isinstance(constraint, SelectCall):
        spoken |= {CONTROL.open_call, CONTROL.close_call}
    return sorted(token_id for name, token_id in ids.items() if name not in spoken)


def call_fields(call: SelectCall, abilities: Abilities) -> dict[str, Any]:
    """The fields that constrain the reply to a select call, as far as the server supports it."""
    allowed, limit = call.allowed, call.max_pages
    if abilities.structure == "structural_tag":
        opening, closing = abilities.ids[CONTROL.open_call], abilities.ids[CONTROL.close_call]
        tag = call_structural_tag(opening, closing, allowed, limit)
        return {"structured_outputs": {"structural_tag": json.dumps(tag)}}
    if abilities.structure == "json_schema":
        return {"response_format": json_format("select_call", call_schema(allowed, limit))}
    return {}
