"""The reasoning module of DocLens: samples of an answer, and an adjudicator that reads their analyses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seer.engines.base import Chat, ChatImage
from seer.systems.doclens.config import DocLensConfig
from seer.systems.doclens.localizer import PageEvidence
from seer.systems.doclens.navigator import pages_with_text
from seer.systems.evidence.calls import Replies, read_pages
from seer.systems.evidence.prompts import fill_prompt
from seer.systems.evidence.system import Question

_TEXT = {"type": "string"}
SAMPLE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "analysis": _TEXT,
        "answer": _TEXT,
        "answerable": {"type": "boolean"},
        "quotes": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"page": {"type": "integer"}, "quote": _TEXT},
                "required": ["page", "quote"],
            },
        },
    },
    "required": ["analysis", "answer", "answerable"],
}
VERDICT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"analysis": _TEXT, "answer": _TEXT, "answerable": {"type": "boolean"}, "best": {"type": "integer"}},
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
    best: int | None = None
    """Of an adjudication: the number of the analysis that it follows, from 1."""


async def sample_answers(
    question: Question, evidence: Sequence[PageEvidence], config: DocLensConfig, seed: int
) -> list[Candidate]:
    """Return the usable samples of an answer, and record the step.

    Without the reasoning module there is one sample, at temperature 0.
    """
    n = config.answer_samples if config.reasoning else 1
    replies = await question.caller("sampler").ask(
        Chat.of(*_evidence_parts(evidence, config), fill_prompt("doclens-sampler.v1", question=question.task.question)),
        SAMPLE_SCHEMA,
        lambda reply: _read_candidate(reply, len(question.document.pages)),
        n=n,
        temperature=config.temperature if n > 1 else 0.0,
        seed=seed,
        max_new_tokens=config.max_new_tokens,
    )
    _record(question, "sample", replies, list(replies.values), [item.page.number for item in evidence])
    return list(replies.values)


async def adjudicate(
    question: Question, candidates: Sequence[Candidate], config: DocLensConfig, seed: int
) -> Candidate:
    """Return the final answer, with the quotes of the analysis that it follows, and record the step."""
    analyses = "\n\n".join(
        f"Analysis {number}: {candidate.analysis}\nAnswer {number}: {candidate.answer}"
        f"{'' if candidate.answerable else ' (not answerable)'}"
        for number, candidate in enumerate(candidates, 1)
    )
    chat = Chat.of(fill_prompt("doclens-adjudicator.v1", question=question.task.question, analyses=analyses))
    replies = await question.caller("adjudicator").ask(
        chat, VERDICT_SCHEMA, _read_verdict, seed=seed, max_new_tokens=config.max_new_tokens
    )
    final = replies.value
    _record(question, "adjudicate", replies, [final], [])
    return Candidate(final.analysis, final.answer, final.answerable, _quotes_behind(final, candidates), final.best)


def _quotes_behind(final: Candidate, candidates: Sequence[Candidate]) -> tuple[tuple[int, str], ...]:
    """Return the quotes of the analysis that the adjudicator follows, else of those with the same answer."""
    if final.best is not None and 1 <= final.best <= len(candidates):
        return candidates[final.best - 1].quotes
    same = [candidate for candidate in candidates if candidate.answer.strip() == final.answer.strip()]
    return tuple(dict.fromkeys(quote for candidate in same for quote in candidate.quotes))


def _evidence_parts(evidence: Sequence[PageEvidence], config: DocLensConfig) -> list[str | ChatImage]:
    """Return the evidence set as messages: each page with its text, followed by its crops."""
    parts: list[str | ChatImage] = []
    for item in evidence:
        parts += pages_with_text([item.page], config, with_text=config.text)
        for region, image in item.crops:
            parts += [f"Page {item.page.number}, enlarged {region.kind}:\n", image, "\n\n"]
    return parts or ["(No page of the document was found to be relevant.)\n\n"]


def _read_candidate(reply: dict[str, Any], num_pages: int) -> Candidate:
    """Read a sample. A quote without a readable page is dropped, since it cannot be looked up."""
    quotes = []
    for item in reply.get("quotes") or ():
        if isinstance(item, dict) and isinstance(item.get("quote"), str):
            try:
                pages = read_pages(item.get("page"), num_pages)
            except ValueError:
                continue
            quotes += [(pages[0], item["quote"])] if pages else []
    return Candidate(reply["analysis"], reply["answer"].strip(), reply["answerable"], tuple(quotes))


def _read_verdict(reply: dict[str, Any]) -> Candidate:
    """Read an adjudication."""
    return Candidate(reply["analysis"], reply["answer"].strip(), reply["answerable"], best=reply.get("best"))


def _record(
    question: Question, name: str, replies: Replies[Candidate], shown: Sequence[Candidate], pages: Sequence[int]
) -> None:
    """Record a step whose result is these candidates."""
    text = "\n\n".join(f"{candidate.answer or '(no answer)'}: {candidate.analysis}" for candidate in shown)
    question.record(name, replies, outputs={"text": text}, pages=pages)
