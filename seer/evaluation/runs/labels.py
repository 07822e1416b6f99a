"""Page labels for an evaluation set: the pages that each answer needs, found by the judge of `seer.teaching.relevance`.

    report = label_pages(records, TeacherSpec(base_url="http://127.0.0.1:8000/v1", model="judge"), "labels")

    OUT/
      labels.jsonl    id, task, pages, num_pages: the file for `--labels` of other commands
      labels.json     how they were made, and counts
      ledger.jsonl    every finished call, so that no call is made twice

The labels are written after the last call. If the command is killed before that, run it again: finished calls are read
from the ledger. An input with an undecided page gets no label, because a guess would look like one; it is counted with
its reason. Page numbers depend on the page style, so the labels serve runs of that style only.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seer.errors import EngineError, InputError
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.benchmarks.tasks import LONGBENCH, Benchmark, bare_question, build_context
from seer.rendering.styles import with_newline
from seer.schema import PageStyle
from seer.storage import write_json, write_text
from seer.teaching.ledger import Budget, Ledger, Spending
from seer.teaching.relevance import Agreement, judge_pages
from seer.teaching.settings import TeacherSpec
from seer.teaching.teachers import Teacher, ends_run, open_teacher

LABELS_NAME = "labels.jsonl"
COUNTS_NAME = "labels.json"
LEDGER_NAME = "ledger.jsonl"
MAX_RECORDS_AT_ONCE = 512
RECORDS_PER_CALL_AT_ONCE = 2
"""Enough laid-out documents to keep the teacher busy, without holding all of them."""

OnProgress = Callable[[int, int, int], None]
"""Called with the numbers of inputs judged, of all inputs, and of those that got no label."""


@dataclass(frozen=True)
class PageLabel:
    """The judgement of one input. `pages` None: it got no label, for the given `reason`."""

    id: str
    task: str
    num_pages: int
    pages: tuple[int, ...] | None = None
    reason: str = ""
    """no_answer, unparsed (never a clear YES or NO), too_long (for the teacher), refused, failed (a retry may succeed)."""
    detail: str = ""
    notes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LabelReport:
    """Every input's label, in the benchmark's order, and the cost."""

    labels: Sequence[PageLabel]
    spent: Spending
    """Over all runs that share the folder."""
    agreement: Agreement | None = None
    """Agreement with the reference labels, over the inputs that both have; None without a reference."""

    @property
    def failed(self) -> list[PageLabel]:
        """Inputs that another run may still label."""
        return [label for label in self.labels if label.reason == "failed"]

    def to_json(self) -> dict[str, Any]:
        """Return the counts for `labels.json` and `seer eval label --json`."""
        labelled = [label for label in self.labels if label.pages is not None]
        without = [label for label in self.labels if label.pages is None]
        notes: Counter[str] = Counter()
        for label in self.labels:
            notes.update(label.notes)
        counts: dict[str, Any] = {
            "inputs": len(self.labels),
            "labelled": len(labelled),
            "labelled_empty": sum(not label.pages for label in labelled),
            "pages": sum(label.num_pages for label in labelled),
            "relevant_pages": sum(len(label.pages or ()) for label in labelled),
            "unlabelled": dict(sorted(Counter(label.reason for label in without).items())),
            "replies": dict(sorted(notes.items())),
            "calls": self.spent.calls,
            "tokens": self.spent.tokens,
            "usd": round(self.spent.usd, 4),
        }
        if self.agreement is not None:
            agreed = self.agreement
            counts["agreement"] = {
                **{"both": agreed.both, "judge_only": agreed.judge_only},
                **{"reference_only": agreed.gold_only, "neither": agreed.neither},
                **{"precision": agreed.precision, "recall": agreed.recall, "kappa": agreed.kappa},
            }
        return counts


def label_pages(
    records: Sequence[LongBenchRecord],
    spec: TeacherSpec,
    out_dir: str | Path,
    *,
    benchmark: Benchmark = LONGBENCH,
    style: str | PageStyle = "seer",
    reasks: int = 2,
    reference: Mapping[str, tuple[int, ...]] | None = None,
    on_progress: OnProgress | None = None,
) -> LabelReport:
    """Judge every page of every record and write the labels to `out_dir`.

    Args:
        records: The inputs.
        spec: The teacher.
        out_dir: The folder for labels and ledger.
        benchmark: The records' benchmark.
        style: Page style whose page numbers the labels use.
        reasks: Further draws after an unclear reply.
        reference: Other labels by id, to compare with.
        on_progress: Called after every input.

    Raises InputError (no records, an id twice, an unknown style, another process at work there), ModelError (a package
    is missing, or the model cannot be loaded), EngineError (a teacher with a wrong key or address).
    """
    from seer.rendering import resolve_style

    _check(records, reasks)
    page_style = resolve_style(style)
    folder = Path(out_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"'{folder}' can't hold labels: {error.strerror}; give another folder") from None
    work = _Judging(spec, benchmark, page_style, reasks, len(records), on_progress)
    with Ledger(folder / LEDGER_NAME) as ledger:
        labels = asyncio.run(work.run(records, ledger))
        report = LabelReport(labels, ledger.spent, _agreement(labels, reference))
    lines = [
        json.dumps({"id": one.id, "task": one.task, "pages": one.pages, "num_pages": one.num_pages}, ensure_ascii=False)
        for one in labels
        if one.pages is not None
    ]
    without = [
        {"id": one.id, "task": one.task, "reason": one.reason, "detail": one.detail}
        for one in labels
        if one.pages is None
    ]
    made = {"benchmark": benchmark.name, "model": spec.model, "temperature": spec.temperature, "reasks": reasks}
    summary = {**made, "style": page_style.model_dump(mode="json"), "counts": report.to_json(), "unlabelled": without}
    write_text(folder / LABELS_NAME, "".join(f"{line}\n" for line in lines))
    write_json(folder / COUNTS_NAME, summary)
    return report


@dataclass
class _Judging:
    """One run of the judge over many records."""

    spec: TeacherSpec
    benchmark: Benchmark
    style: PageStyle
    reasks: int
    num_records: int
    on_progress: OnProgress | None
    num_done: int = 0
    num_unlabelled: int = 0

    async def run(self, records: Sequence[LongBenchRecord], ledger: Ledger) -> list[PageLabel]:
        room = asyncio.Semaphore(min(MAX_RECORDS_AT_ONCE, RECORDS_PER_CALL_AT_ONCE * self.spec.concurrency))
        async with open_teacher(self.spec, ledger, Budget(), role="judge") as teacher:

            async def judge(record: LongBenchRecord) -> PageLabel:
                async with room:  # a document is laid out only when there is room for its calls
                    label = await self._judge(record, teacher)
                self._count(label)
                return label

            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(judge(record)) for record in records]
            except ExceptionGroup as failed:
                raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _judge(self, record: LongBenchRecord, teacher: Teacher) -> PageLabel:
        from seer.rendering import stream

        task = self.benchmark.find(record.task)
        style = with_newline(self.style, task.newline)
        pages = [page.text for page in stream(build_context(task, record.input, record.context), style)]
        if not any(answer.strip() for answer in record.answers):
            return PageLabel(record.id, record.task, len(pages), reason="no_answer")
        question = bare_question(task, record.input)
        try:
            judged = await judge_pages(teacher, question, record.answers, pages, self.reasks)
        except EngineError as error:
            if ends_run(error):
                raise
            return PageLabel(record.id, record.task, len(pages), reason="failed", detail=str(error))
        return PageLabel(
            record.id, record.task, len(pages), judged.pages, judged.problem or "", judged.detail, judged.notes
        )

    def _count(self, label: PageLabel) -> None:
        self.num_done += 1
        self.num_unlabelled += label.pages is None
        if self.on_progress:
            self.on_progress(self.num_done, self.num_records, self.num_unlabelled)


def _check(records: Sequence[LongBenchRecord], reasks: int) -> None:
    if not records:
        raise InputError("there are no inputs to label; check the data folder, --tasks and --limit")
    if reasks < 0:
        raise InputError(f"reasks={reasks}: must be at least 0")
    repeated = [identifier for identifier, number in Counter(one.id for one in records).items() if number > 1]
    if repeated:
        raise InputError(
            f"the id '{repeated[0]}' occurs twice among the inputs; labels are kept by id, so ids must differ"
        )


def _agreement(labels: Sequence[PageLabel], reference: Mapping[str, tuple[int, ...]] | None) -> Agreement | None:
    if reference is None:
        return None
    total = Agreement()
    for label in labels:
        if label.pages is not None and label.id in reference:
            total += Agreement.of(label.pages, reference[label.id], label.num_pages)
    return total
