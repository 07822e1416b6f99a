"""What a person sees in a terminal: the trace of a reading as it happens, and its outcome in a few lines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from seer.schema import Answer, Citation, Document, Status, Step, Turn

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

STRIP_SQUARES = 50


class TracePrinter:
    """Prints each turn when it is said. Document and model text is printed as text: markup in it does nothing."""

    def __init__(self, console: Console, document: Document) -> None:
        self.console, self.document = console, document
        self._streamed = False

    def text(self, piece: str) -> None:
        """Print a piece of the last stage's text as it comes; its turns are not printed again."""
        self._streamed = True
        self.console.print(piece, end="", soft_wrap=True)

    def __call__(self, step: Step) -> None:
        from rich.text import Text

        turn = step.turn
        if turn.kind == "prompt":
            self._line("look", what_is_shown(turn))
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
            self._line("reason", _shorten(turn.text, 400), step)
        else:
            self._line("answer", turn.text, step)

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


def what_is_shown(prompt: Turn) -> str:
    if not prompt.pages:
        return "the whole text"
    return "1 page as a picture" if len(prompt.pages) == 1 else f"{len(prompt.pages)} pages as pictures"


def print_line(console: Console, line: Text) -> None:
    """Wrapped to fit a terminal; whole where it goes to a file or another program."""
    console.print(line, soft_wrap=not console.is_terminal)


def page_strip(pages: int, selected: tuple[int, ...]) -> Text:
    """The document as a row of small squares, the selected pages filled; of a long one a square is several pages."""
    from rich.text import Text

    strip = Text("          ")
    each = max(1, math.ceil(pages / STRIP_SQUARES))
    chosen = {(number - 1) // each for number in selected}
    for square in range(math.ceil(pages / each)):
        strip.append("■" if square in chosen else "□", "bold green" if square in chosen else "dim")
    if each > 1:
        strip.append(f" {each} pages each", "dim")
    return strip


def cite(citation: Citation, document: Document) -> str:
    """`report.pdf:p.12 (printed "8") "quote" verified`."""
    page = document.page(citation.page)
    printed = f' (printed "{page.label}")' if page.label else ""
    quote = _shorten(citation.quote, 120)
    name, number = (page.source, page.source_number) if page.source else (document.name, page.number)
    return f'{name}:p.{number}{printed} "{quote}" {"verified" if citation.verified else "NOT FOUND"}'


def print_outcome(console: Console, document: Document, answer: Answer) -> None:
    """Citations, then one line of tokens spent and saved."""
    from rich.text import Text

    for citation in answer.citations:
        print_line(console, Text(f"   cited  {cite(citation, document)}", "green" if citation.verified else "yellow"))
    if answer.status is Status.FAILED:
        print_line(console, Text(f"  failed  {answer.cause}", "bold red"))
    print_line(console, Text(f"  tokens  {tokens_line(answer)}", "dim"))


def tokens_line(answer: Answer) -> str:
    usage = answer.usage
    line = f"{usage.prompt:,} prompt ({usage.vision:,} vision, {usage.retrieved:,} retrieved), {usage.completion:,} completion"
    if usage.full_text:
        saved = usage.full_text - usage.prompt
        compared = "saved of" if saved >= 0 else "more than"
        line += f"; {abs(saved):,} {compared} the full text's {usage.full_text:,} ({usage.compression:.2f}x)"
    return f"{line}; {answer.seconds:.2f} s"


def _shorten(text: str, limit: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
