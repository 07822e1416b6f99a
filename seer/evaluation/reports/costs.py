"""Sections of a report on costs: prompt tokens and latency."""

from __future__ import annotations

from collections.abc import Sequence

from seer.evaluation.analysis.latency import SLOW_SECONDS, latency_summary, prefill_by_length
from seer.evaluation.analysis.scored_run import ScoredRun
from seer.evaluation.analysis.tokens import TokenRow, token_table
from seer.evaluation.files import SESSIONS
from seer.evaluation.reports.notes import (
    PAPER_FIGURES,
    PAPER_FULL_TEXT_TOKENS,
    are_of_longbench,
    conditions,
    left_out,
)
from seer.web.tables import Bar, Cell, Chart, Section, Table, columns, row


def tokens_section(runs: Sequence[ScoredRun]) -> Section | None:
    """Return the section on prompt tokens (tables 2, 11 and 12); None if no run has counted tokens."""
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
        notes.append("The scripted engine without a model counts nearly every byte as a token, which favours images")
    text = (
        "Means of task means, by each run's own tokenizer. Compression is the mean over tasks of full text over prompt: "
        "above 1 is a saving. Samples that failed before a prompt was built are left out and counted."
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


def latency_section(runs: Sequence[ScoredRun]) -> Section | None:
    """Return the section on latency (tables 13 and 14), with the prefill of runs that have probes; None without timed runs."""
    # Runs with a recalling engine are left out: reused answers take no time.
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
        "Medians over answered samples, as recorded by the runs; prefill by probes of one token on a cold cache. Only "
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
