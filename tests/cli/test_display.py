"""What a person sees of a reading, live and afterwards: every turn once, in order, streamed or not."""

from __future__ import annotations

import io

import pytest
from fakes import make_document, small_encoder
from rich.console import Console

from seer.cli.display import TracePrinter, page_strip, print_outcome
from seer.engines.base import Request
from seer.engines.scripted import ScriptedEngine
from seer.protocol.call import render_call
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import Reader
from seer.schema import Answer, Status, Step, StepUsage
from seer.web.trace import trace_html, trace_markdown

DOCUMENT = make_document(["The baker is on page two.\n", "baker 482139\n"])


def two_rounds(request: Request) -> str:
    """Selects page 1, thinks, selects page 2, thinks, answers."""
    if request.constraint is not None and request.constraint.required:
        return f"<tool_call>{render_call((1,))}</tool_call>"
    if request.constraint is not None and len(request.prompt.turns) < 4:
        return f"<think>On page [two].</think><tool_call>{render_call((2,))}</tool_call>"
    return "<think>There it is.</think>\n482139<|user|>"


def read(rounds: int, stream: bool = False) -> tuple[str, Answer]:
    """The terminal output of a reading, and its answer."""
    console = Console(file=io.StringIO(), highlight=False, markup=False, width=100)
    printer = TracePrinter(console, DOCUMENT)
    reader = Reader(ScriptedEngine(two_rounds, small_encoder()), policy=ReadingPolicy(rounds=rounds))
    answer = reader.ask(DOCUMENT, "Which code?", printer, printer.text if stream else None)
    return console.file.getvalue(), answer


def test_trace_printer_prints_every_step_in_order():
    output, _ = read(rounds=2)
    labels = [line[:8].strip() for line in output.splitlines()]
    assert [label for label in labels if label] == [
        *("look", "select", "retrieve", "reason", "select", "retrieve", "reason", "answer")
    ]
    assert "reason  On page [two].\n" in output
    strips = [line.strip() for line in output.splitlines() if "□" in line]
    assert strips == ["■□", "□■"]


@pytest.mark.parametrize(
    ("pages", "shown"), [((), "the whole text"), ((1,), "1 page as a picture"), ((1, 2), "2 pages as pictures")]
)
def test_trace_printer_look_counts_pages(pages, shown):
    assert printed(Step(name="look", inputs={"question": "Which code?"}, pages=pages)) == [f"    look  {shown}"]


# ── Steps of other systems ───────────────────────────────────────────────────────────────────────


def printed(*steps: Step, width: int = 200) -> list[str]:
    """The lines that a trace printer makes of these steps."""
    console = Console(file=io.StringIO(), highlight=False, markup=True, width=width)
    printer = TracePrinter(console, DOCUMENT)
    for step in steps:
        printer(step)
    return console.file.getvalue().splitlines()


def test_trace_printer_shows_name_pages_outputs_and_cost_of_unknown_steps():
    navigate = Step(
        name="navigate",
        inputs={"query": "the baker"},
        outputs={"scores": [0.25, 0.75], "note": "see [bold]page two[/bold]", "raw": "hidden"},
        pages=(2,),
        usage=StepUsage(prompt=1200, completion=7),
        seconds=0.5,
        deviations=("no_reason",),
    )
    assert printed(navigate) == [
        "navigate  pages [2] scores: [0.25, 0.75] note: see [bold]page two[/bold]   [1,200 tokens in, 7 out, 0.50 s]",
        "          □■",
        "          departs from the protocol: no_reason",
    ]


def test_trace_printer_shows_inputs_of_unknown_steps_without_outputs():
    assert printed(Step(name="adjudicate", inputs={"votes": {"yes": 2}})) == ['adjudicate  votes: {"yes": 2}']
    assert printed(Step(name="wait")) == ["    wait  (empty)"]


def test_trace_printer_shortens_long_names_and_outputs_to_one_line():
    (line,) = printed(Step(name="n\n" * 50, outputs={"text": "word\n" * 1000}), width=1000)
    assert len(line) < 460 and line.endswith("…")


def test_trace_printer_prints_unknown_steps_while_text_is_streamed():
    console = Console(file=io.StringIO(), highlight=False)
    printer = TracePrinter(console, DOCUMENT)
    printer.text("4821")
    printer(Step(name="localize", outputs={"text": "line 1"}))
    assert "localize  line 1" in console.file.getvalue()


# ── Page strips, files and streams ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("pages", [1, 2, 50, 51, 120, 999])
def test_page_strip_shows_every_selected_page(pages):
    places = []
    for number in range(1, pages + 1):
        strip = page_strip(pages, (number,)).plain
        assert len(strip) < 80 and strip.count("■") == 1
        assert ("pages each" in strip) == (pages > 50)
        squares = strip.split()[0]
        places.append(squares.index("■"))
    assert places == sorted(places) and set(places) == set(range(len(squares)))


@pytest.mark.parametrize("terminal", [False, True])
def test_trace_printer_wraps_lines_only_in_a_terminal(terminal):
    console = Console(file=io.StringIO(), width=40, force_terminal=terminal, color_system=None)
    answer = read(rounds=2)[1]
    TracePrinter(console, DOCUMENT)(Step(name="answer", outputs={"text": "harbour " * 20}, usage=StepUsage(prompt=9)))
    print_outcome(console, DOCUMENT, answer)
    lines = console.file.getvalue().splitlines()
    assert (max(map(len, lines)) <= 40) == terminal
    assert terminal or [line[:8].strip() for line in lines] == ["answer", "cited", "tokens"]


@pytest.mark.parametrize("rounds", [2, 3])
def test_trace_printer_prints_streamed_and_other_text_once(rounds):
    """With a third round left, the model answers where it may also call again; that text is not streamed."""
    output, answer = read(rounds, stream=True)
    texts = ["On page [two].", "There it is.", "482139"]
    assert [output.count(text) for text in texts] == [1, 1, 1]
    assert sorted(texts, key=output.index) == texts
    assert answer.text == "482139"


def test_trace_report_shows_every_step_in_order():
    _, answer = read(rounds=2)
    kinds = ["look", "select", "retrieve", "reason", "select", "retrieve", "reason", "answer"]
    page = trace_html(DOCUMENT, "Which code?", answer, {})
    assert [part.split("<")[0] for part in page.split("<h3>")[1:]] == kinds
    lines = trace_markdown(DOCUMENT, "Which code?", answer).splitlines()
    assert [line.removeprefix("### ") for line in lines if line.startswith("### ")] == kinds


def test_print_outcome_of_a_failed_answer_shows_its_cause():
    console = Console(file=io.StringIO(), highlight=False, markup=False, width=100)
    print_outcome(console, DOCUMENT, Answer(text="", status=Status.FAILED, cause="the [server] hung up"))
    assert "  failed  the [server] hung up" in console.file.getvalue().splitlines()
