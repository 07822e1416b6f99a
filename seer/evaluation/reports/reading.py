"""Sections of a report: tokens, pages selected, selections against labels, time. None where no run holds what is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seer.evaluation.analysis.forced import MATCHED_SELECTORS, select_with_budgets, selector_rows
from seer.evaluation.analysis.runs import Run
from seer.evaluation.analysis.selections import SelectionSummary, selection_summary, selections_by_length
from seer.evaluation.analysis.tokens import TokenRow, token_table
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.files import SESSIONS
from seer.evaluation.reports.conditions import are_of_longbench, conditions, left_out
from seer.evaluation.reports.paper import PAPER_FIGURES, PAPER_FULL_TEXT_TOKENS, PAPER_PAGE_SELECTION, PAPER_SELECTION
from seer.evaluation.runs.latency import SLOW_SECONDS, latency_summary, prefill_by_length
from seer.evaluation.scoring.pages import PageMetric, page_score
from seer.web.tables import Bar, Cell, Chart, Section, Table, columns, row

MANY_SELECTED = 5
"""Selections of this many pages and more are shown as one."""


def tokens_section(runs: Sequence[Run]) -> Section | None:
    """Tables 2, 11 and 12."""
    counted = {run.name: token_table(run.predictions) for run in runs if run.is_ours}
    ours = [run for run in runs if run.name in counted and counted[run.name].overall.num_samples]
    if not ours:
        return None
    rows = [row(run.name, *_token_cells(counted[run.name].overall), counted[run.name].num_dearer) for run in ours]
    for paper in PAPER_FIGURES if are_of_longbench(runs) else ():
        if paper.prompt_tokens:
            figures = (paper.prompt_tokens, None, PAPER_FULL_TEXT_TOKENS, paper.compression)
            rows.append(row(paper.name, None, None, None, *figures, None, None, None, kind="paper"))
    by_task = [
        Table(
            f"Tokens of {run.name}, by task",
            columns("task", *_TOKEN_COLUMNS),
            [row(name, *_token_cells(means)) for name, means in counted[run.name].tasks.items()],
            conditions([run]),
            folded=True,
        )
        for run in ours
    ]
    bars = [bar for run in ours for bar in _token_bars(run.name, counted[run.name].overall)]
    notes = left_out(runs, ours)
    if any(run.report.manifest.get("engine") == "scripted" and not run.report.manifest.get("model") for run in ours):
        notes.append("The scripted engine without a model counts nearly every byte as a token, which flatters pictures")
    text = (
        "Means of task means, by each run's own tokenizer. Compression is the mean over tasks of full text over prompt: "
        "above 1 means saved. Samples that failed before a prompt was made are left out and counted."
    )
    heads = columns("run", *_TOKEN_COLUMNS, "tasks dearer than text")
    table = Table("Prompt tokens, means over tasks", heads, rows, conditions(ours, *notes))
    return Section("Tokens", text, [table, *by_task], [Chart("Prompt tokens", bars, "tokens", 0)])


_TOKEN_COLUMNS = (
    *("textual:1", "visual:1", "retrieved:1", "prompt:1", "completion:1", "full text:1", "compression:2"),
    *("samples", "left out"),
)


def _token_cells(means: TokenRow) -> list[Cell]:
    counts = (means.num_samples, means.num_left_out)
    spent = (means.textual, means.visual, means.retrieved, means.prompt, means.completion)
    return [*spent, means.full_text or None, means.compression or None, *counts]


def _token_bars(name: str, means: TokenRow) -> list[Bar]:
    other = means.textual - means.retrieved
    bars = [Bar(name, [(means.visual, "visual"), (means.retrieved, "retrieved text"), (other, "other text")])]
    return [*bars, Bar(f"{name}, as full text", [(means.full_text, "full text")])] if means.full_text else bars


def selection_section(runs: Sequence[Run]) -> Section | None:
    """Figure 2."""
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
    """Percent of samples by number of pages; the last holds that many or more."""
    counts = [0] * (MANY_SELECTED + 1)
    for pages, number in summary.histogram.items():
        counts[min(pages, MANY_SELECTED)] += number
    return [100 * number / summary.num_samples for number in counts]


def page_section(
    runs: Sequence[Run], gold: Mapping[str, tuple[int, ...]], records: Sequence[LongBenchRecord], seed: int
) -> Section | None:
    """Table 17: selections against page labels, and beside baselines where the records are at hand."""
    labelled = {run.name: {one.id: one.selected_pages for one in run.each() if one.id in gold} for run in runs}
    # Runs that never select, of text or of pictures alone, have no selection to judge.
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
        "relevant pages; the all-sample F1 wants an empty selection where there are none."
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
    run: Run,
    own: Mapping[str, tuple[int, ...]],
    gold: Mapping[str, tuple[int, ...]],
    records: Sequence[LongBenchRecord],
    seed: int,
) -> list[Table]:
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
    beside = Table(f"{run.name} beside other selectors", heads, rows, conditions([run], note))
    ways = {run.name: own, **{name: documents.selections[name] for name in MATCHED_SELECTORS}}
    by_task = []
    for task, by_id in run.predictions.items():
        held = [identifier for identifier in by_id if identifier in documents.selections["all"]]
        scores = [page_score([(pages[one], gold[one]) for one in held]) for pages in ways.values()]
        if held:
            found = [score.f1 if score.num_samples else None for score in scores]
            every = page_score([(own[one], gold[one]) for one in held], PageMetric.ALL_SAMPLES)
            by_task.append(row(task, *found, every.f1, every.num_samples))
    heads = columns("task", *(f"{name}, F1:3" for name in ways), f"{run.name}, all-sample F1:3", "samples")
    title = f"{run.name} beside other selectors, by task"
    return [beside, Table(title, heads, by_task, conditions([run], note), folded=True)]


def latency_section(runs: Sequence[Run]) -> Section | None:
    """Tables 13 and 14: the runs' own clocks, and prefill probes where there are some."""
    # what an engine merely said again took no time
    timed = {
        run.name: latency_summary(run.each(), run.probes)
        for run in runs
        if run.is_ours and not run.report.manifest.get("recalls")
    }
    ours = [run for run in runs if run.name in timed and timed[run.name].num_samples]
    if not ours:
        return None
    rows = []
    for run in ours:
        one = timed[run.name]
        session = (run.report.manifest.get(SESSIONS) or [{}])[-1]
        setting = (one.num_samples, session.get("batch_size"), session.get("concurrency"))
        rates = (one.completion_tokens, one.generate_tokens_per_s, one.prefill_seconds, one.decode_tokens_per_s)
        rows.append(row(run.name, one.seconds, one.p90_seconds, one.num_slow, *rates, *setting))
    slow = f"over {SLOW_SECONDS:.0f} s"
    heads = columns(
        *("run", "median, s:3", "90 %, s:3", slow, "completion tokens:1", "tokens/s with prefill:1"),
        *("cold prefill, s:3", "decode tokens/s:1", "samples", "batch", "concurrency"),
    )
    text = (
        "Medians over answered samples, by the runs' own clocks; prefill by probes of one token on a cold cache. Only "
        "comparable at one batch size, one concurrency and on one machine."
    )
    tables = [Table("Time per sample", heads, rows, conditions(ours))]
    for run in ours:
        if run.probes:
            lengths = [
                row(f"{part.least_tokens:,}+", part.median_tokens, part.median_seconds, part.num_probes)
                for part in prefill_by_length(run.probes.values())
            ]
            heads = columns("prompt tokens", "median tokens:0", "median prefill, s:3", "probes")
            tables.append(Table(f"Prefill of {run.name}, by length of the prompt", heads, lengths, conditions([run])))
    return Section("Time", text, tables)
