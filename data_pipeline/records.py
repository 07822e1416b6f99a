"""What flows through the pipeline: a `Sample` in, an `Outcome` out; what falls away is a `Rejection` with its reason.

Spans are half-open [start, end) and count code points of `Sample.context`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from seer.schema import Trajectory
from seer.teaching.relevance import Agreement

Kind = Literal["extractive", "free", "summary", "code"]
"""How answers of a source compare: short spans, free sentences, summaries, a line of code."""

STAGES = ("load", "guard", "render", "judge", "reason")
"""In order. A record is rejected in one of them, or written."""


@dataclass(frozen=True)
class ReasonInfo:
    """Why a record can fall away. A `fault` means that something is wrong with the input or a teacher."""

    stage: str
    fault: bool
    meaning: str


REASONS: dict[str, ReasonInfo] = {
    "broken_json": ReasonInfo("load", True, "the line is not JSON, or not an object"),
    "not_utf8": ReasonInfo("load", True, "the line is not UTF-8"),
    "missing_field": ReasonInfo("load", True, "a field that the source must have is not there"),
    "wrong_type": ReasonInfo("load", True, "a field holds another type than the source has"),
    "empty_question": ReasonInfo("load", True, "the question is empty"),
    "empty_context": ReasonInfo("load", True, "the context is empty"),
    "too_large": ReasonInfo("load", True, "the line is longer than max_record_mb"),
    "duplicate_id": ReasonInfo("load", True, "an earlier record of the source has this id"),
    "missing_text": ReasonInfo("load", True, "the file that holds the context is not there"),
    "not_train": ReasonInfo("load", False, "the record says that it is of another split"),
    "no_answer": ReasonInfo("load", False, "there is no usable gold answer"),
    "answer_not_in_context": ReasonInfo("load", False, "the gold answer does not stand in the context"),
    "leaked_question": ReasonInfo("guard", False, "the question overlaps the benchmark's"),
    "leaked_context": ReasonInfo("guard", False, "the context overlaps the benchmark's"),
    "too_many_pages": ReasonInfo("render", False, "more pages than max_pages"),
    "no_evidence": ReasonInfo("judge", False, "the source marks no evidence and the judge needs it"),
    "no_relevant_pages": ReasonInfo("judge", False, "no page was found necessary"),
    "too_many_relevant": ReasonInfo("judge", False, "more pages were found necessary than max_relevant_pages"),
    "judge_unparsed": ReasonInfo("judge", False, "the judge gave no clear YES or NO for a page, re-asks included"),
    "too_long_for_teacher": ReasonInfo("judge", False, "the teacher cannot read so long a request"),
    "judge_failed": ReasonInfo("judge", True, "the judge's teacher could not be reached or sent no usable reply"),
    "reason_failed": ReasonInfo("reason", True, "the reasoning teacher could not be reached or sent no usable reply"),
    "reason_empty": ReasonInfo("reason", False, "the teacher returned nothing"),
    "reason_truncated": ReasonInfo("reason", False, "the teacher never came to an end"),
    "reason_refused": ReasonInfo("reason", False, "the teacher refused"),
    "no_reasoning": ReasonInfo("reason", False, "the reply holds an answer but no reasoning"),
    "answer_differs": ReasonInfo("reason", False, "the teacher's answer is not the gold one"),
    "nothing_to_quote": ReasonInfo("reason", False, "the template found no sentence that supports the answer"),
    "budget": ReasonInfo("reason", False, "the budget ended before this record"),
}


@dataclass(frozen=True)
class Rejection:
    """A record that fell away. Returned by steps, always counted."""

    reason: str
    detail: str = ""
    source: str = ""
    id: str = ""
    notes: Mapping[str, int] = field(default_factory=dict)

    def noting(self, notes: Mapping[str, int]) -> Rejection:
        """The same with counters of what was tried."""
        return replace(self, notes=dict(notes))

    def __post_init__(self) -> None:
        assert self.reason in REASONS, f"unknown rejection reason '{self.reason}'"


class Rejected(Exception):
    """Leaves an adapter or a step with a rejection; caught where records are counted."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True)
class Evidence:
    """A stretch of the context that the source marks as necessary. `hop` orders steps of reasoning."""

    start: int
    end: int
    hop: int = 0


@dataclass(frozen=True)
class Sample:
    """One question over one context, whatever source it came from."""

    id: str
    source: str
    question: str
    context: str
    answers: tuple[str, ...]
    kind: Kind = "extractive"
    evidence: tuple[Evidence, ...] | None = None
    """None: the source marks none. (): nothing in the context is needed, as for unanswerable questions."""
    answerable: bool = True
    document: str = ""
    """Identifies the document over all sources, so that splits never cut through one; "" takes the context's hash."""
    segments: tuple[tuple[int, int], ...] = ()
    """Passages that may change places: they cover the context in order. Empty: the context is one piece."""
    provenance: Mapping[str, str] = field(default_factory=dict)

    @property
    def document_key(self) -> str:
        if self.document:
            return self.document
        return hashlib.blake2b(self.context.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    @property
    def key(self) -> str:
        """Unique over sources."""
        return f"{self.source}/{self.id}"

    def reject(self, reason: str, detail: str = "") -> Rejection:
        return Rejection(reason, detail, self.source, self.id)


@dataclass(frozen=True)
class PageSpan:
    """One page of the context as the style lays it out."""

    number: int
    start: int
    end: int
    vision_tokens: int = 0


@dataclass(frozen=True)
class Outcome:
    """What became of one sample: trajectories by form, or the reason why not."""

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
    """Told by the template because the teacher failed on distributed evidence: admitted within its share, else
    rejected for this."""
    agreement: Agreement | None = None
    notes: Mapping[str, int] = field(default_factory=dict)
    """Counters by name: unparsed replies, re-asks, samples drawn and so on."""
