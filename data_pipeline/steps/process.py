"""Run one sample through the steps: pages → judge → reason → assemble. Teachers are the only external input."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from data_pipeline.records import Outcome, PageSpan, Rejected, Rejection, Sample
from data_pipeline.settings import BuildConfig
from data_pipeline.steps.annotate import (
    AnswerJudge,
    GoldJudge,
    Judge,
    Relevance,
    TeacherJudge,
    agreement,
    evidence_pages,
)
from data_pipeline.steps.assemble import assemble, selection_rounds
from data_pipeline.steps.chance import chance
from data_pipeline.steps.lengths import LengthLimit
from data_pipeline.steps.paging import Paginate, layout_pages, newline_of
from data_pipeline.steps.prepare import Item
from data_pipeline.steps.reason import Reasoner, Reasoning, TeacherReasoner, TemplateReasoner, template_reasoning
from data_pipeline.tally import BuildStopped
from seer.errors import EngineError, InputError
from seer.rendering import resolve_style
from seer.schema import PageStyle
from seer.teaching.ledger import Budget, BudgetReached, Ledger
from seer.teaching.teachers import Teacher, ends_run, open_teacher

LEDGER_NAME = "ledger.jsonl"
_REPLACEABLE = frozenset({"answer_differs", "reason_truncated", "no_reasoning", "reason_empty", "reason_refused"})
"""Rejections caused by the teacher's reply rather than by the record or the connection."""


@dataclass(frozen=True)
class Process:
    """All steps after loading and the guard. Equal samples and teacher replies give equal outcomes."""

    config: BuildConfig
    style: PageStyle
    paginate: Paginate
    judge: Judge
    reasoner: Reasoner
    length_limit: LengthLimit

    async def __call__(self, sample: Sample) -> Outcome:
        """Process one sample.

        Raises BuildStopped if a teacher is unusable, BudgetReached if the budget is spent and `budget.then` is `stop`.
        """
        pages = self.paginate(sample.context, newline_of(sample))
        try:
            return await self._run(sample, pages)
        except Rejected as rejected:
            # The judge's findings are left out here: without the failed call the record counts as not judged.
            return self._rejected(sample, pages, sample.reject(rejected.reason, rejected.detail))

    async def _run(self, sample: Sample, pages: Sequence[PageSpan]) -> Outcome:
        if len(pages) > self.config.max_pages:
            raise Rejected("too_many_pages", f"{len(pages)} pages, {self.config.max_pages} allowed")
        self.length_limit.check_pages(sample, pages)
        if not sample.answerable and not self.config.judge.keep_unanswerable:
            raise Rejected("unanswerable")
        with self._teacher_errors("judge"):
            relevance = await self._relevance(sample, pages)
        if isinstance(relevance, Rejection):
            return self._rejected(sample, pages, relevance)
        problem = self._page_problem(sample, relevance.pages)
        if problem is not None:
            return self._rejected(sample, pages, problem, relevance)
        self.length_limit.check_retrieved(sample, pages, relevance.pages)
        with self._teacher_errors("reason"):
            share, seed = self.config.assemble.multi_round_share, self.config.seed
            rounds = selection_rounds(sample, pages, relevance.pages, share=share, seed=seed)
            reasoning = await self.reasoner(sample, pages, relevance.pages, rounds)
        if isinstance(reasoning, Reasoning):
            return self._assembled(sample, pages, relevance, reasoning)
        replacement = self._template_replacement(sample, pages, relevance, reasoning)
        if replacement is None:
            return self._rejected(sample, pages, reasoning, relevance)
        # The collector decides whether the replacement is kept, so the outcome carries the teacher's rejection along.
        outcome = self._assembled(sample, pages, relevance, replace(replacement, notes=dict(reasoning.notes)))
        return replace(outcome, instead_of=reasoning)

    @contextlib.contextmanager
    def _teacher_errors(self, phase: Literal["judge", "reason"]) -> Iterator[None]:
        """Convert errors of the teacher of this phase: reject the sample if others can continue, else stop the build."""
        try:
            yield
        except (EngineError, InputError) as error:
            if ends_run(error):
                raise BuildStopped(f"the {phase} teacher cannot be used: {error}") from None
            raise Rejected(f"{phase}_failed", str(error)) from None
        except BudgetReached:
            if self.config.budget.then == "stop":
                raise
            raise Rejected("judge_budget" if phase == "judge" else "budget") from None

    async def _relevance(self, sample: Sample, pages: Sequence[PageSpan]) -> Relevance | Rejection:
        """Return the necessary pages and, unless the evidence itself is the judge, their agreement with it."""
        if not sample.answerable:
            return Relevance(())
        found = await self.judge(sample, pages)
        # Comparing the evidence with itself would report perfect agreement.
        if isinstance(found, Rejection) or self.judge.name == "gold":
            return found
        return replace(found, agreement=agreement(found.pages, evidence_pages(sample, pages), pages))

    def _page_problem(self, sample: Sample, relevant: Sequence[int]) -> Rejection | None:
        """Return a rejection if the number of necessary pages is 0 or above the limit."""
        limit = self.config.judge.max_relevant_pages
        if sample.answerable and not relevant:
            return sample.reject("no_relevant_pages")
        if limit and len(relevant) > limit:
            return sample.reject("too_many_relevant", f"{len(relevant)} pages, {limit} allowed")
        return None

    def _template_replacement(
        self, sample: Sample, pages: Sequence[PageSpan], relevance: Relevance, rejection: Rejection
    ) -> Reasoning | None:
        """Return template reasoning for a sample with distributed evidence on which the teacher failed, or None."""
        spec = self.config.assemble
        if spec.distributed_share == 0 or len(relevance.pages) < spec.distributed_pages or not sample.evidence:
            return None
        if rejection.reason not in _REPLACEABLE:
            return None
        reasoning = template_reasoning(sample, pages, relevance.pages)
        return None if isinstance(reasoning, Rejection) else reasoning

    def _assembled(
        self, sample: Sample, pages: Sequence[PageSpan], relevance: Relevance, reasoning: Reasoning
    ) -> Outcome:
        trajectories = assemble(
            sample,
            pages,
            relevance.pages,
            reasoning,
            style=self.style,
            spec=self.config.assemble,
            seed=self.config.seed,
            judged_by="none" if not sample.answerable else self.judge.name,
        )
        # The first form is the longest: the others leave out the retrieved text.
        self.length_limit.check("trajectory_too_long", next(iter(trajectories.values())).turns, pages)
        return replace(self._outcome(sample, pages, relevance, reasoning.notes), trajectories=trajectories)

    def _rejected(
        self,
        sample: Sample,
        pages: Sequence[PageSpan],
        rejection: Rejection,
        relevance: Relevance | None = None,
    ) -> Outcome:
        return replace(self._outcome(sample, pages, relevance, rejection.notes), rejection=rejection)

    def _outcome(
        self, sample: Sample, pages: Sequence[PageSpan], relevance: Relevance | None, notes: Mapping[str, int]
    ) -> Outcome:
        """Return an outcome with the facts that rejected and assembled samples share."""
        return Outcome(
            source=sample.source,
            id=sample.id,
            split=self._split(sample),
            pages=len(pages),
            vision_tokens=sum(page.vision_tokens for page in pages),
            relevant_pages=len(relevance.pages) if relevance else 0,
            agreement=relevance.agreement if relevance else None,
            notes={**(relevance.notes if relevance else {}), **notes},
            context_overlap=sample.context_overlap,
        )

    def _split(self, sample: Sample) -> str:
        share = self.config.validation_share
        # `document_key` may hash the whole context, so it is read only if there is a validation split.
        return "validation" if share and chance(self.config.seed, "split", sample.document_key) < share else "train"


