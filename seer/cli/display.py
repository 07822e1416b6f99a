"""Terminal output of a reading: its trace as it happens, then its outcome in a few lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seer.schema import Answer, Document, Status, Step
from seer.web.wording import cite, describe_prompt, make_page_strip, shorten, tokens_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class TracePrinter:
    """Prints each turn as it arrives. Document and model text is printed literally: markup in it has no effect."""

    def __init__(self, console: Console, document: Document) -> None:
        self.console, self.document = console, document
        self._streamed = False

    def text(self, piece: str) -> None:
        """Print a streamed piece of the last stage's text; the turns made of it are not printed again."""
        self._streamed = True
        self.console.print(piece, end="", soft_wrap=True)

    def __call__(self, step: Step) -> None:
        """Print one turn with its cost."""
        from rich.text import Text

        turn = step.turn
        if turn.kind == "prompt":
            self._line("look", describe_prompt(turn))
        elif turn.kind == "call":
            self._line("select", f"pages {list(turn.pages)}" if turn.pages else "no page", step)
            print_line(self.console, page_strip(len(self.document.pages), turn.pages))
            if step.deviations:
                self.console.print(Text(f"          departs from the protocol: {', '.join(step.deviations)}", "yellow"))
        elif turn.kind == "observation":
            characters = sum(len(excerpt.text) for excerpt in turn.excerpts)
            self._line("retrieve", f"{characters:,} characters of exact text" if turn.excerpts else "no text")
        elif self._streamed:
            self._line("", "", step)
        elif turn.kind == "think":
            self._line("reason", shorten(turn.text, 400), step)
        else:
            self._line("answer", turn.text, step)

    def outcome(self, answer: Answer) -> None:
        """Print the citations, a failure's cause and the tokens of the answer."""
        print_outcome(self.console, self.document, answer)

    def _line(self, label: str, text: str, step: Step | None = None) -> None:
        from rich.text import Text

        line = Text(f"{label:>8}  ", "bold cyan")
        line.append(text.strip() or ("(empty)" if label else ""), "default")
        if step is not None and step.prompt_tokens:
            cached = f", {step.cached_tokens:,} from cache" if step.cached_tokens else ""
            spent = (
                f"   [{step.prompt_tokens:,} tokens in{cached}, {step.completion_tokens:,} out, {step.seconds:.2f} s]"
            )
            line.append(spent, "dim")
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
