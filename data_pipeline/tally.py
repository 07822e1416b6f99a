"""Count the outcome of every record by source, stage and reason, with a few examples of each reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from data_pipeline.records import REASONS, STAGES, Outcome, Rejection
from seer.errors import SeerError
from seer.teaching.relevance import Agreement

MAX_EXAMPLES = 3
_MAX_DETAIL_CHARS = 200
_GRACE_RECORDS = 50


class BuildStopped(SeerError, RuntimeError):
    """The build stopped before its sets were complete: too many faults, or an unusable teacher."""


@dataclass
class SourceTally:
    """Counts of one source's records."""

    records: int = 0
    written: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[dict[str, str]]] = field(default_factory=lambda: defaultdict(list))
    pages: Counter[int] = field(default_factory=Counter)
    relevant_pages: Counter[int] = field(default_factory=Counter)
    agreement: Agreement = field(default_factory=Agreement)
    notes: Counter[str] = field(default_factory=Counter)
    reasons_made_by: Counter[str] = field(default_factory=Counter)

    def retention(self) -> dict[str, int]:
        """Return the number of records left after each stage, starting with `read`."""
        remaining = self.records
        kept = {"read": remaining}
        for stage in STAGES:
            remaining -= sum(count for reason, count in self.rejected.items() if REASONS[reason].stage == stage)
            kept[stage] = remaining
        return kept


class Tally:
    """Counts outcomes. Equal outcomes in the same order give equal statistics."""

    def __init__(self, max_fault_share: float = 1.0) -> None:
        self.sources: dict[str, SourceTally] = {}
        self.records = self.written = self.faults = 0
        self._max_fault_share = max_fault_share

    def add(self, outcome: Outcome, written: bool) -> None:
        """Count one outcome; `written` is false if it was rejected.

        Raises BuildStopped if the fraction of faults exceeds `max_fault_share`, checked from the 50th record on.
        """
        tally = self.sources.get(outcome.source)
        if tally is None:
            tally = self.sources[outcome.source] = SourceTally()
        tally.records += 1
        self.records += 1
        if outcome.rejection is not None:
            self._reject(tally, outcome.rejection)
        if outcome.agreement is not None:
            tally.agreement += outcome.agreement
        if outcome.notes:
            tally.notes.update(outcome.notes)
        if written:
            tally.written += 1
            self.written += 1
            tally.pages[outcome.pages] += 1
            tally.relevant_pages[outcome.relevant_pages] += 1
            # All forms of a record have the same reasoning, so the first one is enough.
            tally.reasons_made_by[next(iter(outcome.trajectories.values())).provenance["reason"]] += 1
        if self.records >= _GRACE_RECORDS:
            self.check_faults()

    def _reject(self, tally: SourceTally, rejection: Rejection) -> None:
        tally.rejected[rejection.reason] += 1
        self.faults += REASONS[rejection.reason].fault
        examples = tally.examples[rejection.reason]
        if len(examples) < MAX_EXAMPLES:
            examples.append({"id": rejection.id[:_MAX_DETAIL_CHARS], "detail": rejection.detail[:_MAX_DETAIL_CHARS]})

    def check_faults(self) -> None:
        """Raises BuildStopped if the fraction of faulty records exceeds `max_fault_share`."""
        if self.records and self.faults / self.records > self._max_fault_share:
            raise BuildStopped(
                f"{self.faults} of {self.records} records are faulty, more than max_fault_share = "
                f"{self._max_fault_share:g} allows: {self._fault_summary()}; fix the input, or raise max_fault_share"
            )

    def _fault_summary(self) -> str:
        """Return the count of each reason for faults, the most frequent first and with an example."""
        counts: Counter[str] = Counter()
        details: dict[str, str] = {}
        for tally in self.sources.values():
            for reason, number in tally.rejected.items():
                if REASONS[reason].fault:
                    counts[reason] += number
                    details.setdefault(reason, tally.examples[reason][0]["detail"])
        parts = [f"{reason} {number}" for reason, number in counts.most_common()]
        example = details[counts.most_common(1)[0][0]]
        return ", ".join(parts) + (f" (e.g. {example})" if example else "")

    def statistics(self) -> dict[str, Any]:
        """Return all counts as JSON values, without times, so that equal runs give equal bytes."""
        return {
            "records": self.records,
            "written": self.written,
            "faults": self.faults,
            "sources": {name: _source_statistics(tally) for name, tally in sorted(self.sources.items())},
        }

    def table(self) -> str:
        """Return retention and rejections as plain text."""
        return outcome_table(self.statistics())


def outcome_table(statistics: Mapping[str, Any]) -> str:
    """Format the statistics of a build as plain text: records left after each stage, then rejections by reason.

    Raises KeyError if `statistics` is not the content of a stats.json.
    """
    return "\n".join([*_retention_lines(statistics["sources"]), *_rejection_lines(statistics["sources"])])


def _source_statistics(tally: SourceTally) -> dict[str, Any]:
    agreed = tally.agreement
    statistics: dict[str, Any] = {
        "retention": tally.retention(),
        "written": tally.written,
        "rejected": dict(sorted(tally.rejected.items())),
        "examples": {reason: tally.examples[reason] for reason in sorted(tally.examples)},
        "pages": _histogram(tally.pages),
        "relevant_pages": _histogram(tally.relevant_pages),
        "reasoning": dict(sorted(tally.reasons_made_by.items())),
        "notes": dict(sorted(tally.notes.items())),
    }
    if agreed != Agreement():
        statistics["agreement_with_gold"] = {
            "pages_both": agreed.both,
            "pages_judge_only": agreed.judge_only,
            "pages_gold_only": agreed.gold_only,
            "pages_neither": agreed.neither,
            **{name: _rounded(getattr(agreed, name)) for name in ("precision", "recall", "kappa")},
        }
    return statistics


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _histogram(counts: Counter[int]) -> dict[str, int]:
    return {str(value): counts[value] for value in sorted(counts)}


def _retention_lines(sources: Mapping[str, Any]) -> Iterator[str]:
    names = ("read", *STAGES, "written")
    yield f"{'source':<16}" + "".join(f"{name:>10}" for name in names)
    for name, source in sources.items():
        kept = {**source["retention"], "written": source["written"]}
        yield f"{name[:16]:<16}" + "".join(f"{kept[column]:>10,}" for column in names)


def _rejection_lines(sources: Mapping[str, Any]) -> Iterator[str]:
    total: Counter[str] = Counter()
    for source in sources.values():
        total.update(source["rejected"])
    for reason, count in sorted(total.items(), key=lambda item: (-item[1], item[0])):
        info = REASONS[reason]
        yield f"  {count:>8,}  {reason:<22} {info.meaning}{' (fault)' if info.fault else ''}"
