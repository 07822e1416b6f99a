"""What `seer-train inspect` shows: every token of a sample with its class and its weight, in the terminal or as HTML.

Everything that comes from data is escaped: a document cannot colour the terminal or write a tag.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seer.protocol.encoding import CLASSES, Encoder
from seer.schema import LossClass
from train.data.dataset import Rejection, Sample

COLOURS = {
    LossClass.PROMPT: ("bright_black", "#8a8f98"),
    LossClass.CALL: ("bold magenta", "#a3369b"),
    LossClass.STRUCTURE: ("magenta", "#c77fc2"),
    LossClass.OBSERVATION: ("blue", "#4a74b8"),
    LossClass.THINK: ("yellow", "#a5791c"),
    LossClass.ANSWER: ("bold green", "#2c7d3f"),
    LossClass.STOP: ("bold red", "#b83a3a"),
}
"""Terminal style and HTML colour of each class."""


@dataclass(frozen=True)
class Span:
    """Tokens of one class and weight, side by side."""

    text: str
    loss_class: LossClass
    weight: float
    tokens: int


def spans(sample: Sample, encoder: Encoder) -> list[Span]:
    """A sample as runs of like tokens; a page's placeholders become one mark."""
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


def _alike(sample: Sample, first: int, other: int) -> bool:
    return all(field[first] == field[other] for field in (sample.classes, sample.weights, sample.types))


def visible(text: str) -> str:
    """Control characters as visible signs: no escape sequence reaches the terminal."""
    signs = {"\n": "⏎\n", "\t": "⇥\t"}
    return "".join(
        signs.get(c) or (c if c.isprintable() else f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}")
        for c in text
    )


def to_terminal(results: Iterable[Sample | Rejection], encoder: Encoder) -> None:
    """Print samples, coloured by class; learned tokens are underlined."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text.assemble(*((f" {c.value} ", COLOURS[c][0] + " reverse") for c in CLASSES)))
    for result in results:
        if isinstance(result, Rejection):
            console.print(Text(f"\n── {visible(result.id)}: rejected, {result.reason}: {result.detail}", "red"))
            continue
        console.print(Text(f"\n── {visible(result.id)}: {describe(result)}", "bold"))
        parts = [
            (visible(s.text), COLOURS[s.loss_class][0] + (" underline" if s.weight else ""))
            for s in spans(result, encoder)
        ]
        console.print(Text.assemble(*parts), soft_wrap=True)


def describe(sample: Sample) -> str:
    learned = int((sample.weights > 0).sum())
    return (
        f"{len(sample)} tokens, {sample.vision_tokens} of them vision in {len(sample.grid)} pages; {learned} learned "
        f"({learned / len(sample):.1%}), weight {sample.weights.sum():g}"
    )


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Samples</title><style>
body {{ font: 15px/1.6 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
.sample {{ white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.7 ui-monospace, monospace;
  border-left: 3px solid #ddd; padding-left: 1rem; }}
.learned {{ text-decoration: underline; text-underline-offset: 3px; }}
.legend span {{ margin-right: 1.2em; }}
{colours}
</style></head><body><h1>What is learned</h1>
<p class="legend">{legend}</p><p>Underlined tokens have a weight above 0; point at one to see it.</p>
{samples}
</body></html>
"""


def to_html(results: Sequence[Sample | Rejection], encoder: Encoder) -> str:
    """A self-contained page."""
    body = []
    for result in results:
        body.append(f"<h2>{html.escape(visible(result.id))}</h2>")
        if isinstance(result, Rejection):
            body.append(f"<p>rejected, {html.escape(result.reason)}: {html.escape(result.detail)}</p>")
            continue
        body.append(
            f"<p>{html.escape(describe(result))}</p><div class='sample'>{''.join(map(_html_span, spans(result, encoder)))}</div>"
        )
    return PAGE.format(
        colours="\n".join(f".{c.value} {{ color: {COLOURS[c][1]}; }}" for c in CLASSES),
        legend="".join(f"<span class='{c.value}'>{c.value}</span>" for c in CLASSES),
        samples="\n".join(body),
    )


def _html_span(span: Span) -> str:
    learned = " learned" if span.weight else ""
    title = f"{span.loss_class.value}, weight {span.weight:g}, {span.tokens} tokens"
    return f"<span class='{span.loss_class.value}{learned}' title='{title}'>{html.escape(visible(span.text))}</span>"
