"""Further samples out of those that were read. Each keeps its evidence exact and says in its provenance what it is.

- shuffled: the same passages (or blocks of a document) in another order; what mattered still does, on other pages.
- hard negatives: passages of other documents that share words with the question, and do not hold the answer.
- unanswerable: the question over another document, in which no answer stands; to be answered with an empty selection.
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from data_pipeline.records import Evidence, Sample
from data_pipeline.settings import VariantSpec
from data_pipeline.steps.chance import chance, draw_bits
from seer.teaching.template import UNANSWERABLE

BLOCK_CHARS = 1500
"""Documents of one piece are shuffled in blocks of at least this size, cut between paragraphs."""
_POOL_PASSAGES = 256
_POOL_DOCUMENTS = 16
_MAX_PASSAGE_CHARS = 4000
_MAX_DOCUMENT_CHARS = 200_000

Piece = tuple[int, int] | str
"""A stretch of the old context, or text from elsewhere."""


@dataclass(frozen=True)
class _Passage:
    text: str
    words: frozenset[str]
    document: str


class Pool:
    """The last passages and documents of one source: where negatives come from. Bounded, in reading order."""

    def __init__(self) -> None:
        self.passages: deque[_Passage] = deque(maxlen=_POOL_PASSAGES)
        self.documents: deque[Sample] = deque(maxlen=_POOL_DOCUMENTS)

    def add(self, sample: Sample) -> None:
        for start, end in sample.segments:
            text = sample.context[start:end]
            if len(text) <= _MAX_PASSAGE_CHARS:
                self.passages.append(_Passage(text, frozenset(_words(text)), sample.document_key))
        if len(sample.context) <= _MAX_DOCUMENT_CHARS:
            self.documents.append(sample)


def variants(sample: Sample, pool: Pool, spec: VariantSpec, seed: int) -> Iterator[Sample]:
    """The sample itself (with negatives, where asked for), then its variants. Fills the pool."""
    wanted = spec.hard_negatives or spec.shuffle_share or spec.unanswerable_share
    if not wanted:
        yield sample
        return
    told = with_hard_negatives(sample, pool, spec.hard_negatives, seed) if spec.hard_negatives else sample
    yield told
    if chance(seed, "shuffle", sample.key) < spec.shuffle_share:
        shuffled_sample = shuffled(told, seed)
        if shuffled_sample is not None:
            yield shuffled_sample
    if chance(seed, "unanswerable", sample.key) < spec.unanswerable_share:
        mismatch = mismatched(sample, pool, seed)
        if mismatch is not None:
            yield mismatch
    pool.add(sample)


def shuffled(sample: Sample, seed: int) -> Sample | None:
    """The same passages in another order; None where there are fewer than two, or where order carries the meaning."""
    segments = sample.segments or blocks(sample.context)
    if len(segments) < 2 or sample.kind in ("summary", "code"):
        return None
    order = list(range(len(segments)))
    generator = random.Random(draw_bits(seed, "order", sample.key))
    while order == sorted(order):
        generator.shuffle(order)
    return _variant(rearranged(sample, [segments[i] for i in order]), "shuffled")


def with_hard_negatives(sample: Sample, pool: Pool, count: int, seed: int) -> Sample:
    """The sample with up to `count` close passages of other documents between its own."""
    if not sample.segments:
        return sample
    own = {sample.context[start:end] for start, end in sample.segments}
    question = _words(sample.question)
    scored = sorted(
        (-len(question & passage.words), number)
        for number, passage in enumerate(pool.passages)
        if passage.document != sample.document_key
        and passage.text not in own
        and not _holds(passage.text, sample.answers)
    )
    chosen = [pool.passages[number].text for score, number in scored[:count] if score < 0]
    generator = random.Random(draw_bits(seed, "negatives", sample.key))
    pieces: list[Piece] = list(sample.segments)
    for text in chosen:
        pieces.insert(generator.randrange(len(pieces) + 1), text)
    told = rearranged(sample, pieces)
    return replace(told, provenance={**told.provenance, "hard_negatives": str(len(chosen))})


def mismatched(sample: Sample, pool: Pool, seed: int) -> Sample | None:
    """The question over another document of the pool in which no answer stands; None where there is none."""
    if sample.kind not in ("extractive", "free") or not sample.answerable:
        return None
    fitting = [
        other
        for other in pool.documents
        if other.document_key != sample.document_key and not _holds(other.context, sample.answers)
    ]
    if not fitting:
        return None
    other = fitting[draw_bits(seed, "document", sample.key) % len(fitting)]
    told = replace(
        sample,
        context=other.context,
        segments=other.segments,
        document=other.document_key,
        answers=(UNANSWERABLE,),
        evidence=(),
        answerable=False,
    )
    return _variant(told, "unanswerable")


def rearranged(sample: Sample, pieces: Sequence[Piece]) -> Sample:
    """The sample over a context made of these pieces. Evidence moves with the text it marks."""
    parts: list[str] = []
    segments: list[tuple[int, int]] = []
    moved: list[Evidence] = []
    at = 0
    for piece in pieces:
        text = piece if isinstance(piece, str) else sample.context[piece[0] : piece[1]]
        if not isinstance(piece, str):
            for item in sample.evidence or ():
                start, end = max(item.start, piece[0]), min(item.end, piece[1])
                if start < end:
                    moved.append(Evidence(start - piece[0] + at, end - piece[0] + at, item.hop))
        if not text.endswith("\n"):
            text += "\n"
        parts.append(text)
        segments.append((at, at + len(text)))
        at += len(text)
    moved.sort(key=lambda item: (item.hop, item.start))
    evidence = None if sample.evidence is None else tuple(moved)
    # the document keeps its name: a variant must fall on the same side of a split as its original
    document = sample.document_key
    return replace(sample, context="".join(parts), segments=tuple(segments), evidence=evidence, document=document)


def blocks(text: str) -> tuple[tuple[int, int], ...]:
    """A document in blocks of whole paragraphs."""
    ends, start = [], 0
    for match in re.finditer(r"\n\s*\n|\n", text):
        if match.end() - start >= BLOCK_CHARS:
            ends.append(match.end())
            start = match.end()
    if start < len(text):
        ends.append(len(text))
    return tuple(zip([0, *ends], ends, strict=False))


def _variant(sample: Sample, name: str) -> Sample:
    return replace(sample, id=f"{sample.id}#{name}", provenance={**sample.provenance, "variant": name})


def _holds(text: str, answers: Sequence[str]) -> bool:
    folded = text.casefold()
    return any(answer.strip().casefold() in folded for answer in answers if answer.strip())


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text.casefold()) if len(word) > 3 or not word.isascii()}
