"""How many pages are selected, how often amiss, and what retrieval gains where: the paper's section 6.4, figures 2 to 4."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from seer.evaluation.analysis.scored_run import ScoredRun
from seer.evaluation.runs.score import ScoreReport
from seer.schema import Prediction

LENGTH_BUCKETS = ((1, 3), (4, 6), (7, 10), (11, 20), (21, None))
"""Documents by number of pages, both ends included. (ours, but for the first, which the paper names)"""
MANY_PAGES = 3
"""The paper's model hardly ever selects more."""


# ── Figure 2: how many ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class SelectionSummary:
    """How many pages the samples of a group select. `histogram` maps a number of pages to a number of samples."""

    histogram: Mapping[int, int]
    num_samples: int
    mean: float
    median: float
    share_of_many: float
    """Share of samples that select more than three pages."""
    mean_document_pages: float


def selection_summary(predictions: Iterable[Prediction]) -> SelectionSummary:
    """Over samples whose document was shown as pages; failures before that have nothing to count."""
    shown = [one for one in predictions if one.pages]
    counts = sorted(len(one.selected_pages) for one in shown)
    if not counts:
        return SelectionSummary({}, 0, 0.0, 0.0, 0.0, 0.0)
    return SelectionSummary(
        histogram=dict(sorted(Counter(counts).items())),
        num_samples=len(counts),
        mean=math.fsum(counts) / len(counts),
        median=float(statistics.median(counts)),
        share_of_many=sum(count > MANY_PAGES for count in counts) / len(counts),
        mean_document_pages=sum(one.pages for one in shown) / len(shown),
    )


def selections_by_length(
    predictions: Iterable[Prediction], buckets: Sequence[tuple[int, int | None]] = LENGTH_BUCKETS
) -> dict[str, SelectionSummary]:
    """One summary for each bucket of document lengths that holds a sample."""
    shown = [one for one in predictions if one.pages]
    summaries = {}
    for first, last in buckets:
        held = [one for one in shown if first <= one.pages and (last is None or one.pages <= last)]
        if held:
            summaries[f"{first}+" if last is None else f"{first}-{last}"] = selection_summary(held)
    return summaries


def count_invalid(predictions: Iterable[Prediction]) -> int:
    """Select calls that depart from the protocol."""
    return sum(bool(step.deviations) for one in predictions for step in one.trace if step.name == "select")


# ── Figure 3: how far to retrieve ────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ScopeRow:
    """Mean task score with no retrieved page, with one, and with all that were selected."""

    none: float
    one: float | None
    all: float

    @property
    def gain(self) -> float:
        return self.all - self.none

    @property
    def recovered_by_one(self) -> float | None:
        """The share of the gain that a single page brings; None where there is no gain or no such run."""
        if self.one is None or not self.gain:
            return None
        return (self.one - self.none) / self.gain


@dataclass(frozen=True)
class RetrievalScope:
    """Over the tasks that all runs have. `overall` is the plain mean over tasks, `macro` that of category means."""

    overall: ScopeRow
    macro: ScopeRow
    categories: Mapping[str, ScopeRow]
    tasks: Mapping[str, ScopeRow]


def retrieval_scope(none: ScoreReport, all_: ScoreReport, one: ScoreReport | None = None) -> RetrievalScope:
    """Compare runs of k = 0, k = all and, where there is one, k = 1."""
    reports = [report for report in (none, one, all_) if report is not None]
    common = {
        name: task.task.category for name, task in all_.tasks.items() if all(name in report.tasks for report in reports)
    }

    def row(names: Sequence[str]) -> ScopeRow:
        middle = None if one is None else _mean_score(one, names)
        return ScopeRow(_mean_score(none, names), middle, _mean_score(all_, names))

    by_category = {
        category: [name for name in common if common[name] == category] for category in dict.fromkeys(common.values())
    }
    categories = {category: row(names) for category, names in by_category.items()}
    macro = ScopeRow(
        _mean([part.none for part in categories.values()]),
        None if one is None else _mean([part.one for part in categories.values() if part.one is not None]),
        _mean([part.all for part in categories.values()]),
    )
    return RetrievalScope(row(list(common)), macro, categories, {name: row([name]) for name in common})


# ── Figure 4: where retrieval helps ──────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class HeterogeneityRow:
    """One task: by number of selected pages, the bucket's mean score minus the baseline's task score."""

    task: str
    gain: float | None
    """The task's score with retrieval minus that without; tasks are sorted by it."""
    cells: Mapping[str, float | None]
    """None where a bucket holds too few samples."""
    counts: Mapping[str, int]


def heterogeneity(
    run: ScoredRun,
    baseline: ScoreReport,
    without_retrieval: ScoreReport | None = None,
    *,
    buckets: Sequence[int] = (0, 1, 2, 3),
    min_samples: int = 5,
) -> list[HeterogeneityRow]:
    """The last bucket holds that many pages or more. Tasks without a filled bucket are left out."""
    rows = []
    for name, by_id in run.predictions.items():
        if name not in baseline.tasks:
            continue
        scores = run.report.tasks[name].sample_scores
        grouped: dict[str, list[float]] = {_bucket(number, buckets): [] for number in buckets}
        for identifier, prediction in by_id.items():
            grouped[_bucket(len(prediction.selected_pages), buckets)].append(100 * scores[identifier])
        cells = {
            label: _mean(values) - baseline.tasks[name].score if len(values) >= min_samples else None
            for label, values in grouped.items()
        }
        gain = None
        if without_retrieval is not None and name in without_retrieval.tasks:
            gain = run.report.tasks[name].score - without_retrieval.tasks[name].score
        if any(cell is not None for cell in cells.values()):
            rows.append(HeterogeneityRow(name, gain, cells, {label: len(group) for label, group in grouped.items()}))
    return sorted(rows, key=lambda row: (row.gain is None, -(row.gain or 0.0)))


@dataclass(frozen=True)
class GainRow:
    """The samples that select so many pages: their mean score with and without the pages' text."""

    label: str
    num_samples: int
    with_text: float
    without_text: float


def gain_by_selected(
    run: ScoredRun, without_retrieval: ScoredRun, buckets: Sequence[int] = (0, 1, 2, 3)
) -> list[GainRow]:
    """Over the samples that both runs hold, whatever their task. Both select the same, as the text comes after."""
    scores, others = run.sample_scores(), without_retrieval.sample_scores()
    grouped: dict[str, list[tuple[float, float]]] = {_bucket(number, buckets): [] for number in buckets}
    for name, by_id in run.predictions.items():
        for identifier in by_id.keys() & others.get(name, {}).keys():
            pair = (100 * scores[name][identifier], 100 * others[name][identifier])
            grouped[_bucket(len(by_id[identifier].selected_pages), buckets)].append(pair)
    return [
        GainRow(label, len(pairs), _mean([one for one, _ in pairs]), _mean([other for _, other in pairs]))
        for label, pairs in grouped.items()
        if pairs
    ]


def _bucket(number: int, buckets: Sequence[int]) -> str:
    return f"{buckets[-1]}+" if number >= buckets[-1] else str(number)


def _mean_score(report: ScoreReport, names: Sequence[str]) -> float:
    return _mean([report.tasks[name].score for name in names])


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
