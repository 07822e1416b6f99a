"""The other two memories: the document's schema, built once a document, and the question's episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seer.engines.base import Chat
from seer.schema import Document
from seer.systems.docmemo.config import DocMemoConfig
from seer.systems.evidence.answers import TEXT
from seer.systems.evidence.calls import Replies, read_pages
from seer.systems.evidence.memory import DocumentMemory, key_of
from seer.systems.evidence.prompts import fill_prompt
from seer.systems.evidence.system import Question

_PROMPT = "docmemo-schema.v1"
_PART = {
    "type": "object",
    "properties": {"first": {"type": "integer"}, "last": {"type": "integer"}, "topic": TEXT},
    "required": ["first", "last", "topic"],
}
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"type": TEXT, "topics": TEXT, "index": {"type": "array", "items": _PART}},
    "required": ["type", "topics", "index"],
}
PLAN_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"query": TEXT, "pages": {"type": "array", "items": TEXT}},
    "required": ["query", "pages"],
}


async def build_schema(question: Question, memory: DocumentMemory, config: DocMemoConfig, seed: int) -> str:
    """Return the schema of the document as text, and record the step. A document that is known costs nothing."""
    document, made = question.document, list[Replies[str]]()

    async def call() -> str:
        beginnings = "\n\n".join(
            f"Page {page.number}: {' '.join(page.text[: 4 * config.schema_characters].split())[: config.schema_characters]}"
            for page in document.pages
        )
        chat = Chat.of(fill_prompt(_PROMPT, pages=len(document.pages), beginnings=beginnings))
        replies = await question.caller("schema").ask(
            chat,
            SCHEMA,
            lambda reply: _read_schema(reply, document),
            seed=seed,
            max_new_tokens=config.max_new_tokens,
        )
        made.append(replies)
        return replies.value

    pages = [page.content_hash for page in document.pages]
    model = question.model_name("schema")
    schema = str(await memory.get_or_make(key_of(_PROMPT, model, config.schema_characters, document.text, pages), call))
    question.record("schema", made, outputs={"text": schema, "raw": made[0].raw[0] if made else ""})
    return schema


async def plan(question: Question, schema: str, config: DocMemoConfig, seed: int) -> tuple[str, tuple[int, ...]]:
    """Return the first query and the pages that the schema makes likely, and record the step."""
    num_pages = len(question.document.pages)
    replies = await question.caller("planner").ask(
        Chat.of(fill_prompt("docmemo-plan.v1", schema=schema, question=question.text)),
        PLAN_SCHEMA,
        lambda reply: (reply["query"].strip(), read_pages(reply["pages"], num_pages)),
        seed=seed,
        max_new_tokens=config.max_new_tokens,
    )
    query, pages = replies.value
    question.record("plan", replies, outputs={"text": query}, pages=pages)
    return query, pages


def _read_schema(reply: dict[str, Any], document: Document) -> str:
    """Read a schema. Parts whose pages the document does not have are clipped or left out."""
    lines = []
    for part in reply["index"]:
        first, last = max(1, int(part["first"])), min(len(document.pages), int(part["last"]))
        if first <= last:
            lines.append(f"pages {first}-{last}: {str(part['topic']).strip()[:200]}")
    return "\n".join([f"{reply['type']}. {reply['topics']}"[:1000], *lines])


@dataclass
class Episodes:
    """What the rounds of one question found, what was still missing, and what was searched for."""

    findings: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)

    def add(self, findings: str, missing: str, query: str) -> None:
        """Record a round; empty texts are left out."""
        for kept, text in ((self.findings, findings), (self.missing, missing), (self.queries, query)):
            if text.strip():
                kept.append(text.strip())

    def describe(self) -> str:
        """Return the episodes as text; empty before the first round."""
        parts = [f"Found in round {number}: {text}" for number, text in enumerate(self.findings, 1)]
        parts += [f"Missing so far: {self.missing[-1]}"] if self.missing else []
        parts += [f"Searched for: {'; '.join(self.queries)}"] if self.queries else []
        return "\n".join(parts)
