"""Sections of a report with single inputs: failures by cause, gains and losses, and pages with their selection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seer.evaluation.analysis.scored_run import ScoredRun
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.benchmarks.tasks import build_context
from seer.evaluation.reports.notes import conditions
from seer.rendering.styles import with_newline
from seer.schema import Prediction, Status, Step
from seer.web.tables import Case, Picture, Section, Table, columns, row
from seer.web.wording import step_text

NUM_CASES = 4
"""Number of gains, of losses and of failures that a section shows."""
GOOD = 0.5
"""Minimum score of a sample that counts as a success."""
MAX_PICTURES = 12
"""Maximum number of pages in a case. For longer documents, only selected and labelled pages are shown."""
_TEXT_LIMIT = 600


def failures_section(runs: Sequence[ScoredRun]) -> Section | None:
    """Return the section on failed inputs by cause; None if no input of our runs failed."""
    rows, cases = [], []
    ours = [run for run in runs if run.is_ours]
    for run in ours:
        failed = [one for one in run.each() if one.status is Status.FAILED]
        # Shortened causes are grouped, since long ones often end with details of a single input.
        causes: dict[str, int] = {}
        for one in failed:
            causes[_shorten(one.cause, 120)] = causes.get(_shorten(one.cause, 120), 0) + 1
        rows += [row(run.name, cause, number) for cause, number in sorted(causes.items(), key=lambda item: -item[1])]
        cases += [Case(f"{run.name}: {one.id}", [*_question(one), ("cause", one.cause)]) for one in failed[:NUM_CASES]]
    if not rows:
        return None
    return Section(
        "Failures",
        "",
        [Table("Causes", columns("run", "cause", "inputs"), rows, conditions(ours))],
        cases=cases,
    )


def gallery_section(runs: Sequence[ScoredRun]) -> Section | None:
    """Return the largest gains and losses of the second run against the first, or the best and worst of a single run."""
    first, second = runs[0], runs[1] if len(runs) > 1 else None
    if second is None:
        if not first.is_ours:
            return None
        ranked = [
            (score, name, identifier)
            for name, by_id in first.sample_scores().items()
            for identifier, score in by_id.items()
        ]
        heading = "Best and worst"
    else:
        theirs = second.sample_scores()
        ranked = [
            (theirs[name][identifier] - score, name, identifier)
            for name, by_id in first.sample_scores().items()
            for identifier, score in by_id.items()
            if identifier in theirs.get(name, {})
        ]
        ranked = [entry for entry in ranked if entry[0]]  # Equal scores are neither gains nor losses.
        heading = f"Largest gains and losses of {second.name} against {first.name}"
    ranked.sort(key=lambda entry: (-entry[0], entry[1], entry[2]))
    # The second slice starts after the first, so a short list has no case twice.
    chosen = ranked[:NUM_CASES] + ranked[max(NUM_CASES, len(ranked) - NUM_CASES) :]
    cases = [
        _case(name, identifier, difference, [run for run in (first, second) if run])
        for difference, name, identifier in chosen
    ]
    cases = [case for case in cases if case.fields]
    return Section("Cases", heading + ", verbatim.", cases=cases) if cases else None


def pages_section(
    run: ScoredRun, records: Sequence[LongBenchRecord], gold: Mapping[str, tuple[int, ...]]
) -> Section | None:
    """Return the pages of the best and the worst inputs of each task with their selection; None without records."""
    if not run.is_ours or not records:
        return None
    by_id = {(record.task, record.id): record for record in records}
    good, bad = [], []
    for name, scores in run.sample_scores().items():
        ranked = sorted((one for one in scores if (name, one) in by_id), key=lambda one: (-scores[one], one))
        # `ranked` goes from the best to the worst score, so the failures are taken from its end.
        good += [_page_case(run, by_id[name, one], gold) for one in ranked[:1] if scores[one] >= GOOD]
        bad += [_page_case(run, by_id[name, one], gold) for one in reversed(ranked[-NUM_CASES:]) if scores[one] < GOOD]
    text = f"From {run.name}: a success of each task, then up to {NUM_CASES} failures of each. A frame marks selected "
    cases = [case for case in [*good, *bad] if case.fields]
    return Section("Pages and selections", f"{text}pages, a dashed frame missed ones.", cases=cases) if cases else None


def _page_case(run: ScoredRun, record: LongBenchRecord, gold: Mapping[str, tuple[int, ...]]) -> Case:
    from seer.rendering import render_text

    case = _case(record.task, record.id, 0.0, [run])
    if not case.fields:
        return case
    selected = run.predictions[record.task][record.id].selected_pages
    wanted = gold.get(record.id, ())
    task = run.report.benchmark.find(record.task)
    style = with_newline(run.style, task.newline)
    document = render_text(build_context(task, record.input, record.context), style, name=record.id)
    every = [
        page for page in document.pages if len(document.pages) <= MAX_PICTURES or page.number in {*selected, *wanted}
    ]
    pictures = [
        Picture(page.number, page.png(), page.number in selected, page.number in wanted)
        for page in every[:MAX_PICTURES]
    ]
    steps = map(_step_field, run.predictions[record.task][record.id].trace)
    return Case(case.title, [*case.fields, *(field for field in steps if field)], pictures)


def _step_field(step: Step) -> tuple[str, str] | None:
    """Return a step as a labelled field; None for steps whose content the case shows elsewhere.

    The question, the answer and the pages have their own fields. Unknown steps are shown by name.
    """
    if step.name == "select":
        return "selected", f"pages {', '.join(map(str, step.pages))}" if step.pages else "no page"
    if step.name == "reason":
        return "reasoning", _shorten(step.text, _TEXT_LIMIT)
    if step.name in ("look", "retrieve", "answer"):
        return None
    return step.name, _shorten(step_text(step), _TEXT_LIMIT)


def _case(task: str, identifier: str, difference: float, runs: Sequence[ScoredRun]) -> Case:
    """Return the question, the answers and each run's prediction of one input; without fields if no run has a record."""
    held = [(run, run.predictions[task][identifier]) for run in runs if identifier in run.predictions.get(task, {})]
    if not held:
        return Case("", [])
    fields = [*_question(held[0][1]), ("answers", " / ".join(held[0][1].answers))]
    for run, one in held:
        score = 100 * run.report.tasks[task].sample_scores[identifier]
        pages = f", pages {', '.join(map(str, one.selected_pages))} of {one.pages}" if one.selected_pages else ""
        fields.append((f"{run.name}: {score:.1f}{pages}", _shorten(one.pred or f"failed: {one.cause}", _TEXT_LIMIT)))
    shown = f" ({100 * difference:+.1f})" if len(runs) > 1 else ""
    name = identifier if identifier.startswith(task) else f"{task} {identifier}"
    return Case(f"{name}{shown}", [(label, _shorten(text, _TEXT_LIMIT)) for label, text in fields])


def _question(prediction: Prediction) -> list[tuple[str, str]]:
    """Return the question as sent, from the trace. Long questions keep their end, which follows the instruction."""
    text = next((question for step in prediction.trace if (question := step.inputs.get("question"))), "")
    if not isinstance(text, str) or not text:
        return []
    return [("question", text if len(text) <= _TEXT_LIMIT else f"… {text[-_TEXT_LIMIT:]}")]


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]} … ({len(text):,} characters)"
