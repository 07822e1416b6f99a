"""The reasoning module of DocLens: samples of an answer, and an adjudicator that reads their analyses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seer.engines.base import Chat, ChatImage
from seer.systems.doclens.config import DocLensConfig
from seer.systems.doclens.localizer import PageEvidence
from seer.systems.doclens.navigator import pages_with_text
from seer.systems.evidence.answers import ANSWER_SCHEMA, TEXT, Candidate, read_candidate
from seer.systems.evidence.calls import Replies
from seer.systems.evidence.prompts import fill_prompt
from seer.systems.evidence.system import Question

VERDICT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"analysis": TEXT, "answer": TEXT, "answerable": {"type": "boolean"}, "best": {"type": "integer"}},
    "required": ["analysis", "answer", "answerable"],
}


@dataclass(frozen=True)
class Adjudication:
    """The adjudicator's decision."""

    analysis: str
    answer: str
    answerable: bool
    best: int | None
    """Number of the analysis that it follows, from 1; None if it names none."""


async def sample_answers(
    question: Question, evidence: Sequence[PageEvidence], config: DocLensConfig, seed: int
) -> list[Candidate]:
    """Return the usable samples of an answer, and record the step.

    Without the reasoning module there is one sample, at temperature 0.
    """
    n = config.answer_samples if config.reasoning else 1
    replies = await question.caller("sampler").ask(
        Chat.of(*_evidence_parts(evidence, config), fill_prompt("doclens-sampler.v1", question=question.task.question)),
        ANSWER_SCHEMA,
        lambda reply: read_candidate(reply, len(question.document.pages)),
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
        chat, VERDICT_SCHEMA, _read_adjudication, seed=seed, max_new_tokens=config.max_new_tokens
    )
    final = replies.value
    decided = Candidate(final.analysis, final.answer, final.answerable, _quotes_behind(final, candidates))
    _record(question, "adjudicate", replies, [decided], [])
    return decided


def _quotes_behind(final: Adjudication, candidates: Sequence[Candidate]) -> tuple[tuple[int, str], ...]:
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


def _read_adjudication(reply: dict[str, Any]) -> Adjudication:
    """Read an adjudication."""
    return Adjudication(reply["analysis"], reply["answer"].strip(), reply["answerable"], reply.get("best"))


def _record(
    question: Question, name: str, replies: Replies[Any], shown: Sequence[Candidate], pages: Sequence[int]
) -> None:
    """Record a step whose result is these candidates."""
    text = "\n\n".join(f"{candidate.answer or '(no answer)'}: {candidate.analysis}" for candidate in shown)
    question.record(name, replies, outputs={"text": text}, pages=pages)
