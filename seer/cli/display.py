"""Terminal output of a reading: its trace as it happens, then its outcome in a few lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seer.schema import Answer, Document, Status, Step
from seer.web.wording import (
    cite,
    describe_pages,
    describe_shown,
    make_page_strip,
    shorten,
    step_text,
    tokens_line,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

MAX_STEP_CHARACTERS = 400
"""Longest text of a step in the terminal, apart from the answer; the trace page shows all of it."""
MAX_NAME_CHARACTERS = 40


class TracePrinter:
    """Prints each step of any system as it ends. Document and model text is printed literally, without markup."""

    def __init__(self, console: Console, document: Document) -> None:
        self.console, self.document = console, document
        self._streamed = False

    def text(self, piece: str) -> None:
        """Print a streamed piece of the last stage's text; the steps made of it are not printed again."""
        self._streamed = True
        self.console.print(piece, end="", soft_wrap=True)

    def __call__(self, step: Step) -> None:
        """Print one step with its cost; a step with an unknown name shows its pages and outputs."""
        if step.name == "look":
            self._line("look", describe_shown(step), step)
        elif step.name == "select":
            self._line("select", describe_pages(step), step)
            self._pages_and_deviations(step)
        elif step.name == "retrieve":
            characters = sum(len(excerpt.text) for excerpt in step.excerpts)
            self._line("retrieve", f"{characters:,} characters of exact text" if step.excerpts else "no text", step)
        elif step.name in ("reason", "answer"):
            self._text_step(step)
        else:
            shown = step.model_copy(update={"deviations": ()})  # they have a separate line
            self._line(shorten(step.name, MAX_NAME_CHARACTERS), shorten(step_text(shown), MAX_STEP_CHARACTERS), step)
            self._pages_and_deviations(step)

    def outcome(self, answer: Answer) -> None:
        """Print the citations, a failure's cause and the tokens of the answer."""
        print_outcome(self.console, self.document, answer)

    def _text_step(self, step: Step) -> None:
        if self._streamed:
            self._line("", "", step)
        else:
            text = shorten(step.text, MAX_STEP_CHARACTERS) if step.name == "reason" else step.text
            self._line(step.name, text, step)

    def _pages_and_deviations(self, step: Step) -> None:
        from rich.text import Text

        if step.pages or step.name == "select":
            print_line(self.console, page_strip(len(self.document.pages), step.pages))
        if step.deviations:
            self.console.print(Text(f"          departs from the protocol: {', '.join(step.deviations)}", "yellow"))

    def _line(self, label: str, text: str, step: Step) -> None:
        from rich.text import Text

        line = Text(f"{label:>8}  ", "bold cyan")
        line.append(text.strip() or ("(empty)" if label else ""), "default")
        if step.usage.prompt:
            usage = step.usage
            cached = f", {usage.cached:,} from cache" if usage.cached else ""
            line.append(
                f"   [{usage.prompt:,} tokens in{cached}, {usage.completion:,} out, {step.seconds:.2f} s]", "dim"
            )
        print_line(self.console, line)


def print_line(console: Console, line: Text) -> None:
    """Print a line, wrapped only in a terminal: a file or another program receives it whole."""
    console.print(line, soft_wrap=not console.is_terminal)


def page_strip(pages: int, selected: tuple[int, ...]) -> Text:
    """A row of small squares for `pages` pages, those with selected pages filled; long documents share squares."""
    from rich.text import Text

    strip = make_page_strip(pages, selected)
    line = Text("          ")
    for is_filled in strip.filled:
        line.append("■" if is_filled else "□", "bold green" if is_filled else "dim")
    if strip.pages_per_square > 1:
        line.append(f" {strip.pages_per_square} pages each", "dim")
    return line


def print_outcome(console: Console, document: Document, answer: Answer) -> None:
    """Print the citations, a failure's cause, then one line of tokens spent and saved."""
    from rich.text import Text

    for citation in answer.citations:
        print_line(console, Text(f"   cited  {cite(citation, document)}", "green" if citation.verified else "yellow"))
    if answer.status is Status.FAILED:
        print_line(console, Text(f"  failed  {answer.cause}", "bold red"))
    print_line(console, Text(f"  tokens  {tokens_line(answer)}", "dim"))
