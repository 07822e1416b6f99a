"""Results of `seer eval` as tables in a terminal, on standard error if standard output is reserved for JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from seer.evaluation.analysis.tokens import TokenTable
    from seer.evaluation.runs.labels import LabelReport
    from seer.evaluation.runs.score import ScoreReport
    from seer.evaluation.runs.score_docqa import DocQAReport


def show_scores(report: ScoreReport, as_json: bool) -> None:
    """Print the scores as a table and, if requested, as JSON on standard output."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=_title(report), caption=_caption(report))
    table.add_column("task", no_wrap=True)
    table.add_column("metric", no_wrap=True)
    for name in ("score", "inputs", "failed", "gaps"):
        table.add_column(name, justify="right")
    for category, mean in report.categories.items():
        for name, task in report.tasks.items():
            if task.task.category == category:
                counts = (len(task.sample_scores), task.num_failures, task.num_missing)
                table.add_row(name, task.task.metric.value, f"{task.score:.2f}", *map(str, counts))
        table.add_row(f"= {category}", "mean", f"{mean:.2f}", style="bold")
        table.add_section()
    table.add_row("= all", "mean of categories", f"{report.macro:.2f}", "", str(report.failures), style="bold")
    Console(stderr=as_json, highlight=False, markup=False).print(table)
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False))


def _title(report: ScoreReport) -> str:
    gaps = sum(report.gaps.values())
    if gaps:
        return f"{report.benchmark.name}, PARTIAL: {gaps} inputs missing"
    if report.num_inputs < report.num_benchmark:
        return f"{report.benchmark.name}, {report.num_inputs} of its {report.num_benchmark} inputs"
    return report.benchmark.name


def _caption(report: ScoreReport) -> str:
    from seer.evaluation.runs.score import scored_with

    lines = [
        f"post-processing {report.postprocess.value}, code ratio {report.code_ratio.value}",
        f"prompts {report.manifest.get('prompts', 'unknown')}, {report.failures} failed inputs count as 0",
        f"scored with {scored_with()}",
    ]
    if report.deep:
        lines.append(f"{report.deep} samples count as 0 because the published scorer fails on them")
    return "\n".join(lines)


def show_docqa(report: DocQAReport, as_json: bool) -> None:
    """Print accuracy and F1, overall and by group."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"Document QA, protocol {report.protocol.value}",
        caption=f"{report.overall.num_failures} failed inputs count as 0",
    )
    table.add_column("group", no_wrap=True)
    for name in ("accuracy", "F1", "questions"):
        table.add_column(name, justify="right")
    for name, group in {"all": report.overall, **report.groups}.items():
        table.add_row(name, f"{100 * group.accuracy:.2f}", f"{100 * group.f1:.2f}", str(group.num_questions))
    Console(stderr=as_json, highlight=False, markup=False).print(table)


def show_labels(report: LabelReport, as_json: bool) -> None:
    """Print how many inputs and pages were labelled, and why the others were not."""
    from rich.console import Console
    from rich.table import Table

    counts = report.to_json()
    table = Table(
        title=f"Page labels of {counts['inputs']} inputs",
        caption=f"the first that failed: {report.failed[0].detail}" if report.failed else None,
    )
    table.add_column("count of", no_wrap=True)
    table.add_column("number", justify="right")
    table.add_row("labelled inputs", f"{counts['labelled']:,}")
    table.add_row("of these, without a necessary page", f"{counts['labelled_empty']:,}")
    table.add_row("pages judged", f"{counts['pages']:,}")
    table.add_row("necessary pages", f"{counts['relevant_pages']:,}")
    for reason, number in counts["unlabelled"].items():
        table.add_row(f"not labelled: {reason}", f"{number:,}")
    for name, number in counts["replies"].items():
        table.add_row(name.replace("_", " "), f"{number:,}")
    table.add_row("calls, earlier runs included", f"{counts['calls']:,}")
    table.add_row("tokens, earlier runs included", f"{counts['tokens']:,}")
    for name, value in counts.get("agreement", {}).items():
        shown = f"{value:.3f}" if isinstance(value, float) else str(value)
        table.add_row(f"against the reference: {name.replace('_', ' ')}", shown)
    Console(stderr=as_json, highlight=False, markup=False).print(table)


def show_tokens(tables: Mapping[str, TokenTable], num_inputs: int, counter: str, style: str, as_json: bool) -> None:
    """Print mean prompt tokens over tasks, with a row for each way of reading."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(
        title=f"Prompt tokens of {num_inputs} inputs, means over {len(tables['text'].tasks)} tasks",
        caption=f"counted by {counter}, page style {style}\nratio: mean over tasks of full text / prompt\n"
        "dearer: tasks whose prompts need more tokens than their full text",
    )
    shown.add_column("reading", no_wrap=True)
    for name in ("textual", "visual", "retrieved", "prompt", "ratio", "dearer", "left out"):
        shown.add_column(name, justify="right")
    for name, table in tables.items():
        row = table.overall
        means = (f"{mean:,.0f}" for mean in (row.textual, row.visual, row.retrieved, row.prompt))
        shown.add_row(name, *means, f"{row.compression:.2f}", str(table.num_dearer), str(row.num_left_out))
    Console(stderr=as_json, highlight=False, markup=False).print(shown)
