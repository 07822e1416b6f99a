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
from seer.schema import Answer, Step, Turn
from seer.web.trace import trace_html, trace_markdown
from seer.web.wording import turn_text

DOCUMENT = make_document(["The baker is on page two.\n", "baker 482139\n"])


def two_rounds(request: Request) -> str:
    """Selects page 1, thinks, selects page 2, thinks, answers."""
    if request.constraint is not None and request.constraint.required:
        return f"<tool_call>{render_call((1,))}</tool_call>"
    if request.constraint is not None and len(request.prompt.turns) < 4:
        return f"<think>On page [two].</think><tool_call>{render_call((2,))}</tool_call>"
    return "<think>There it is.</think>\n482139<|user|>"


def read(rounds: int, stream: bool = False) -> tuple[str, Answer]:
    """What was printed, and the answer."""
    console = Console(file=io.StringIO(), highlight=False, markup=False, width=100)
    printer = TracePrinter(console, DOCUMENT)
    reader = Reader(ScriptedEngine(two_rounds, small_encoder()), policy=ReadingPolicy(rounds=rounds))
    answer = reader.ask(DOCUMENT, "Which code?", printer, printer.text if stream else None)
    return console.file.getvalue(), answer


def test_every_turn_is_printed_in_order():
    printed, _ = read(rounds=2)
    labels = [line[:8].strip() for line in printed.splitlines()]
    assert [label for label in labels if label] == [
        *("look", "select", "retrieve", "reason", "select", "retrieve", "reason", "answer")
    ]
    assert "reason  On page [two].\n" in printed
    strips = [line.strip() for line in printed.splitlines() if "□" in line]
    assert strips == ["■□", "□■"]


def test_pages_are_counted_as_one_says_it():
    for pages, said in ((1, "1 page as a picture"), (2, "2 pages as pictures")):
        console = Console(file=io.StringIO())
        turn = Turn(kind="prompt", text="Which code?", pages=tuple(range(1, pages + 1)))
        TracePrinter(console, DOCUMENT)(Step(turn=turn))
        assert console.file.getvalue() == f"    look  {said}\n"
        assert turn_text(Step(turn=turn)) == f"{said}. Which code?"


@pytest.mark.parametrize("pages", [1, 2, 50, 51, 120, 999])
def test_every_selected_page_of_any_document_is_seen_in_the_strip(pages):
    places = []
    for number in range(1, pages + 1):
        strip = page_strip(pages, (number,)).plain
        assert len(strip) < 80 and strip.count("■") == 1
        assert ("pages each" in strip) == (pages > 50)
        squares = strip.split()[0]
        places.append(squares.index("■"))
    assert places == sorted(places) and set(places) == set(range(len(squares)))


@pytest.mark.parametrize("terminal", [False, True])
def test_what_goes_to_a_file_is_not_broken_into_lines(terminal):
    console = Console(file=io.StringIO(), width=40, force_terminal=terminal, color_system=None)
    answer = read(rounds=2)[1]
    TracePrinter(console, DOCUMENT)(Step(turn=Turn(kind="answer", text="harbour " * 20), prompt_tokens=9))
    print_outcome(console, DOCUMENT, answer)
    lines = console.file.getvalue().splitlines()
    assert (max(map(len, lines)) <= 40) == terminal
    assert terminal or [line[:8].strip() for line in lines] == ["answer", "cited", "tokens"]


@pytest.mark.parametrize("rounds", [2, 3])
def test_streamed_text_is_printed_once_and_what_no_engine_streamed_all_the_same(rounds):
    """With a third round left, the model answers where it might have called again: that is not streamed."""
    printed, answer = read(rounds, stream=True)
    said = ["On page [two].", "There it is.", "482139"]
    assert [printed.count(text) for text in said] == [1, 1, 1]
    assert sorted(said, key=printed.index) == said
    assert answer.text == "482139"


def test_a_report_shows_every_turn_in_order():
    _, answer = read(rounds=2)
    kinds = ["prompt", "call", "observation", "think", "call", "observation", "think", "answer"]
    page = trace_html(DOCUMENT, "Which code?", answer, {})
    assert [part.split("<")[0] for part in page.split("<h3>")[1:]] == kinds
    lines = trace_markdown(DOCUMENT, "Which code?", answer).splitlines()
    assert [line.removeprefix("### ") for line in lines if line.startswith("### ")] == kinds
