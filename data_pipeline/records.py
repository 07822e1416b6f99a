"""Records of the pipeline: a `Sample` goes in, an `Outcome` comes out; a dropped record is a `Rejection` with a reason.

Spans are half-open, [start, end), in code points of `Sample.context`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from seer.schema import Trajectory
from seer.teaching.relevance import Agreement

Kind = Literal["extractive", "free", "summary", "code"]
"""Type of a source's answers, which decides how they are compared: short spans, free sentences, summaries, or a line of
code."""

STAGES = ("load", "guard", "render", "judge", "reason")
"""The stages in order. Every record is either rejected in one of them or kept; those of an included source are written."""


@dataclass(frozen=True)
class ReasonInfo:
    """A reason for rejecting a record."""

    stage: str
    fault: bool
    """True if the input or a teacher is at fault; false if the record is merely unsuitable."""
    meaning: str


REASONS: dict[str, ReasonInfo] = {
    "broken_json": ReasonInfo("load", True, "the line is not a JSON object"),
    "not_utf8": ReasonInfo("load", True, "the line is not UTF-8"),
    "missing_field": ReasonInfo("load", True, "a required field is missing"),
    "wrong_type": ReasonInfo("load", True, "a field has the wrong type"),
    "empty_question": ReasonInfo("load", True, "the question is empty"),
    "empty_context": ReasonInfo("load", True, "the context is empty"),
    "too_large": ReasonInfo("load", True, "the line is longer than max_record_mb"),
    "duplicate_id": ReasonInfo("load", True, "an earlier record of the source has the same id"),
    "missing_text": ReasonInfo("load", True, "the file with the context is missing"),
    "not_train": ReasonInfo("load", False, "the record belongs to another split"),
    "no_answer": ReasonInfo("load", False, "the record has no usable gold answer"),
    "answer_not_in_context": ReasonInfo("load", False, "the gold answer does not occur in the context"),
    "leaked_question": ReasonInfo("guard", False, "the question overlaps the benchmark"),
    "leaked_context": ReasonInfo("guard", False, "the context overlaps the benchmark"),
    "too_many_pages": ReasonInfo("render", False, "more pages than max_pages"),
    "pages_too_long": ReasonInfo("render", False, "the pages alone exceed max_tokens"),
    "unanswerable": ReasonInfo("judge", False, "the document does not answer the question"),
    "no_evidence": ReasonInfo("judge", False, "the judge needs evidence and the source marks none"),
    "no_relevant_pages": ReasonInfo("judge", False, "the judge found no necessary page"),
    "too_many_relevant": ReasonInfo("judge", False, "more necessary pages than max_relevant_pages"),
    "judge_unparsed": ReasonInfo("judge", False, "no clear YES or NO for a page, even after retries"),
    "too_long_for_teacher": ReasonInfo("judge", False, "the request exceeds the judge's context length"),
    "retrieved_too_long": ReasonInfo("judge", False, "the pages and the retrieved text exceed max_tokens"),
    "judge_budget": ReasonInfo("judge", False, "the budget ended before all pages of the record were judged"),
    "judge_failed": ReasonInfo("judge", True, "the judge's teacher was unreachable or sent no usable reply"),
    "reason_failed": ReasonInfo("reason", True, "the reasoning teacher was unreachable or sent no usable reply"),
    "reason_too_long": ReasonInfo("reason", False, "the request exceeds the reasoning teacher's context length"),
    "reason_empty": ReasonInfo("reason", False, "the teacher's reply was empty"),
    "reason_truncated": ReasonInfo("reason", False, "the teacher's reply hit its token limit"),
    "reason_refused": ReasonInfo("reason", False, "the teacher refused to answer"),
    "no_reasoning": ReasonInfo("reason", False, "the reply holds an answer but no reasoning"),
    "answer_differs": ReasonInfo("reason", False, "the teacher's answer differs from the gold answer"),
    "trajectory_too_long": ReasonInfo("reason", False, "the finished trajectory exceeds max_tokens"),
    "nothing_to_quote": ReasonInfo("reason", False, "the template found no sentence that supports the answer"),
    "budget": ReasonInfo("reason", False, "the budget ended before the reasoning of this record"),
}
"""Every rejection reason by its name in statistics."""


@dataclass(frozen=True)
class Rejection:
    """A rejected record. Steps return it; every rejection is counted."""

    reason: str
    detail: str = ""
    source: str = ""
    id: str = ""
    notes: Mapping[str, int] = field(default_factory=dict)
    """Counters by name, such as the number of teacher replies."""
    context_overlap: float | None = None
    """Overlap of the context with the guard's benchmark; None if it was not measured."""

    def with_notes(self, notes: Mapping[str, int]) -> Rejection:
        """Return a copy with these counters."""
        return replace(self, notes=dict(notes))

    def __post_init__(self) -> None:
        assert self.reason in REASONS, f"unknown rejection reason '{self.reason}'"


