"""DocMemo as a system.

    system = DocMemo(engine, scorer=BM25(), seed=7)
    answer = system.ask(document, "How did the margin change after the merger?")

Steps of a trace: schema, plan, then for each round choose and read, and answer.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seer.engines.base import Chat, ChatImage, Engine
from seer.schema import Page, PageStyle, Region
from seer.selection.lexical import BM25
from seer.selection.ranking import Scorer
from seer.systems.docmemo.beliefs import PageBeliefs, lambda_of_round, mix_scores
from seer.systems.docmemo.config import DocMemoConfig
from seer.systems.docmemo.memory import Episodes, build_schema, plan
from seer.systems.evidence.answers import ANSWER_SCHEMA, TEXT, Candidate, read_candidate
from seer.systems.evidence.budget import Budget
from seer.systems.evidence.calls import read_pages
from seer.systems.evidence.elements import LayoutDetector, RapidLayout
from seer.systems.evidence.images import crop_image, page_image, scale_image
from seer.systems.evidence.memory import DocumentMemory
from seer.systems.evidence.prompts import fill_prompt
from seer.systems.evidence.system import EvidenceSystem, Question, Verdict

_PAGES = {"type": "array", "items": {"type": "integer"}}
READ_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "findings": TEXT,
        "useful": _PAGES,
        "irrelevant": _PAGES,
        "sufficient": {"type": "boolean"},
        "missing": TEXT,
        "query": TEXT,
        **ANSWER_SCHEMA["properties"],
    },
    "required": ["findings", "useful", "irrelevant", "sufficient", *ANSWER_SCHEMA["required"]],
}
_LAST_ROUND = "\n- This is the last round: answer from what has been found."


@dataclass(frozen=True)
class Round:
    """What one round of reading reported."""

    findings: str
    useful: tuple[int, ...]
    irrelevant: tuple[int, ...]
    sufficient: bool
    missing: str
    query: str
    candidate: Candidate


class DocMemo(EvidenceSystem):
    """Reads pages in rounds, chosen by similarity and by beliefs that every round updates."""

    name = "docmemo"

    def __init__(
        self,
        engine: Engine,
        *,
        config: DocMemoConfig | None = None,
        scorer: Scorer | None = None,
        detector: LayoutDetector | None = None,
        memory: DocumentMemory | None = None,
        roles: Mapping[str, Engine] | None = None,
        style: str | PageStyle = "seer",
        seed: int = 0,
    ) -> None:
        """Create the system.

        Args:
            engine: Answers every call; `roles` may name others for "schema", "planner" and "reader".
            config: The paper's values by default, ours where it publishes none.
            scorer: Gives the similarity of pages to a query; BM25 by default.
            detector: Finds tables; by default the one of the extra `ocr`.
            memory: Keeps the schemas of documents; by default in this process.
            style, seed: See `EvidenceSystem`.

        Raises ModelError if crops are on and their detector is not installed.
        """
        super().__init__(engine, roles=roles, style=style, seed=seed)
        self.config, self.scorer = config or DocMemoConfig(), scorer or BM25()
        self.memory = memory or DocumentMemory()
        self.detector = (detector or RapidLayout()) if self.config.max_crops else None

    @property
    def budget(self) -> Budget:
        return self.config.budget

    async def answer(self, question: Question) -> Verdict:
        config, num_pages = self.config, len(question.document.pages)
        beliefs = PageBeliefs(num_pages, config.alpha, config.beta, config.radius, config.decay)
        generator, episodes = self._generator(question), Episodes()
        schema, query = "", question.text
        if config.schema_memory:
            schema = await build_schema(question, self.memory, config, self.seed)
            planned, likely = await plan(question, schema, config, self.seed)
            query = f"{question.text} {planned}".strip()
            beliefs.add_prior(likely, config.schema_evidence)
        useful: set[int] = set()
        seen: set[int] = set()
        crops_left = config.max_crops
        for number in range(1, config.rounds + 1):
            chosen = await self._choose(question, number, query, beliefs, generator, seen)
            seen |= set(chosen)
            is_last = number == config.rounds or len(seen) == num_pages
            # Pages that were useful before stay in view, so that evidence of several rounds can be combined.
            pages = [question.document.page(page) for page in sorted({*chosen, *useful})]
            crops = await asyncio.to_thread(self._crop, pages, crops_left)
            crops_left -= len(crops)
            report = await self._read(question, number, pages, crops, schema, episodes, is_last)
            useful = (useful | set(report.useful)) - set(report.irrelevant)
            if report.sufficient or is_last:
                break
            if config.bayes:
                beliefs.update(report.useful, report.irrelevant)
            if config.episodic:
                episodes.add(report.findings, report.missing, report.query)
                query = report.query.strip() or query
        final = report.candidate
        return Verdict(final.answer, tuple(sorted(useful)), final.quotes, final.answerable)

    def _generator(self, question: Question) -> np.random.Generator:
        """Return the random generator of a question: the same seed, document and question give the same samples."""
        text = f"{self.seed}\0{question.document.name}\0{len(question.document.text)}\0{question.text}"
        return np.random.default_rng(list(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()))

    async def _choose(
        self,
        question: Question,
        number: int,
        query: str,
        beliefs: PageBeliefs,
        generator: np.random.Generator,
        seen: set[int],
    ) -> tuple[int, ...]:
        """Return the pages of a round by score (1 − λ) · c + λ · θ, best first, and record the step.

        Pages that an earlier round has read are not chosen again (our reading: useful ones stay in view anyway).
        """
        config = self.config
        similarities = await asyncio.to_thread(self.scorer.scores, question.document, query)
        # The samples are drawn in every configuration, so that an ablation does not shift those of later rounds.
        samples = beliefs.sample(generator)
        weight = lambda_of_round(number, config.rounds, config.max_lambda) if config.belief else 0.0
        scores = mix_scores(similarities, samples if config.sampling == "thompson" else beliefs.mean(), weight)
        order = sorted(range(1, len(scores) + 1), key=lambda page: (-scores[page - 1], page))
        chosen = tuple([page for page in order if page not in seen][: config.pages_per_round])
        question.record(
            "choose",
            inputs={"round": number, "query": query, "lambda": weight},
            outputs={"scores": {str(page): round(float(scores[page - 1]), 6) for page in chosen}},
            pages=sorted(chosen),
        )
        return chosen

    def _crop(self, pages: Sequence[Page], limit: int) -> list[tuple[Region, ChatImage]]:
        """Return enlarged tables of the pages, at most `limit`."""
        crops: list[tuple[Region, ChatImage]] = []
        if self.detector is None:
            return crops
        for page in pages:
            for element in self.detector.detect(page):
                if element.kind == "table" and len(crops) < limit:
                    image = crop_image(page, element.box)
                    longest = max(image.width_px, image.height_px)
                    crops.append((element.region(page), scale_image(image, self.config.crop_side_px / longest)))
        return crops

    async def _read(
        self,
        question: Question,
        number: int,
        pages: Sequence[Page],
        crops: Sequence[tuple[Region, ChatImage]],
        schema: str,
        episodes: Episodes,
        is_last: bool,
    ) -> Round:
        """Read the pages of a round and record the step."""
        config, shown = self.config, {page.number for page in pages}
        parts: list[str | ChatImage] = []
        for page in pages:
            parts += [f"Page {page.number}\n", page_image(page, config.max_side_px)]
            parts.append(f"\nText of page {page.number}:\n{page.text.rstrip()}\n\n" if page.text.strip() else "\n\n")
            for region, image in crops:
                if region.page == page.number:
                    parts += [f"Page {page.number}, enlarged {region.kind}:\n", image, "\n\n"]
        memory = episodes.describe()
        prompt = fill_prompt(
            "docmemo-read.v1",
            round=number,
            rounds=config.rounds,
            schema=f"\nStructure of the document: {schema}\n" if schema else "",
            memory=f"\nEarlier rounds:\n{memory}\n" if memory else "",
            question=question.task.question,
            last=_LAST_ROUND if is_last else "",
        )
        replies = await question.caller("reader").ask(
            Chat.of(*parts, prompt),
            READ_SCHEMA,
            lambda reply: _read_round(reply, shown, len(question.document.pages)),
            seed=self.seed,
            max_new_tokens=config.max_new_tokens,
        )
        report = replies.value
        question.record(
            "read",
            replies,
            inputs={"round": number},
            outputs={
                "text": report.findings,
                "useful": list(report.useful),
                "irrelevant": list(report.irrelevant),
                "missing": report.missing,
                "query": report.query,
            },
            pages=sorted(shown),
            regions=[region for region, _ in crops],
        )
        return report


def _read_round(reply: dict[str, Any], shown: set[int], num_pages: int) -> Round:
    """Read a round. Pages that were not shown are left out, and a page that is in both lists counts as useful."""
    useful = tuple(page for page in read_pages(reply["useful"], num_pages) if page in shown)
    irrelevant = [page for page in read_pages(reply["irrelevant"], num_pages) if page in shown]
    return Round(
        findings=reply["findings"],
        useful=useful,
        irrelevant=tuple(page for page in irrelevant if page not in useful),
        sufficient=reply["sufficient"],
        missing=str(reply.get("missing") or ""),
        query=str(reply.get("query") or ""),
        candidate=read_candidate(reply, num_pages),
    )
