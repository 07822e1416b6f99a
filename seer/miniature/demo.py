"""The demo: a small trained model answers questions about one document live, then 100 held-out questions, then reports.

console = Console()
run_demo(SHIPPED, None, Path("runs/demo"), console, make_printer=partial(TracePrinter, console))
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from seer.evaluation.analysis.scored_run import ScoredRun, load_run
from seer.evaluation.benchmarks.longbench import read_data
from seer.evaluation.reports.build import build_report, write_report
from seer.evaluation.runs.sweep import Progress, no_progress
from seer.miniature import controls as miniature
from seer.miniature.model import ROUNDS
from seer.miniature.parse import pick_questions, read_document
from seer.miniature.world import STYLE, Question
from seer.models.checkpoint import weights_digest
from seer.schema import Answer, Document, Step
from seer.web.tables import Case, Picture, Report, Section
from seer.web.trace import write_trace
from seer.web.wording import cite, step_text, tokens_line

if TYPE_CHECKING:
    from rich.console import Console

DOCUMENT = Path(__file__).parent.parent / "data" / "miniature.txt"
"""The document that is read by default."""
NUM_QUESTIONS = 5
NUM_SCORED = 100


class ReadingPrinter(Protocol):
    """Shows the reading of one question while it runs."""

    def __call__(self, step: Step) -> None:
        """Show one step as soon as it is complete."""

    def outcome(self, answer: Answer) -> None:
        """Show the citations and the cost of the finished answer."""


@dataclass(frozen=True)
class DemoReading:
    """A question about the document and the model's answer."""

    question: Question
    answer: Answer

    @property
    def is_correct(self) -> bool:
        """Whether the answer is exactly the expected one."""
        return self.answer.text.strip() == self.question.answer


def run_demo(
    model: Path,
    document_file: Path | None,
    out: Path,
    console: Console,
    *,
    make_printer: Callable[[Document], ReadingPrinter],
    report: bool = True,
    num_scored: int = NUM_SCORED,
    progress: Progress = no_progress,
) -> list[DemoReading]:
    """Ask questions about one document, score the model on a held-out world and write the report.

    `make_printer` builds the printer of each reading for its document. Returns the questions with their answers;
    writes the traces, the scored run and report.html to `out`.
    """
    from seer.reading.policy import ReadingPolicy
    from seer.reading.reader import Reader
    from seer.rendering import render_text

    started = time.perf_counter()
    source = read_document(document_file or DOCUMENT)
    document = render_text(source.text, STYLE, name=source.id)
    policy = ReadingPolicy(rounds=ROUNDS, max_new_tokens=max(miniature.MAX_NEW_TOKENS.values()))
    reader = Reader.from_checkpoint(model, policy, device="cpu")
    console.print(f"{source.id}: {len(source.lines)} lines on {len(document.pages)} pages, shown as pictures:\n")
    console.print(source.text)
    readings = []
    for number, question in enumerate(pick_questions(source, NUM_QUESTIONS), 1):
        console.print(f"\n{number}. {question.text}   ({question.kind})")
        printer = make_printer(document)
        answer = reader.ask(document, question.text, printer)
        printer.outcome(answer)
        readings.append(DemoReading(question, answer))
        console.print(f"   truth  {'right' if readings[-1].is_correct else f'wrong: it is {question.answer}'}")
        write_trace(out / "questions" / f"{number}-{question.kind}", document, question.text, answer)
    run, world = _score(model, out, num_scored, progress)
    _print_scores(console, run, world)
    if report:
        for path in write_report(_report(readings, document, run, world), out):
            console.print(str(path))
    right = sum(one.is_correct for one in readings)
    console.print(f"{right} of {len(readings)} questions right; {time.perf_counter() - started:.0f} s in all")
    return readings


def _score(model: Path, out: Path, number: int, progress: Progress) -> tuple[ScoredRun, Path]:
    """Run the held-out questions as a benchmark; every model has its own folder. Returns the run and the world's folder."""
    # The digest in the folder's name keeps another model's run from being reused.
    folder = out / f"test-{weights_digest(model)}-n{number}"
    world = miniature.write_world(folder / miniature.DATA, number, seed=0)
    only = miniature.CONTROLS[:1]
    miniature.run_controls(
        world, folder, model=model, iso_model=None, seed=0, controls=only, device="cpu", progress=progress
    )
    return load_run(folder / only[0].name), world


def _print_scores(console: Console, run: ScoredRun, world: Path) -> None:
    """Print exact answers and page F1 by kind of question."""
    from rich.table import Table

    from seer.evaluation.scoring.pages import PageMetric, page_score

    gold = miniature.gold_pages(world)
    table = Table(title=f"{run.report.num_inputs} questions of a held-out world")
    table.add_column("kind")
    for name in ("exact answers", "page F1", "questions"):
        table.add_column(name, justify="right")
    for kind, by_id in run.predictions.items():
        pairs = [(one.selected_pages, gold[one.id]) for one in by_id.values()]
        share = run.report.tasks[kind].score
        table.add_row(kind, f"{share:.0f} %", f"{page_score(pairs, PageMetric.ALL_SAMPLES).f1:.2f}", str(len(pairs)))
    table.add_section()
    every = [(one.selected_pages, gold[one.id]) for one in run.each()]
    whole = page_score(every, PageMetric.ALL_SAMPLES).f1
    table.add_row("all", f"{100 * miniature.exact_match(run):.0f} %", f"{whole:.2f}", str(len(every)))
    console.print(table)


def _report(readings: list[DemoReading], document: Document, run: ScoredRun, world: Path) -> Report:
    right = sum(one.is_correct for one in readings)
    built = build_report([run], gold_pages=miniature.gold_pages(world), records=read_data(world)[0])
    text = (
        "Each reading in order: the pages as images with the selected ones framed, the retrieved text and the answer."
    )
    live = Section(
        f"Questions about {document.name}",
        text,
        cases=[_case(one, document, number) for number, one in enumerate(readings, 1)],
    )
    points = [
        f"{document.name}: {right} of {len(readings)} questions right",
        f"{100 * miniature.exact_match(run):.1f} % of {run.report.num_inputs} questions of a held-out world exactly right",
    ]
    return Report("Seer in miniature", points, [live, *built.sections], built.runs)


def _case(one: DemoReading, document: Document, number: int) -> Case:
    """One reading as a case of the report: page images and the steps of the trace."""
    question, answer = one.question, one.answer
    pictures = [
        Picture(page.number, page.png(), page.number in answer.selected_pages, page.number in question.pages)
        for page in document.pages
    ]
    fields: list[tuple[str, str]] = [(step.name, step_text(step)) for step in answer.trace]
    fields += [("cited", cite(citation, document)) for citation in answer.citations]
    fields += [
        ("truth", f"{'right' if one.is_correct else 'wrong'}: {question.answer}"),
        ("tokens", tokens_line(answer)),
    ]
    return Case(f"{number}. {question.text} ({question.kind})", fields, pictures)
