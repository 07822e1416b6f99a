"""Trident as a system.

    system = Trident(engine, pool=Hybrid(BM25(), Dense()))
    answer = system.ask(document, "Which regions grew in 2021?")

Steps of a trace: pool, annotate, rerank, lens (one for each lens), synthesis, answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from seer.engines.base import Chat, ChatImage, Engine
from seer.schema import Page, PageStyle
from seer.selection.lexical import BM25
from seer.selection.ranking import Ranker
from seer.systems.evidence.answers import ANSWER_SCHEMA, TEXT, Candidate, read_candidate
from seer.systems.evidence.budget import Budget
from seer.systems.evidence.calls import Replies, read_pages, run_together
from seer.systems.evidence.images import page_image
from seer.systems.evidence.memory import DocumentMemory
from seer.systems.evidence.prompts import fill_prompt
from seer.systems.evidence.system import EvidenceSystem, Question, Verdict
from seer.systems.trident.config import Lens, TridentConfig
from seer.systems.trident.records import PageRecord, make_records

RERANK_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"pages": {"type": "array", "items": {"type": "integer"}}},
    "required": ["pages"],
}
LENS_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"findings": TEXT, "answer": TEXT},
    "required": ["findings"],
}
_LENSES: dict[Lens, str] = {
    "topical": "topical. Which subjects, claims and explanations on the pages bear on the question?",
    "entity": "entities. Which people, organisations, places, dates and quantities does the question need, and what do "
    "the pages state about each?",
    "structural": "structure. What do tables, charts, figures, headings and their order on the pages show about the "
    "question? Read values from axes, rows and columns.",
}


class Trident(EvidenceSystem):
    """Trident-R chooses pages from any candidate pool; Trident-S answers from them."""

    name = "trident"

    def __init__(
        self,
        engine: Engine,
        *,
        config: TridentConfig | None = None,
        pool: Ranker | None = None,
        memory: DocumentMemory | None = None,
        roles: Mapping[str, Engine] | None = None,
        style: str | PageStyle = "seer",
        seed: int = 0,
    ) -> None:
        """Create the system.

        Args:
            engine: Answers every call; `roles` may name others for "annotator", "reranker", "lens" and "synthesis".
            config: The paper's values by default.
            pool: Ranks the pages for the candidate pool; BM25 by default.
            memory: Keeps the records of pages; by default in this process.
            style, seed: See `EvidenceSystem`.
        """
        super().__init__(engine, roles=roles, style=style, seed=seed)
        self.config, self.pool = config or TridentConfig(), pool or BM25()
        self.memory = memory or DocumentMemory()

    @property
    def budget(self) -> Budget:
        return self.config.budget

    async def answer(self, question: Question) -> Verdict:
        config, document = self.config, question.document
        ranked = await asyncio.to_thread(self.pool.rank, document, question.text)
        numbers = ranked[: config.pool if config.rerank else config.max_pages]
        question.record("pool", inputs={"ranker": self.pool.name}, pages=numbers)
        pages = [document.page(number) for number in numbers]
        if config.rerank:
            records = await make_records(question, pages, self.memory, config, self.seed)
            pages = [document.page(number) for number in await self._rerank(question, records)]
        final = await self._read(question, sorted(pages, key=lambda page: page.number))
        return Verdict(final.answer, tuple(page.number for page in pages), final.quotes, final.answerable)

    async def _rerank(self, question: Question, records: Sequence[PageRecord]) -> tuple[int, ...]:
        """Return the pages that one call chooses from the records, best first, at most `max_pages`; record the step."""
        config, shown = self.config, {record.page for record in records}
        described = "\n\n".join(record.describe(question.text, config.fields) for record in records)
        prompt = fill_prompt("trident-rerank.v1", limit=config.max_pages, question=question.text, records=described)

        def read(reply: dict[str, Any]) -> tuple[int, ...]:
            # Each item may name one page or several; the model's order is kept.
            order = [page for item in reply["pages"] for page in read_pages(item, len(question.document.pages))]
            return tuple(page for page in dict.fromkeys(order) if page in shown)[: config.max_pages]

        replies = await question.caller("reranker").ask(
            Chat.of(prompt), RERANK_SCHEMA, read, seed=self.seed, max_new_tokens=config.max_new_tokens
        )
        question.record("rerank", replies, outputs={"order": list(replies.value)}, pages=sorted(replies.value))
        return replies.value

    async def _read(self, question: Question, pages: Sequence[Page]) -> Candidate:
        """Answer from the pages: the lenses at the same time, then the synthesis."""
        config = self.config
        shown = _shown(pages, config)

        async def look(lens: Lens) -> Replies[str]:
            prompt = fill_prompt("trident-lens.v1", lens=_LENSES[lens], question=question.task.question)
            return await question.caller("lens").ask(
                Chat.of(*shown, prompt),
                LENS_SCHEMA,
                _read_findings,
                seed=self.seed,
                max_new_tokens=config.max_new_tokens,
            )

        findings = await run_together(map(look, config.lenses))
        for lens, replies in zip(config.lenses, findings, strict=True):
            inputs = {"lens": lens}
            question.record("lens", replies, inputs=inputs, outputs={"text": f"{lens}: {replies.value}"})
        told = "".join(
            f"\nFindings of the {lens} lens: {replies.value}\n"
            for lens, replies in zip(config.lenses, findings, strict=True)
        )
        prompt = fill_prompt(
            "trident-synthesis.v1",
            findings_intro=" and from the findings below" if told else "",
            question=question.task.question,
            findings=told,
        )
        final = await question.caller("synthesis").ask(
            Chat.of(*shown, prompt),
            ANSWER_SCHEMA,
            lambda reply: read_candidate(reply, len(question.document.pages)),
            seed=self.seed,
            max_new_tokens=config.max_new_tokens,
        )
        question.record(
            "synthesis", final, outputs={"text": final.value.analysis}, pages=[page.number for page in pages]
        )
        return final.value


def _shown(pages: Sequence[Page], config: TridentConfig) -> list[str | ChatImage]:
    """Return the pages as labels, images and texts."""
    parts: list[str | ChatImage] = []
    for page in pages:
        parts += [f"Page {page.number}\n", page_image(page, config.max_side_px)]
        parts.append(f"\nText of page {page.number}:\n{page.text.rstrip()}\n\n" if page.text.strip() else "\n\n")
    return parts or ["(No page of the document was found to be relevant.)\n\n"]


def _read_findings(reply: dict[str, Any]) -> str:
    """Read the findings of a lens, with the answer that it gives."""
    answer = str(reply.get("answer") or "").strip()
    return str(reply["findings"]).strip() + (f" Answer by this lens: {answer}" if answer else "")
