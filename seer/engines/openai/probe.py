"""The abilities of an OpenAI-compatible server, found once by small requests without images.

structural_tag   constrains select calls to Seer's grammar and generates Seer's control tokens (vLLM with a Seer checkpoint)
json_schema      constrains replies to a JSON schema: range and number of pages are correct, their order is repaired
none             no constrained decoding: calls are parsed leniently
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from seer.engines.openai.http import Http
from seer.engines.openai.messages import Continuation
from seer.engines.openai.replies import first_choice, read_call
from seer.errors import EngineError, InputError
from seer.protocol.call import parse_call_text
from seer.protocol.control import CONTROL
from seer.protocol.grammar import call_schema, call_structural_tag

Structure = Literal["structural_tag", "json_schema", "none"]


@dataclass(frozen=True)
class Abilities:
    """What a server can do, and what it serves."""

    model: str
    structure: Structure
    continuation: Continuation
    is_vllm: bool = False
    max_positions: int | None = None
    ids: Mapping[str, int] = field(default_factory=dict)
    """Control token ids by name, if the server's tokenizer has each as a single token; else empty."""

    @property
    def follows_schemas(self) -> bool:
        """True if the server constrains replies to a JSON schema, as vLLM with structural tags also does."""
        return self.structure != "none"


async def probe(
    http: Http, model: str | None, structure: Structure | None, continuation: Continuation | None
) -> Abilities:
    """Find the abilities of a server, except those that are given.

    Raises EngineError if the server does not answer, InputError if it does not have the model.
    """
    card = choose_model(await http.get("/models"), model)
    name = str(card["id"])
    is_vllm = card.get("owned_by") == "vllm"
    ids = await _control_ids(http, name) if is_vllm else {}
    found = structure or await _structure(http, name, ids)
    if found == "structural_tag" and not ids:
        raise InputError(
            f"structure=structural_tag needs a vLLM server whose tokenizer has Seer's control tokens; {http.base_url} has not"
        )
    length = card.get("max_model_len")
    return Abilities(
        model=name,
        structure=found,
        continuation=continuation or await _continuation(http, name, ids),
        is_vllm=is_vllm,
        max_positions=length if isinstance(length, int) else None,
        ids=ids,
    )


def choose_model(listed: Any, wanted: str | None) -> Mapping[str, Any]:
    """The card of the wanted model, or of the only one. Raises InputError if there is none, or no single one."""
    entries = listed.get("data") if isinstance(listed, Mapping) else None
    entries = entries if isinstance(entries, list) else []
    cards = [card for card in entries if isinstance(card, Mapping) and card.get("id")]
    names = [str(card["id"]) for card in cards]
    if wanted is not None:
        for card in cards:
            if card["id"] == wanted:
                return card
        if not cards:  # some servers list no models, but serve them
            return {"id": wanted}
        raise InputError(f"the server has no model '{wanted}'; it has: {', '.join(names[:20])}")
    if len(cards) != 1:
        listing = ", ".join(names[:20]) or "no list of models"
        raise InputError(f"name the model with --model; the server has: {listing}")
    return cards[0]


async def _control_ids(http: Http, model: str) -> dict[str, int]:
    """Ids by name; empty if one of them is not a single token, or if the server offers no tokenizer."""
    ids: dict[str, int] = {}
    for name in CONTROL.names():
        try:
            reply = await http.post("../tokenize", {"model": model, "prompt": name, "add_special_tokens": False})
        except EngineError as error:
            if error.retryable:
                raise
            return {}
        tokens = reply.get("tokens") if isinstance(reply, Mapping) else None
        if not isinstance(tokens, list) or len(tokens) != 1 or type(tokens[0]) is not int:
            return {}
        ids[name] = tokens[0]
    return ids


async def _structure(http: Http, model: str, ids: Mapping[str, int]) -> Structure:
    """The best structure that the server follows. One that it only accepts, and then ignores, does not count."""
    if ids:
        tag = call_structural_tag(ids[CONTROL.open_call], ids[CONTROL.close_call], (7,), 1)
        fields = {"structured_outputs": {"structural_tag": json.dumps(tag)}, "skip_special_tokens": False}
        text = await _tried(http, model, fields)
        if text is not None and not parse_call_text(_until_closed(text), (7,), 1).deviations:
            return "structural_tag"
    # Without a grammar, a schema still keeps the pages in range.
    schema = {"name": "select_call", "strict": True, "schema": call_schema((7,), 1)}
    text = await _tried(http, model, {"response_format": {"type": "json_schema", "json_schema": schema}})
    if text is not None:
        call = "".join(name or part for name, part in read_call(text))
        if not parse_call_text(call, (7,), 1).deviations:
            return "json_schema"
    return "none"


def _until_closed(text: str) -> str:
    head, closing, _ = text.partition(CONTROL.close_call)
    return head + closing


async def _tried(http: Http, model: str, fields: Mapping[str, Any]) -> str | None:
    """The text of the reply to a request with these further fields; None if the server refuses them."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": 'Reply with this JSON: {"name": "select", "indices": [7]}'}],
        "max_tokens": 64,
        "temperature": 0,
        **fields,
    }
    try:
        message, _ = first_choice(await http.post("/chat/completions", body))
    except EngineError as error:
        if error.retryable:
            raise
        return None
    return message.get("content") or ""


async def _continuation(http: Http, model: str, ids: Mapping[str, int]) -> Continuation:
    """How a second stage is sent. `tool` needs a template that renders calls and observations as one assistant turn."""
    if not ids:
        return "user"
    call = {"id": "c", "type": "function", "function": {"name": "select", "arguments": '{"indices": [7]}'}}
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "y"},
    ]
    try:
        reply = await http.post("../tokenize", {"model": model, "messages": messages, "add_generation_prompt": True})
    except EngineError as error:
        if error.retryable:
            raise
        return "assistant"
    # The rendered chat must hold the call and the observation inside one assistant turn.
    tokens = reply.get("tokens") if isinstance(reply, Mapping) else None
    counted = tokens if isinstance(tokens, list) else []
    carried = [counted.count(ids[name]) for name in (CONTROL.assistant, CONTROL.open_call, CONTROL.observation)]
    return "tool" if carried == [1, 1, 1] else "assistant"
