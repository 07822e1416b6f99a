"""Grammars and JSON schemas of valid select calls, for constrained decoding."""

from __future__ import annotations

import json
from collections.abc import Sequence

from seer.protocol.call import CALL_NAME, render_call


def call_grammar(allowed: Sequence[int], max_pages: int | None = None) -> str:
    """Return an EBNF grammar (xgrammar's dialect) that accepts exactly the valid call bodies.

    allowed: the pages that can be selected, ascending.
    max_pages: the most pages in a call; None sets no limit.

    A valid list is ascending and unique and may be empty. Rule `f_i_k` derives a list that starts at the i-th allowed
    page or later and has at most k entries, so the grammar has len(allowed) · max_pages rules of constant size.
    """
    opening, closing = render_call(()).split("[]")
    head = f"root ::= {json.dumps(opening + '[')} list {json.dumps(']' + closing)}\n"
    limit = _limit(allowed, max_pages)
    if limit < 1:
        return head + 'list ::= ""\n'
    rules = [head, f'list ::= "" | f_0_{limit}\n']
    for k in range(1, limit + 1):
        for i, page in enumerate(allowed):
            # f_i_k: this page, optionally followed by a list of k - 1 later pages; or a list that skips this page.
            more = i + 1 < len(allowed)
            tail = f' ("" | ", " f_{i + 1}_{k - 1})' if more and k > 1 else ""
            later = f" | f_{i + 1}_{k}" if more else ""
            rules.append(f'f_{i}_{k} ::= "{page}"{tail}{later}\n')
    return "".join(rules)


def call_structural_tag(
    open_id: int, close_id: int, allowed: Sequence[int], max_pages: int | None = None
) -> dict[str, object]:
    """Return a structural tag (xgrammar, vLLM) of a whole call: the token <tool_call>, a valid body, </tool_call>.

    open_id, close_id: ids of the two tags. With ids instead of strings the model cannot spell a tag in several tokens.
    allowed, max_pages: as in `call_grammar`.

    After the closing tag only a stop token can follow.
    """
    elements = [
        {"type": "token", "token": open_id},
        {"type": "grammar", "grammar": call_grammar(allowed, max_pages)},
        {"type": "token", "token": close_id},
    ]
    return {"type": "structural_tag", "format": {"type": "sequence", "elements": elements}}


def call_schema(allowed: Sequence[int], max_pages: int | None = None) -> dict[str, object]:
    """Return a JSON schema of call bodies; arguments as in `call_grammar`.

    The schema enforces range and length. It cannot express order and uniqueness, which `parse_call` repairs.
    """
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
    """The most pages that a call can name."""
    return len(allowed) if max_pages is None else min(max_pages, len(allowed))
