"""Grammars and schemas of valid select calls, for constrained decoding."""

from __future__ import annotations

import json
from collections.abc import Sequence

from seer.protocol.call import CALL_NAME, render_call


def call_grammar(allowed: Sequence[int], max_pages: int | None = None) -> str:
    """An EBNF grammar (xgrammar's dialect) of every valid call body, and of nothing else.

    `allowed` are the pages that may be asked for, ascending. Pages ascend and are unique, at most `max_pages`; the
    empty list is valid. Rule `f_i_k` is a list that starts at the i-th allowed page or later and has at most k entries:
    len(allowed) · max_pages rules of constant size.
    """
    opening, closing = render_call(()).split("[]")
    head = f"root ::= {json.dumps(opening + '[')} list {json.dumps(']' + closing)}\n"
    limit = _limit(allowed, max_pages)
    if limit < 1:
        return head + 'list ::= ""\n'
    rules = [head, f'list ::= "" | f_0_{limit}\n']
    for k in range(1, limit + 1):
        for i, page in enumerate(allowed):
            more = i + 1 < len(allowed)
            tail = f' ("" | ", " f_{i + 1}_{k - 1})' if more and k > 1 else ""
            later = f" | f_{i + 1}_{k}" if more else ""
            rules.append(f'f_{i}_{k} ::= "{page}"{tail}{later}\n')
    return "".join(rules)


def call_structural_tag(
    open_id: int, close_id: int, allowed: Sequence[int], max_pages: int | None = None
) -> dict[str, object]:
    """A whole call as a structural tag (xgrammar, vLLM): the token <tool_call>, a valid body, the token </tool_call>.

    The tags are given as ids, so that they cannot be spelled in pieces; after the last one only a stop token may follow.
    """
    elements = [
        {"type": "token", "token": open_id},
        {"type": "grammar", "grammar": call_grammar(allowed, max_pages)},
        {"type": "token", "token": close_id},
    ]
    return {"type": "structural_tag", "format": {"type": "sequence", "elements": elements}}


def call_schema(allowed: Sequence[int], max_pages: int | None = None) -> dict[str, object]:
    """A JSON schema for call bodies: range and length hold, order and uniqueness do not (`parse_call` repairs)."""
    indices: dict[str, object] = {"type": "array", "minItems": 0, "maxItems": _limit(allowed, max_pages)}
    if allowed:
        indices["items"] = {"type": "integer", "enum": list(allowed)}
    return {
        "type": "object",
        "properties": {"name": {"const": CALL_NAME}, "indices": indices},
        "required": ["name", "indices"],
        "additionalProperties": False,
    }


def _limit(allowed: Sequence[int], max_pages: int | None) -> int:
    return len(allowed) if max_pages is None else min(max_pages, len(allowed))
