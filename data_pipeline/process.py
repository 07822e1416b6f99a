"""One sample through all its steps: pages → judge → reason → assemble. Pure but for the teachers it may ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from data_pipeline.annotate import AnswerJudge, GoldJudge, Judge, Relevance, agreement, gold_pages
from data_pipeline.assemble import assemble
from data_pipeline.chance import chance
from data_pipeline.paging import Paginate, layout_pages
from data_pipeline.reason import Reasoner, Reasoning, TemplateReasoner, template_reasoning
from data_pipeline.records import Outcome, PageSpan, Rejection, Sample
from data_pipeline.settings import BuildConfig
from seer.errors import InputError
from seer.rendering import resolve_style
from seer.schema import PageStyle


@dataclass(frozen=True)
class Process:
    """Everything a sample meets after it was loaded and guarded. Same sample and teacher replies, same outcome."""

    config: BuildConfig
    style: PageStyle
    paginate: Paginate
    judge: Judge
    reasoner: Reasoner

    async def __call__(self, sample: Sample) -> Outcome:
        pages = self.paginate(sample.context)
        if len(pages) > self.config.max_pages:
            rejection = sample.reject("too_many_pages", f"{len(pages)} pages, {self.config.max_pages} allowed")
            return self._outcome(sample, pages, rejection)
        relevance = await self._relevance(sample, pages)
        if isinstance(relevance, Rejection):
            return self._outcome(sample, pages, relevance)
        reasoning = await self.reasoner(sample, pages, relevance.pages)
        reserve = False
        if isinstance(reasoning, Rejection):
            rescued = self._rescue(sample, pages, relevance, reasoning)
            if rescued is None:
                return self._outcome(sample, pages, reasoning, relevance)
            reasoning, reserve = rescued, True
        return self._assembled(sample, pages, relevance, reasoning, reserve)

    async def _relevance(self, sample: Sample, pages: Sequence[PageSpan]) -> Relevance | Rejection:
        if not sample.answerable:
            return Relevance(())
        found = await self.judge(sample, pages)
        if isinstance(found, Rejection):
            return found
        limit = self.config.judge.max_relevant_pages
        if not found.pages:
            return sample.reject("no_relevant_pages")
        if limit and len(found.pages) > limit:
            return sample.reject("too_many_relevant", f"{len(found.pages)} pages, {limit} allowed")
        return replace(found, agreement=agreement(found.pages, gold_pages(sample, pages), pages))

    def _rescue(
        self, sample: Sample, pages: Sequence[PageSpan], relevance: Relevance, rejection: Rejection
    ) -> Reasoning | None:
        """Distributed evidence that the teacher failed on, told by the template, where a share of it is wanted."""
        spec = self.config.assemble
        if spec.distributed_share == 0 or len(relevance.pages) < spec.distributed_pages or not sample.evidence:
            return None
        if rejection.reason not in (
            "answer_differs",
            "reason_truncated",
            "no_reasoning",
            "reason_empty",
            "reason_refused",
        ):
            return None
        told = template_reasoning(sample, pages, relevance.pages)
        return None if isinstance(told, Rejection) else told

    def _assembled(
        self, sample: Sample, pages: Sequence[PageSpan], relevance: Relevance, reasoning: Reasoning, reserve: bool
    ) -> Outcome:
        try:
            told = assemble(
                sample,
                pages,
                relevance.pages,
                reasoning,
                style=self.style,
                spec=self.config.assemble,
                seed=self.config.seed,
                judged_by="none" if not sample.answerable else self.judge.name,
            )
        except InputError as error:
            return self._outcome(sample, pages, sample.reject("not_formed", str(error)), relevance)
        outcome = self._outcome(sample, pages, None, relevance, reasoning.notes)
        return replace(outcome, trajectories=told, reserve=reserve)

    def _outcome(
        self,
        sample: Sample,
        pages: Sequence[PageSpan],
        rejection: Rejection | None,
        relevance: Relevance | None = None,
        notes: dict[str, int] | None = None,
    ) -> Outcome:
        side = chance(self.config.seed, "split", sample.document_key)
        return Outcome(
            source=sample.source,
            id=sample.id,
            rejection=rejection,
            split="validation" if side < self.config.validation_share else "train",
            pages=len(pages),
            relevant_pages=len(relevance.pages) if relevance else 0,
            agreement=relevance.agreement if relevance else None,
            notes={**(relevance.notes if relevance else {}), **(notes or {})},
        )


def make_process(config: BuildConfig, paginate: Paginate | None = None) -> Process:
    """The process of a configuration. Raises InputError for an unknown style."""
    style = resolve_style(config.style)
    judge: Judge = AnswerJudge() if config.judge.kind == "answer" else GoldJudge()
    return Process(config, style, paginate or layout_pages(style), judge, TemplateReasoner())
