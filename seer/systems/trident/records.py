"""Semantic records: a page as text that a reranker can read, made once for each page and model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seer.engines.base import Chat
from seer.schema import Page
from seer.selection.lexical import words
from seer.systems.evidence.answers import TEXT
from seer.systems.evidence.calls import Replies, run_together
from seer.systems.evidence.images import page_image
from seer.systems.evidence.memory import DocumentMemory, key_of
from seer.systems.evidence.prompts import fill_prompt
from seer.systems.evidence.system import Question
from seer.systems.trident.config import FieldName, TridentConfig

_LIST = {"type": "array", "items": TEXT}
_AXES = ("topic", "entity", "structure")
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "caption": TEXT,
        "section": _LIST,
        "entities": _LIST,
        "concepts": {"type": "object", "properties": dict.fromkeys(_AXES, _LIST), "required": list(_AXES)},
    },
    "required": ["caption", "section", "entities", "concepts"],
}
_PROMPT = "trident-record.v1"
_MAX_TERMS = 40
"""Terms of one list that are kept."""
_MAX_TEXT = 6000
"""Characters of the page's text that the annotation call sees beside the image."""


@dataclass(frozen=True)
class PageRecord:
    """The semantic record of a page."""

    page: int
    snippet: str
    caption: str = ""
    section: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    concepts: Mapping[str, tuple[str, ...]] | None = None
    """Terms by axis."""

    def hits(self, question: str) -> dict[str, list[str]]:
        """Return the terms of each axis that share a word with the question; axes without one are left out (our reading of
        the paper's "multi-axis concept hits")."""
        asked = set(words(question))
        found = {
            axis: [term for term in terms if asked & set(words(term))] for axis, terms in (self.concepts or {}).items()
        }
        return {axis: terms for axis, terms in found.items() if terms}

    def describe(self, question: str, fields: Sequence[FieldName]) -> str:
        """Return the record as text, with the given fields only."""
        hits = self.hits(question) if "concepts" in fields else {}
        values = {
            "caption": self.caption,
            "section": " > ".join(self.section),
            "entities": ", ".join(self.entities),
            "concepts": "; ".join(f"{axis}: {', '.join(terms)}" for axis, terms in hits.items()),
            "snippet": self.snippet,
        }
        lines = [f"{name}: {values[name]}" for name in fields if values[name]]
        return "\n".join([f"Page {self.page}", *lines])


async def make_records(
    question: Question, pages: Sequence[Page], memory: DocumentMemory, config: TridentConfig, seed: int
) -> list[PageRecord]:
    """Return the records of pages in their order, and record the step. Pages that were annotated before cost nothing.

    Without an annotated field in `config.fields` no call is made.
    """
    snippets = [" ".join(page.text.split())[: config.snippet_characters] for page in pages]
    if set(config.fields) <= {"snippet"}:
        return [PageRecord(page.number, snippet) for page, snippet in zip(pages, snippets, strict=True)]
    made: list[Replies[dict[str, Any]]] = []

    async def annotate(page: Page) -> dict[str, Any]:
        async def call() -> dict[str, Any]:
            text = page.text[:_MAX_TEXT].strip() or "(The page has no text layer.)"
            chat = Chat.of(page_image(page, config.max_side_px), "\n", fill_prompt(_PROMPT, text=text))
            replies = await question.caller("annotator").ask(
                chat, SCHEMA, _read, seed=seed, max_new_tokens=config.max_new_tokens
            )
            made.append(replies)
            return replies.value

        model = question.model_name("annotator")
        value = await memory.get_or_make(key_of(_PROMPT, model, page.content_hash, page.text, config.max_side_px), call)
        return dict(value)

    values = await run_together(map(annotate, pages))
    question.record(
        "annotate",
        made,
        outputs={"text": f"{len(made)} of {len(pages)} pages annotated, the others were known", "raw": ""},
        pages=sorted(page.number for page in pages),
    )
    return [
        PageRecord(
            page.number,
            snippet,
            value["caption"],
            tuple(value["section"]),
            tuple(value["entities"]),
            {axis: tuple(terms) for axis, terms in value["concepts"].items()},
        )
        for page, snippet, value in zip(pages, snippets, values, strict=True)
    ]


def _read(reply: dict[str, Any]) -> dict[str, Any]:
    """Read an annotation. A list may come as one text, and an axis may be missing."""
    concepts = reply["concepts"] if isinstance(reply["concepts"], dict) else {}
    return {
        "caption": str(reply["caption"]).strip(),
        "section": _terms(reply["section"]),
        "entities": _terms(reply["entities"]),
        "concepts": {axis: _terms(concepts.get(axis)) for axis in _AXES},
    }


def _terms(value: Any) -> list[str]:
    """Read a list of terms; a text is split at commas. Anything that is not text is left out."""
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    terms = [str(item).strip() for item in items if isinstance(item, str | int | float)]
    return [term for term in dict.fromkeys(terms) if term][:_MAX_TERMS]
