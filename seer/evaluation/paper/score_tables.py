"""Tables of scores: main results, ablation, controls, end-to-end selectors, and recursive reading."""

from __future__ import annotations

import math
from collections.abc import Sequence

from seer.evaluation.analysis.scored_run import ScoredRun
from seer.evaluation.paper import published
from seer.evaluation.paper.loaded import Loaded
from seer.evaluation.paper.plan import FORCED
from seer.evaluation.paper.published import PublishedScores
from seer.evaluation.reports.cases import gallery_section
from seer.evaluation.runs.score import QA_TASKS
from seer.web.tables import Cell, Row, Section, Table, columns, row

MAIN = ("seer", "glyph")
CONTROLS = ("seer", "glyph", "iso", "k0")


def main_results(loaded: Loaded) -> Section:
    """Return table 1: the overall score and the tasks that table 10 leaves out."""
    tasks = [name for name in loaded.benchmark.tasks if name not in published.REMAINING_TASKS]
    return Section("Table 1: main results", "", [_task_scores(loaded, "Main results", tasks, with_macro=True)])


def remaining_tasks(loaded: Loaded) -> Section:
    """Return table 10: the remaining tasks."""
    tasks = [name for name in loaded.benchmark.tasks if name in published.REMAINING_TASKS]
    if not tasks:
        return Section(
            "Table 10: remaining tasks", f"Not applicable: table 1 has all tasks of {loaded.benchmark.name}."
        )
    return Section("Table 10: remaining tasks", "", [_task_scores(loaded, "Remaining tasks", tasks, with_macro=False)])


def _task_scores(loaded: Loaded, title: str, tasks: Sequence[str], *, with_macro: bool) -> Table:
    heads = columns("system", *(["mean of categories:2"] if with_macro else []), *(f"{task}:2" for task in tasks))

    def cells(run: ScoredRun) -> list[Cell]:
        scores: list[Cell] = [run.report.scores.get(task) for task in tasks]
        return [run.report.macro, *scores] if with_macro else scores

    papers = []
    for paper in (published.SCORES[name] for name in (*MAIN, "qwen3-8b")):
        known = [_published_task(paper, task) for task in tasks]
        if with_macro or any(score is not None for score in known):
            papers.append(row(paper.name, *([paper.macro] if with_macro else []), *known, kind="paper"))
    return loaded.table(title, heads, [*MAIN, *loaded.names("text")], cells, papers)


def _published_task(paper: PublishedScores, task: str) -> float | None:
    return paper.tasks.get(task)


def ablation(loaded: Loaded) -> Section:
    """Return table 3: Seer, and its parts taken away."""
    full = loaded.runs.get("seer")

    def cells(run: ScoredRun) -> list[Cell]:
        return [run.report.macro, None if full is None else run.report.macro - full.report.macro]

    base = published.SCORES["seer"].macro or 0.0
    papers = [
        row(paper.name, paper.macro, (paper.macro or 0.0) - base, kind="paper")
        for paper in (published.SCORES[name] for name in ("seer", "k0", "glyph", "iso"))
    ]
    heads = columns("variant", "mean of categories:2", "difference:+2")
    table = loaded.table("Ablation", heads, ["seer", "k0", "glyph", "iso"], cells, papers)
    text = "k0 withholds the retrieved text; glyph neither selects nor retrieves; iso is trained on the same data without both."
    return Section("Table 3: ablation", text, [table])


def chinese_tasks(loaded: Loaded) -> Section:
    """Return table 4: gains over Glyph on the tasks in Chinese."""
    tasks = [name for name in published.CHINESE_TASKS if name in loaded.benchmark.tasks]
    title = "Table 4: Chinese tasks"
    if not tasks:
        return Section(
            title, f"Not applicable: {loaded.benchmark.name} has none of {', '.join(published.CHINESE_TASKS)}."
        )
    seer, glyph = loaded.runs.get("seer"), loaded.runs.get("glyph")
    rows = []
    for task in tasks:
        ours = seer.report.scores.get(task) if seer else None
        theirs = glyph.report.scores.get(task) if glyph else None
        gain = ours - theirs if ours is not None and theirs is not None else None
        rows.append(row(task, ours, theirs, gain, published.GAINS_OVER_GLYPH[task]))
    heads = columns("task", "seer:2", "glyph:2", "difference:+2", "difference (paper):+2")
    return Section(title, "", [Table("Gains over Glyph", heads, rows, loaded.note(MAIN))])


