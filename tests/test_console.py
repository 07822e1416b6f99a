"""What a person sees of a reading, live and afterwards: every turn once, in order, streamed or not."""

from __future__ import annotations

import io

import pytest
from fakes import make_document, small_encoder
from rich.console import Console

from seer.apps.trace_report import trace_html, trace_markdown
from seer.console import TracePrinter
from seer.engines.base import Request
from seer.engines.scripted import ScriptedEngine
from seer.policy import ReadingPolicy
from seer.protocol import render_call
from seer.reading import Reader
from seer.schema import Answer

DOCUMENT = make_document(["The baker is on page two.\n", "baker 482139\n"])


def two_rounds(request: Request) -> str:
    """Selects page 1, thinks, selects page 2, thinks, answers."""
    if request.constraint is not None and request.constraint.required:
        return f"<tool_call>{render_call((1,))}</tool_call>"
    if request.constraint is not None and len(request.turns) < 4:
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
