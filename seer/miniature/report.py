"""The report on the miniature: figures and controls at a glance, then the sections of every benchmark report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seer.evaluation.analysis.scored_run import ScoredRun
from seer.evaluation.analysis.selections import count_invalid
from seer.evaluation.analysis.tokens import token_table
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.reports.build import build_report
from seer.evaluation.reports.notes import conditions
from seer.evaluation.scoring.pages import PageMetric, page_score
from seer.miniature.controls import exact_match
from seer.miniature.learning import learning_section
from seer.web.tables import Bar, Chart, Report, Section, Table, columns, row

MEANINGS = {
    "page_f1_single": "page F1, single facts",
    "page_f1_all": "page F1, all questions that have gold pages",
    "bm25_f1_low_overlap": "page F1 of BM25 with matched budget, questions by paraphrase",
    "page_f1_low_overlap": "page F1, questions by paraphrase",
    "all_sample_f1": "all-sample F1",
    "em": "exact answers, retrieving",
    "em_without_retrieve": "exact answers, selecting without text (k = 0)",
    "em_iso_control": "exact answers of the model trained on the same data without select turns",
    "em_visual": "exact answers from pictures alone",
    "invalid_selections": "select calls that deviate from the protocol, in all runs",
}


def miniature_report(
    runs: Sequence[ScoredRun],
    gold: Mapping[str, tuple[int, ...]],
    records: Sequence[LongBenchRecord],
    found: Mapping[str, Any],
    *,
    checkpoint: Path | None = None,
) -> Report:
    """Build the report.

    runs: the control runs, with the full run first.
    gold: gold pages by question id.
    records: the records of the benchmark.
    found: the result of `seer.miniature.controls.figures`.
    checkpoint: the model's folder; its training summary, if there is one, becomes a learning curve.
    """
    built = build_report(
        runs, title="Seer in miniature: the paper's controls", gold_pages=gold, records=records, seed=found["seed"]
    )
    points = [f"{found['n']} questions of the held-out test world, seed {found['seed']}", *built.summary]
    learned = learning_section(checkpoint) if checkpoint else None
    return replace(
        built, summary=points, sections=[_glance(runs, gold, found), *([learned] if learned else []), *built.sections]
    )


def _glance(runs: Sequence[ScoredRun], gold: Mapping[str, tuple[int, ...]], found: Mapping[str, Any]) -> Section:
    figures = Table(
        "Figures",
        columns("figure", "value:3"),
        [row(meaning, None if found[key] is None else float(found[key])) for key, meaning in MEANINGS.items()],
        conditions(runs),
    )
    first = exact_match(runs[0])
    rows, bars = [], []
    for run in runs:
        share, spent = exact_match(run), token_table(run.predictions).overall
        pairs = [(one.selected_pages, gold[one.id]) for one in run.each()]
        pages: list[float | None] = [
            page_score(pairs).f1,
            page_score(pairs, PageMetric.ALL_SAMPLES).f1,
        ]
        if not any(selected for selected, _ in pairs):
            pages = [None, None]  # a run that selects no pages has no page F1
        costs = (spent.prompt, spent.compression or None, count_invalid(run.each()))
        rows.append(row(run.name, 100 * share, 100 * (share - first), *pages, *costs))
        bars.append(Bar(run.name, [(100 * share, "")]))
    heads = columns(
        *("run", "exact answers, %:1", f"minus {runs[0].name}:+1", "page F1:3", "all-sample F1:3"),
        *("prompt tokens:1", "compression:2", "invalid calls"),
    )
    text = (
        "Small documents of names and codes with known gold pages, from facts that no training document contains. "
        "Exact answers over all questions, with failures counted as wrong. Compression is full-text prompt over prompt."
    )
    table = Table("Controls", heads, rows, conditions(runs))
    return Section("At a glance", text, [figures, table], [Chart("Exact answers, %", bars, "%")])