def iso_control(loaded: Loaded) -> Section:
    """Return table 15: the iso-training control overall and on the question-answering tasks."""
    heads = columns("condition", "mean of categories:2", "mean of 7 QA tasks:2")
    papers = [
        row(paper.name, paper.macro, paper.qa_mean, kind="paper")
        for paper in (published.SCORES[name] for name in CONTROLS)
    ]
    table = loaded.table("Controls", heads, CONTROLS, lambda run: [run.report.macro, run.report.qa_mean], papers)
    return Section("Table 15: iso-training control", "", [table])


def iso_categories(loaded: Loaded) -> Section:
    """Return table 16: the iso-training control by category."""
    names = loaded.benchmark.categories
    heads = columns("condition", *(f"{name}:2" for name in names))
    table = loaded.table(
        "Controls by category",
        heads,
        ["seer", "glyph", "iso"],
        lambda run: [run.report.categories.get(name) for name in names],
    )
    text = "The paper's text gives single tasks only: LSHT 45.50 → 22.25 and SAMSum 32.82 → 9.60 from Glyph to the control."
    return Section("Table 16: control by category", text if loaded.is_longbench else "", [table])


def forced_selectors(loaded: Loaded) -> Section:
    """Return table 18: the same answering with other selectors, over the tasks that all of them completed."""
    names = ["seer", *(f"forced-{name}" for name in FORCED)]
    held = loaded.held(names)
    # A task counts only if every run that exists has all of its inputs.
    shared = [
        task
        for task in loaded.benchmark.tasks
        if held and all(task in run.report.tasks and task not in run.report.gaps for run in held)
    ]

    def cells(run: ScoredRun) -> list[Cell]:
        scores = [run.report.scores[task] for task in shared]
        return [mean(scores), *scores]

    papers = [row(name, score, *(None for _ in shared), kind="paper") for name, score in published.FORCED]
    heads = columns("selector", "mean of tasks:2", *(f"{task}:2" for task in shared))
    table = loaded.table("Selectors with the same answering", heads, names, cells, papers)
    text = f"Means over {len(shared)} tasks that all runs completed; each input has as many pages as Seer selected, at least one."
    return Section("Table 18: selectors end to end", text, [table])


def recursive_reading(loaded: Loaded) -> Section:
    """Return table 19: question answering, with predictions that other programs made."""
    tasks = [name for name in QA_TASKS if name in loaded.benchmark.tasks] or list(loaded.benchmark.tasks)
    names = ["seer", *loaded.names("text"), *loaded.names("foreign")]

    def cells(run: ScoredRun) -> list[Cell]:
        scores = [run.report.scores.get(task) for task in tasks]
        known = [score for score in scores if score is not None]
        return [mean(known) if len(known) == len(tasks) else None, *scores]

    papers: list[Row] = []
    for paper in (published.SCORES[name] for name in ("seer", "qwen3-8b", "rlm")):
        papers.append(row(paper.name, paper.qa_mean, *(paper.tasks.get(task) for task in tasks), kind="paper"))
    heads = columns("system", "mean:2", *(f"{task}:2" for task in tasks))
    table = loaded.table("Question answering", heads, names, cells, papers)
    return Section("Table 19: recursive language models", "", [table])


def cases(loaded: Loaded) -> Section:
    """Return table 20: the largest gains and losses of Seer against Glyph, verbatim."""
    title = "Table 20: cases"
    held = loaded.held(("glyph", "seer"))
    section = gallery_section(held) if held else None
    if section is None:
        return Section(title, loaded.note(("glyph", "seer")))
    return Section(title, f"{section.text} {' '.join(loaded.why_not(('glyph', 'seer')))}".strip(), cases=section.cases)


def mean(values: Sequence[float]) -> float | None:
    """Return the arithmetic mean; None without values."""
    return math.fsum(values) / len(values) if values else None