class Tools:
    """The external resources of one build: the ledger and the teachers. Close them after the build."""

    def __init__(self, config: BuildConfig, *, shared_ledger: bool = False) -> None:
        """Open the ledger and the teachers that the configuration uses.

        `shared_ledger` is for workers of one run: they append to a file whose lock the run itself holds. Raises
        InputError if another process holds the ledger.
        """
        self.config = config
        budget = Budget(config.budget.max_calls, config.budget.max_tokens, config.budget.max_usd)
        judge, reason = config.judge, config.reason
        # A section may describe a teacher that its `kind` does not use; such a teacher is not opened.
        wanted = {
            "judge": judge.teacher if judge.kind == "teacher" else None,
            "reason": reason.teacher if reason.kind == "teacher" else None,
        }
        specs = {role: spec for role, spec in wanted.items() if spec is not None}
        self.ledger: Ledger | None = None
        self.teachers: dict[str, Teacher] = {}
        if specs:
            ledger = self.ledger = Ledger(Path(config.out) / LEDGER_NAME, shared=shared_ledger)
            self.teachers = {role: open_teacher(spec, ledger, budget, role=role) for role, spec in specs.items()}

    async def close(self) -> None:
        """Close the teachers' connections, then the ledger."""
        for teacher in self.teachers.values():
            await teacher.close()
        if self.ledger is not None:
            self.ledger.close()

    def process(self, paginate: Paginate | None = None) -> Process:
        """Return the process of the configuration.

        Raises InputError if the page style is unknown, ModelError if `tokenizer` is unusable.
        """
        config = self.config
        style = resolve_style(config.style)
        limit = LengthLimit(config.max_tokens, config.tokenizer)
        return Process(config, style, paginate or layout_pages(style), self._judge(), self._reasoner(), limit)

    def _judge(self) -> Judge:
        if "judge" in self.teachers:
            return TeacherJudge(self.teachers["judge"], self.config.judge.reasks)
        return AnswerJudge() if self.config.judge.kind == "answer" else GoldJudge()

    def _reasoner(self) -> Reasoner:
        if "reason" in self.teachers:
            return TeacherReasoner(self.teachers["reason"], self.config.reason)
        return TemplateReasoner()


async def outcome_of(item: Item, process: Process) -> Outcome:
    """Return the outcome of an item: process a sample, or wrap the rejection. Raises what `process` raises."""
    if isinstance(item, Sample):
        return await process(item)
    return Outcome(item.source, item.id, item, context_overlap=item.context_overlap)
