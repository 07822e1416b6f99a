"""Number of selected pages, invalid calls, and the gain by retrieval: the paper's section 6.4, figures 2 to 4."""

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
"""Ranges of document pages, both ends included. Only the first range is from the paper."""
MANY_PAGES = 3
"""The paper's model selects more pages in less than 1 % of samples."""


# ── Figure 2: number of selected pages ───────────────────────────────────────────────────────────


@dataclass(frozen=True)
class SelectionSummary:
    """Number of selected pages over a group of samples. `histogram` maps numbers of pages to numbers of samples."""

    histogram: Mapping[int, int]
    num_samples: int
    mean: float
    median: float
    share_of_many: float
    """Fraction of samples with more than three selected pages."""
    mean_document_pages: float


def selection_summary(predictions: Iterable[Prediction]) -> SelectionSummary:
    """Summarise the samples whose document was shown as pages. Excludes samples that failed before that."""
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
    """Return one summary for each range of document lengths with at least one sample."""
    shown = [one for one in predictions if one.pages]
    summaries = {}
    for first, last in buckets:
        held = [one for one in shown if first <= one.pages and (last is None or one.pages <= last)]
        if held:
            summaries[f"{first}+" if last is None else f"{first}-{last}"] = selection_summary(held)
    return summaries


def count_invalid(predictions: Iterable[Prediction]) -> int:
    """Count the select calls that violate the protocol."""
    return sum(bool(step.deviations) for one in predictions for step in one.trace if step.name == "select")


# ── Figure 3: number of retrieved pages ──────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ScopeRow:
    """Mean task score with no retrieved page, one, and all selected pages; in points."""

    none: float
    one: float | None
    all: float

    @property
    def gain(self) -> float:
        """Gain of retrieving all selected pages over none."""
        return self.all - self.none

    @property
    def recovered_by_one(self) -> float | None:
        """Fraction of the gain that a single page achieves; None if there is no gain or no run with one page."""
        if self.one is None or not self.gain:
            return None
        return (self.one - self.none) / self.gain


@dataclass(frozen=True)
class RetrievalScope:
    """Scores over the tasks in all runs. `overall` is the mean over tasks, `macro` the mean of category means."""

    overall: ScopeRow
    macro: ScopeRow
    categories: Mapping[str, ScopeRow]
    tasks: Mapping[str, ScopeRow]


def retrieval_scope(none: ScoreReport, all_: ScoreReport, one: ScoreReport | None = None) -> RetrievalScope:
    """Compare runs with k = 0, k = all and optionally k = 1 retrieved pages."""
    # Compare over the same tasks: a run with fewer tasks would shift every mean.
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


# ── Figure 4: gain by number of selected pages ───────────────────────────────────────────────────


@dataclass(frozen=True)
class HeterogeneityRow:
    """Scores of one task by number of selected pages, each minus the baseline's score of the whole task; in points."""

    task: str
    gain: float | None
    """Score of the task with retrieval minus the score without."""
    cells: Mapping[str, float | None]
    """Difference by bucket; None for buckets with too few samples."""
    counts: Mapping[str, int]
    """Number of samples by bucket."""


def heterogeneity(
    run: ScoredRun,
    baseline: ScoreReport,
    without_retrieval: ScoreReport | None = None,
    *,
    buckets: Sequence[int] = (0, 1, 2, 3),
    min_samples: int = 5,
) -> list[HeterogeneityRow]:
    """Return a row per task with at least one filled bucket, sorted by gain, with the largest first.

    `buckets` are numbers of selected pages; the last one includes larger numbers. A bucket with fewer than `min_samples`
    samples has no value. `without_retrieval` is the run with k = 0, for the gain.
    """
    rows = []
    for name, by_id in run.predictions.items():
        if name not in baseline.tasks:
            continue
        scores = run.report.tasks[name].sample_scores
        grouped: dict[str, list[float]] = {_bucket(number, buckets): [] for number in buckets}
        for identifier, prediction in by_id.items():
            grouped[_bucket(len(prediction.selected_pages), buckets)].append(100 * scores[identifier])
        # The baseline is the score of the whole task, not of the bucket: the figure compares buckets within a task.
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
    """Samples with the same number of selected pages: their mean score with and without the text of these pages."""

    label: str
    num_samples: int
    with_text: float
    without_text: float


def gain_by_selected(
    run: ScoredRun, without_retrieval: ScoredRun, buckets: Sequence[int] = (0, 1, 2, 3)
) -> list[GainRow]:
    """Return a row per number of selected pages, over the samples of all tasks that are in both runs.

    Both runs select the same pages, because the text is retrieved only after the selection.
    """
    scores, others = run.sample_scores(), without_retrieval.sample_scores()
    grouped: dict[str, list[tuple[float, float]]] = {_bucket(number, buckets): [] for number in buckets}
    for name, by_id in run.predictions.items():
        for identifier in by_id.keys() & others.get(name, {}).keys():
            # Sample scores are in [0, 1]; rows are in points, like task scores.
            pair = (100 * scores[name][identifier], 100 * others[name][identifier])
            grouped[_bucket(len(by_id[identifier].selected_pages), buckets)].append(pair)
    return [
        GainRow(label, len(pairs), _mean([one for one, _ in pairs]), _mean([other for _, other in pairs]))
        for label, pairs in grouped.items()
        if pairs
    ]


def _bucket(number: int, buckets: Sequence[int]) -> str:
    """Return the label of a number of pages: itself, or `3+` for the last bucket and above."""
    return f"{buckets[-1]}+" if number >= buckets[-1] else str(number)


def _mean_score(report: ScoreReport, names: Sequence[str]) -> float:
    return _mean([report.tasks[name].score for name in names])


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
