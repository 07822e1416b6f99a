"""One sample through all its steps: pages → judge → reason → assemble. Pure but for the teachers it may ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from data_pipeline.records import Outcome, PageSpan, Rejection, Sample
from data_pipeline.settings import BuildConfig
from data_pipeline.steps.annotate import AnswerJudge, GoldJudge, Judge, Relevance, TeacherJudge, agreement, gold_pages
from data_pipeline.steps.assemble import assemble
from data_pipeline.steps.chance import chance
from data_pipeline.steps.paging import Paginate, layout_pages
from data_pipeline.steps.prepare import Item
from data_pipeline.steps.reason import Reasoner, Reasoning, TeacherReasoner, TemplateReasoner, template_reasoning
from data_pipeline.tally import BuildStopped
from seer.rendering import resolve_style
from seer.schema import PageStyle, Trajectory
from seer.teaching.ledger import Budget, BudgetReached, Ledger
from seer.teaching.teachers import Teacher, TeacherError, open_teacher

LEDGER_NAME = "ledger.jsonl"


@dataclass
class Phase:
    """Where a sample stands, so that a failing teacher is named rightly."""

    name: str


@dataclass(frozen=True)
class Process:
    """Everything a sample meets after it was loaded and guarded. Same sample and teacher replies, same outcome."""

    config: BuildConfig
    style: PageStyle
    paginate: Paginate
    judge: Judge
    reasoner: Reasoner

    async def __call__(self, sample: Sample) -> Outcome:
        """Raises BuildStopped (a teacher that can't be used), BudgetReached (where the budget is to stop the build)."""
        pages = self.paginate(sample.context)
        phase = Phase("judge")
        try:
            return await self._run(sample, pages, phase)
        except TeacherError as error:
            if error.fatal:
                raise BuildStopped(f"the {phase.name} teacher cannot be used: {error}") from None
            return self._outcome(sample, pages, sample.reject(f"{phase.name}_failed", str(error)))
        except BudgetReached:
            if self.config.budget.then == "stop":
                raise
            return self._outcome(sample, pages, sample.reject("budget"))

    async def _run(self, sample: Sample, pages: Sequence[PageSpan], phase: Phase) -> Outcome:
        if len(pages) > self.config.max_pages:
            rejection = sample.reject("too_many_pages", f"{len(pages)} pages, {self.config.max_pages} allowed")
            return self._outcome(sample, pages, rejection)
        relevance = await self._relevance(sample, pages)
        if isinstance(relevance, Rejection):
            return self._outcome(sample, pages, relevance)
        problem = self._page_problem(sample, relevance.pages)
        if problem is not None:
            return self._outcome(sample, pages, problem, relevance)
        phase.name = "reason"
        reasoning = await self.reasoner(sample, pages, relevance.pages)
        instead_of = None
        if isinstance(reasoning, Rejection):
            instead_of, rescued = reasoning, self._rescue(sample, pages, relevance, reasoning)
            if rescued is None:
                return self._outcome(sample, pages, instead_of, relevance)
            reasoning = rescued
        return self._assembled(sample, pages, relevance, reasoning, instead_of)

    async def _relevance(self, sample: Sample, pages: Sequence[PageSpan]) -> Relevance | Rejection:
        if not sample.answerable:
            return Relevance(())
        found = await self.judge(sample, pages)
        if isinstance(found, Rejection) or self.judge.name == "gold":
            return found  # comparing gold with gold would say nothing
        return replace(found, agreement=agreement(found.pages, gold_pages(sample, pages), pages))

    def _page_problem(self, sample: Sample, relevant: Sequence[int]) -> Rejection | None:
        """Why a sample with these necessary pages is not kept; None where it is."""
        limit = self.config.judge.max_relevant_pages
        if sample.answerable and not relevant:
            return sample.reject("no_relevant_pages")
        if limit and len(relevant) > limit:
            return sample.reject("too_many_relevant", f"{len(relevant)} pages, {limit} allowed")
        return None

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
        self,
        sample: Sample,
        pages: Sequence[PageSpan],
        relevance: Relevance,
        reasoning: Reasoning,
        instead_of: Rejection | None,
    ) -> Outcome:
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
        notes = instead_of.notes if instead_of else reasoning.notes
        return self._outcome(sample, pages, None, relevance, notes, told, instead_of=instead_of)

    def _outcome(
        self,
        sample: Sample,
        pages: Sequence[PageSpan],
        rejection: Rejection | None,
        relevance: Relevance | None = None,
        notes: Mapping[str, int] | None = None,
        trajectories: Mapping[str, Trajectory] | None = None,
        *,
        instead_of: Rejection | None = None,
    ) -> Outcome:
        return Outcome(
            source=sample.source,
            id=sample.id,
            rejection=rejection,
            trajectories=trajectories or {},
            instead_of=instead_of,
            split=self._split(sample),
            pages=len(pages),
            vision_tokens=sum(page.vision_tokens for page in pages),
            relevant_pages=len(relevance.pages) if relevance else 0,
            agreement=relevance.agreement if relevance else None,
            notes={
                **(relevance.notes if relevance else {}),
                **(rejection.notes if rejection else {}),
                **(notes or {}),
            },
        )

    def _split(self, sample: Sample) -> str:
        share = self.config.validation_share
        # a document that is told by its text is hashed for its key: only where it matters
        return "validation" if share and chance(self.config.seed, "split", sample.document_key) < share else "train"


class Tools:
    """What processing needs from outside, opened for one build and closed after it: ledger and teachers."""

    def __init__(self, config: BuildConfig, *, shared_ledger: bool = False) -> None:
        self.config = config
        budget = Budget(config.budget.max_calls, config.budget.max_tokens, config.budget.max_usd)
        wanted = [("judge", config.judge.teacher if config.judge.kind == "teacher" else None)]
        wanted.append(("reason", config.reason.teacher if config.reason.kind == "teacher" else None))
        self.ledger: Ledger | None = None
        self.teachers: dict[str, Teacher] = {}
        if any(spec for _, spec in wanted):
            self.ledger = Ledger(Path(config.out) / LEDGER_NAME, shared=shared_ledger)
            self.teachers = {
                role: open_teacher(spec, self.ledger, budget, role=role) for role, spec in wanted if spec is not None
            }

    async def close(self) -> None:
        for teacher in self.teachers.values():
            await teacher.close()
        if self.ledger is not None:
            self.ledger.close()

    def process(self, paginate: Paginate | None = None) -> Process:
        """The process of the configuration. Raises InputError for an unknown style."""
        config = self.config
        style = resolve_style(config.style)
        return Process(config, style, paginate or layout_pages(style), self._judge(), self._reasoner())

    def _judge(self) -> Judge:
        if "judge" in self.teachers:
            return TeacherJudge(self.teachers["judge"], self.config.judge.reasks)
        return AnswerJudge() if self.config.judge.kind == "answer" else GoldJudge()

    def _reasoner(self) -> Reasoner:
        if "reason" in self.teachers:
            return TeacherReasoner(self.teachers["reason"], self.config.reason)
        return TemplateReasoner()


async def outcome_of(item: Item, process: Process) -> Outcome:
    """What becomes of an item: a sample is processed, a rejection is only counted."""
    return await process(item) if isinstance(item, Sample) else Outcome(item.source, item.id, item)
