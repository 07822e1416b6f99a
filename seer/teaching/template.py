"""Template reasoning, written without a model: the evidence quoted page by page, then the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

UNANSWERABLE = "unanswerable"
"""The gold answer of records that the document does not answer."""


@dataclass(frozen=True)
class Wording:
    """The sentences of the template in one language."""

    quote: str
    conclusion: str
    nothing: str
    """The reasoning of a question that no page answers."""


ENGLISH = Wording(
    "Image {page} says: “{quote}”",
    "So the answer is: {answer}",
    "None of the images states what the question asks for.",
)
CHINESE = Wording("图{page}写道：“{quote}”", "因此答案是：{answer}", "没有一页写有问题所问的内容。")


def quoted_reasoning(quotes: Sequence[tuple[int, str]], answer: str, wording: Wording) -> str:
    """One line for each quote (page number, text), then the conclusion; without quotes, the sentence of `nothing`."""
    if not quotes:
        return wording.nothing
    return f"{quoted_lines(quotes, wording)}\n{wording.conclusion.format(answer=answer)}"


def quoted_lines(quotes: Sequence[tuple[int, str]], wording: Wording) -> str:
    """One line for each quote (page number, text)."""
    return "\n".join(wording.quote.format(page=page, quote=quote) for page, quote in quotes)
