"""Count the tokens of a trajectory as the trainer does, and reject one that training would refuse.

A trajectory grows in three steps, and each step that follows costs teacher calls. It is therefore measured after each:
the pages before phase 1, the retrieved text before phase 2, and the whole conversation at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from data_pipeline.records import PageSpan, Rejected, Sample
from data_pipeline.sources.posing import posed_question
from seer.protocol.encoding import Encoder
from seer.protocol.turns import observation
from seer.schema import Excerpt, Turn


class LengthLimit:
    """The longest trajectory that training accepts, counted with the encoder that training uses."""

    def __init__(self, max_tokens: int, tokenizer: str = "") -> None:
        """Load the tokenizer of a checkpoint folder, or tekken without one; with `max_tokens` 0, nothing.

        Raises ModelError if the folder holds no usable tokenizer.
        """
        self.max_tokens = max_tokens
        self._encoder = _load_encoder(tokenizer) if max_tokens else None

    def check_pages(self, sample: Sample, pages: Sequence[PageSpan]) -> None:
        """Raises Rejected if the pages and the question alone exceed the limit."""
        vision_tokens = sum(page.vision_tokens for page in pages)
        if self._encoder is not None and vision_tokens > self.max_tokens:
            # Most documents that are too long are so by far; their text need not be tokenized.
            raise Rejected("pages_too_long", f"{vision_tokens} vision tokens, {self.max_tokens} allowed")
        self.check("pages_too_long", [_prompt(sample, pages)], pages)

    def check_retrieved(self, sample: Sample, pages: Sequence[PageSpan], relevant: Sequence[int]) -> None:
        """Raises Rejected if the pages and the text of the necessary pages exceed the limit."""
        by_number = {page.number: page for page in pages}
        excerpts = [
            Excerpt(
                page=number,
                start=by_number[number].start,
                text=sample.context[by_number[number].start : by_number[number].end],
            )
            for number in relevant
        ]
        turns = [_prompt(sample, pages), Turn(kind="call", pages=tuple(relevant)), observation(excerpts)]
        self.check("retrieved_too_long", turns, pages)

    def check(self, reason: str, turns: Sequence[Turn], pages: Sequence[PageSpan]) -> None:
        """Raises Rejected with this reason if the conversation exceeds the limit."""
        if self._encoder is None:
            return
        tokens = len(self._encoder.encode(turns, {page.number: (page.width_px, page.height_px) for page in pages}))
        if tokens > self.max_tokens:
            raise Rejected(reason, f"{tokens} tokens, {self.max_tokens} allowed")


def _prompt(sample: Sample, pages: Sequence[PageSpan]) -> Turn:
    return Turn(kind="prompt", text=posed_question(sample), pages=tuple(page.number for page in pages))


def _load_encoder(path: str) -> Encoder:
    # Imported here because only builds with a limit need a tokenizer.
    if path:
        from seer.models.checkpoint import load_encoder

        return load_encoder(path)[0]
    from seer.models.counting import tekken_encoder

    return tekken_encoder()
