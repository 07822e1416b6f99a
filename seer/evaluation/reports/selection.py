"""Sections of a report on page selection: the number of selected pages, and their agreement with page labels."""

from __future__ import annotations

from collections.abc import Sequence

from seer.evaluation.analysis.scored_run import ScoredRun
from seer.evaluation.analysis.selections import SelectionSummary, selection_summary, selections_by_length
from seer.evaluation.analysis.selector_baselines import (
    MATCHED_SELECTORS,
    Selections,
    select_with_budgets,
    selector_rows,
)
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.reports.notes import PAPER_PAGE_SELECTION, PAPER_SELECTION, are_of_longbench, conditions, left_out
from seer.evaluation.scoring.pages import GoldPages, PageMetric, page_score
from seer.web.tables import Bar, Chart, Section, Table, columns, row

MANY_SELECTED = 5
"""Selections of at least this many pages share one column."""


def selection_section(runs: Sequence[ScoredRun]) -> Section | None:
    """Return the section on the number of selected pages (figure 2); None if no run has selections by the model."""
    summaries = {run.name: selection_summary(run.each()) for run in runs if run.is_ours and not run.is_forced}
    ours = [run for run in runs if run.name in summaries and summaries[run.name].num_samples]
    if not ours:
        return None
    rows = []
    for run in ours:
        one = summaries[run.name]
        rows.append(
            row(run.name, one.mean, one.median, 100 * one.share_of_many, one.mean_document_pages, one.num_samples)
        )
    if are_of_longbench(runs):
        rows.append(row(*PAPER_SELECTION, kind="paper"))
    heads = columns("run", "mean:2", "median:1", "over 3, %:2", "pages a document:2", "samples")
    shown = [str(number) for number in range(MANY_SELECTED)] + [f"{MANY_SELECTED}+"]
    charts = []
    tables = [Table("How many pages are selected", heads, rows, conditions(ours))]
    for run in ours:
        shares = _shares(summaries[run.name])
        bars = [Bar(f"{label} pages", [(share, "")]) for label, share in zip(shown, shares, strict=True)]
        charts.append(Chart(f"Pages selected by {run.name}, % of samples", bars, "%"))
        tables.append(
            Table(
                f"Pages selected by {run.name}, by length of the document (% of samples)",
                columns("document pages", *(f"{label}:1" for label in shown), "samples"),
                [row(name, *_shares(one), one.num_samples) for name, one in selections_by_length(run.each()).items()],
                conditions([run]),
                folded=True,
                shaded=True,
            )
        )
    return Section("Pages selected", "", tables, charts)


def _shares(summary: SelectionSummary) -> list[float]:
    """Return the percentage of samples by number of selected pages; the last entry is for `MANY_SELECTED` and more."""
    counts = [0] * (MANY_SELECTED + 1)
    for pages, number in summary.histogram.items():
        counts[min(pages, MANY_SELECTED)] += number
    return [100 * number / summary.num_samples for number in counts]


def page_section(
    runs: Sequence[ScoredRun], gold: GoldPages, records: Sequence[LongBenchRecord], seed: int
) -> Section | None:
    """Return the scores of selections against page labels (table 17), with baselines if `records` are given.

    None if no run selected pages of labelled inputs.
    """
    labelled = {run.name: {one.id: one.selected_pages for one in run.each() if one.id in gold} for run in runs}
    # Runs with text or images only never select a page, so they have no selection to score.
    ours = [run for run in runs if any(labelled[run.name].values())]
    if not ours:
        return None
    rows = []
    for run in ours:
        pairs = [(pages, gold[identifier]) for identifier, pages in labelled[run.name].items()]
        subset = page_score(pairs, PageMetric.GOLD_NONEMPTY)
        whole = page_score(pairs, PageMetric.ALL_SAMPLES)
        others = [page_score(pairs, metric).f1 for metric in (PageMetric.DOCLENS, PageMetric.SIMPLEDOC)]
        first = (subset.precision, subset.recall, subset.f1, subset.mean_pages, subset.num_samples)
        rows.append(row(run.name, *first, whole.f1, whole.num_samples, *others))
    for name, f1, all_f1 in PAPER_PAGE_SELECTION if are_of_longbench(runs) else ():
        rows.append(row(name, None, None, f1, None, None, all_f1, None, None, None, kind="paper"))
    text = (
        "Selections against answer-conditioned page labels. Precision, recall and F1 are means over samples that have "
        "relevant pages; the all-sample F1 requires an empty selection for the others."
    )
    heads = columns(
        *("run", "precision:3", "recall:3", "F1:3", "pages:2", "samples with gold", "all-sample F1:3", "samples"),
        *("DocLens F1:3", "SimpleDoc F1:3"),
    )
    tables = [Table("Page selection", heads, rows, conditions(ours, *left_out(runs, ours)))]
    if records:
        selecting = [run for run in ours if not run.is_forced]
        tables += [
            table for run in selecting for table in _baseline_tables(run, labelled[run.name], gold, records, seed)
        ]
    return Section("Page selection", text, tables)


def _baseline_tables(
    run: ScoredRun,
    own: Selections,
    gold: GoldPages,
    records: Sequence[LongBenchRecord],
    seed: int,
) -> list[Table]:
    """Return the tables of a run compared with fixed selectors, overall and by task."""
    # Match-k: each selector gets as many pages as the run selected, and at least one (paper, A.9).
    budgets = {identifier: max(1, len(pages)) for identifier, pages in own.items()}
    documents = select_with_budgets(records, gold, budgets, benchmark=run.report.benchmark, style=run.style, seed=seed)
    rows = []
    for one in selector_rows(run.name, own, gold, documents):
        subset = one.gold_nonempty
        whole = (subset.precision, subset.recall, subset.f1, subset.mean_pages, one.all_samples.f1)
        parts = (one.low_overlap, one.high_overlap, one.many_pages)
        rows.append(row(one.name, *whole, *(part.f1 if part else None for part in parts)))
    heads = columns(
        *("selector", "precision:3", "recall:3", "F1:3", "pages:2", "all-sample F1:3"),
        *("F1, low overlap:3", "F1, high overlap:3", "F1, over 3 gold pages:3"),
    )
    note = f"Budgets matched per sample, at least one page; random with seed {seed}; overlap split at its median"
    compared = Table(f"{run.name} compared with other selectors", heads, rows, conditions([run], note))
    selections = {run.name: own, **{name: documents.selections[name] for name in MATCHED_SELECTORS}}
    by_task = []
    for task, by_id in run.predictions.items():
        held = [identifier for identifier in by_id if identifier in documents.selections["all"]]
        scores = [page_score([(pages[one], gold[one]) for one in held]) for pages in selections.values()]
        if held:
            found = [score.f1 if score.num_samples else None for score in scores]
            every = page_score([(own[one], gold[one]) for one in held], PageMetric.ALL_SAMPLES)
            by_task.append(row(task, *found, every.f1, every.num_samples))
    heads = columns("task", *(f"{name}, F1:3" for name in selections), f"{run.name}, all-sample F1:3", "samples")
    title = f"{run.name} compared with other selectors, by task"
    return [compared, Table(title, heads, by_task, conditions([run], note), folded=True)]
