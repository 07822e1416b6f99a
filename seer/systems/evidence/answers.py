"""The form of an answer that the evidence systems ask a model for: reasoning, the answer, and quotes that support it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seer.systems.evidence.calls import read_pages

TEXT = {"type": "string"}
ANSWER_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "analysis": TEXT,
        "answer": TEXT,
        "answerable": {"type": "boolean"},
        "quotes": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"page": {"type": "integer"}, "quote": TEXT},
                "required": ["page", "quote"],
            },
        },
    },
    "required": ["analysis", "answer", "answerable"],
}


@dataclass(frozen=True)
class Candidate:
    """One answer with its reasoning."""

    analysis: str
    answer: str
    answerable: bool
    quotes: tuple[tuple[int, str], ...] = ()
    """(page, words) that support the answer."""


def read_candidate(reply: Mapping[str, Any], num_pages: int) -> Candidate:
    """Read an answer of the form `ANSWER_SCHEMA`. A quote without a readable page is left out: it cannot be looked up."""
    quotes = []
    for item in reply.get("quotes") or ():
        if isinstance(item, dict) and isinstance(item.get("quote"), str):
            try:
                pages = read_pages(item.get("page"), num_pages)
            except ValueError:
                continue
            quotes += [(pages[0], item["quote"])] if pages else []
    return Candidate(reply["analysis"], reply["answer"].strip(), reply["answerable"], tuple(quotes))
