"""The output of `seer-train inspect`: every token of a sample with its class and weight, in the terminal or as HTML.

All text from data is escaped, so a document can neither send control sequences to the terminal nor write HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seer.protocol.encoding import CLASSES, Encoder
from seer.schema import LossClass
from seer.web.components import callout, loss_legend, loss_span, loss_text, note_line
from seer.web.html import Html, element, fragment, render_page
from train.data.dataset import RejectedTrajectory, TrainingSample

COLOURS = {
    LossClass.PROMPT: "bright_black",
    LossClass.CALL: "bold magenta",
    LossClass.STRUCTURE: "magenta",
    LossClass.OBSERVATION: "blue",
    LossClass.THINK: "yellow",
    LossClass.ANSWER: "bold green",
    LossClass.STOP: "bold red",
}
"""Terminal style of each class; the HTML page takes its colours from the shared stylesheet."""


@dataclass(frozen=True)
class Span:
    """Consecutive tokens of one class and weight."""

    text: str
    loss_class: LossClass
    weight: float
    tokens: int


def spans(sample: TrainingSample, encoder: Encoder) -> list[Span]:
    """Group a sample's tokens into spans of equal class, weight and type; the placeholders of a page become one mark."""
    found: list[Span] = []
    start, count = 0, len(sample)
    while start < count:
        end = start + 1
        while end < count and _alike(sample, start, end):
            end += 1
        ids = sample.ids[start:end].tolist()
        written = encoder.full.decode(ids, skip_special_tokens=False)
        text = f"⟨{end - start} vision tokens⟩" if sample.types[start] else written
        found.append(Span(text, CLASSES[sample.classes[start]], float(sample.weights[start]), end - start))
        start = end
    return found


def _alike(sample: TrainingSample, first: int, other: int) -> bool:
    return all(field[first] == field[other] for field in (sample.classes, sample.weights, sample.types))


def visible(text: str) -> str:
    """Replace control characters by visible signs, so that no escape sequence reaches the terminal."""
    signs = {"\n": "⏎\n", "\t": "⇥\t"}
    return "".join(
        signs.get(c) or (c if c.isprintable() else f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}")
        for c in text
    )


def to_terminal(results: Iterable[TrainingSample | RejectedTrajectory], encoder: Encoder) -> None:
    """Print samples to the terminal, coloured by class, with learned tokens underlined."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text.assemble(*((f" {c.value} ", COLOURS[c] + " reverse") for c in CLASSES)))
    for result in results:
        if isinstance(result, RejectedTrajectory):
            console.print(Text(f"\n── {visible(result.id)}: rejected, {result.reason}: {result.detail}", "red"))
            continue
        console.print(Text(f"\n── {visible(result.id)}: {describe(result)}", "bold"))
        parts = [
            (visible(s.text), COLOURS[s.loss_class] + (" underline" if s.weight else ""))
            for s in spans(result, encoder)
        ]
        console.print(Text.assemble(*parts), soft_wrap=True)


def describe(sample: TrainingSample) -> str:
    """One line of counts: tokens, vision tokens, pages, learned tokens, and the sum of weights."""
    learned = int((sample.weights > 0).sum())
    return (
        f"{len(sample)} tokens, {sample.vision_tokens} of them vision in {len(sample.grid)} pages; {learned} learned "
        f"({learned / len(sample):.1%}), weight {sample.weights.sum():g}"
    )


def to_html(results: Sequence[TrainingSample | RejectedTrajectory], encoder: Encoder) -> str:
    """Render samples as a self-contained page: learned tokens are underlined, and tooltips give class and weight."""
    return render_page(
        "Samples, token by token",
        loss_legend(),
        note_line("Underlined tokens have a weight above 0; point at one to see it."),
        (_sample_html(result, encoder) for result in results),
    )


def _sample_html(result: TrainingSample | RejectedTrajectory, encoder: Encoder) -> Html:
    heading = element("h2", visible(result.id))
    if isinstance(result, RejectedTrajectory):
        return fragment(heading, callout(f"rejected, {result.reason}: {result.detail}", tone="bad"))
    return fragment(heading, note_line(describe(result)), loss_text(map(_span_html, spans(result, encoder))))


def _span_html(span: Span) -> Html:
    title = f"{span.loss_class.value}, weight {span.weight:g}, {span.tokens} tokens"
    return loss_span(visible(span.text), span.loss_class, is_learned=span.weight > 0, title=title)