class Rejected(Exception):
    """Raised inside an adapter or a step to reject the current record; its caller converts it to a `Rejection`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True)
class Evidence:
    """A span of the context that the source marks as necessary. `hop` orders the steps of reasoning."""

    start: int
    end: int
    hop: int = 0


@dataclass(frozen=True)
class Sample:
    """One question over one context, in the form that all sources share."""

    id: str
    source: str
    question: str
    context: str
    answers: tuple[str, ...]
    kind: Kind = "extractive"
    task: str = ""
    """The benchmark task that poses the question; "" if there is none."""
    evidence: tuple[Evidence, ...] | None = None
    """None if the source marks no evidence; empty if no span is needed, as for unanswerable questions."""
    answerable: bool = True
    document: str = ""
    """Identifies the document across sources, so that a document never falls into both splits. If empty, the hash of the
    context takes its place."""
    segments: tuple[tuple[int, int], ...] = ()
    """Spans of passages that can be reordered; together they cover the context. Empty if the context is one passage."""
    provenance: Mapping[str, str] = field(default_factory=dict)
    context_overlap: float | None = None
    """Overlap of the context with the guard's benchmark; None if it was not measured."""

    @property
    def document_key(self) -> str:
        """The name of the document, or the hash of the context."""
        if self.document:
            return self.document
        return hashlib.blake2b(self.context.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    @property
    def key(self) -> str:
        """An id that is unique across sources."""
        return f"{self.source}/{self.id}"

    def reject(self, reason: str, detail: str = "") -> Rejection:
        """Return the rejection of this sample for one of `REASONS`."""
        return Rejection(reason, detail, self.source, self.id)


@dataclass(frozen=True)
class PageSpan:
    """One page of the context, as the page style lays it out."""

    number: int
    """Counted from 1."""
    start: int
    end: int
    vision_tokens: int = 0
    width_px: int = 0
    height_px: int = 0


@dataclass(frozen=True)
class Outcome:
    """The result of processing one sample: trajectories by form, or a rejection."""

    source: str
    id: str
    rejection: Rejection | None = None
    trajectories: Mapping[str, Trajectory] = field(default_factory=dict)
    """By form: select, iso_control, without_retrieve."""
    split: str = "train"
    pages: int = 0
    relevant_pages: int = 0
    vision_tokens: int = 0
    instead_of: Rejection | None = None
    """Set if the template replaced the reasoning of a teacher that failed on distributed evidence: the teacher's
    rejection. The collector applies it if `assemble.distributed_share` is used up."""
    agreement: Agreement | None = None
    notes: Mapping[str, int] = field(default_factory=dict)
    """Counters by name: unparsed replies, retries, samples drawn and so on."""
    context_overlap: float | None = None
    """Overlap of the context with the guard's benchmark; None if it was not measured, or counts elsewhere."""
