"""Augmentation: derive further samples from a loaded one.

Evidence of a derived sample marks the same text as before, and its provenance names the variant:
- shuffled: the same passages (or blocks of a document) in another order, so the evidence moves to other pages;
- hard negatives: added passages of other documents that share words with the question but do not contain an answer;
- unanswerable: the question over another document without the answer; the correct response is an empty selection.
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
"""Minimum size of a block when a document without passages is shuffled. Blocks are cut between paragraphs."""
_POOL_PASSAGES = 256
_POOL_DOCUMENTS = 16
_MAX_PASSAGE_CHARS = 4000
_MAX_DOCUMENT_CHARS = 200_000

Piece = tuple[int, int] | str
"""Part of a new context: a span of the old context, or added text."""


@dataclass(frozen=True)
class _Passage:
    text: str
    words: frozenset[str]
    document: str


class Pool:
    """The most recent passages and documents of one source, from which negatives are drawn. Its size is bounded."""

    def __init__(self) -> None:
        self.passages: deque[_Passage] = deque(maxlen=_POOL_PASSAGES)
        self.documents: deque[Sample] = deque(maxlen=_POOL_DOCUMENTS)

    def add(self, sample: Sample) -> None:
        """Add the passages and the document of a sample, unless they are too long."""
        for start, end in sample.segments:
            text = sample.context[start:end]
            if len(text) <= _MAX_PASSAGE_CHARS:
                self.passages.append(_Passage(text, frozenset(_words(text)), sample.document_key))
        if len(sample.context) <= _MAX_DOCUMENT_CHARS:
            self.documents.append(sample)


def augment(sample: Sample, pool: Pool, spec: VariantSpec, seed: int) -> Iterator[Sample]:
    """Yield the sample, with hard negatives if configured, then its variants; add the sample to the pool.

    Which samples get variants depends on the seed and the sample's key, not on the order of the samples. Negatives come
    from the samples before this one.
    """
    enabled = spec.hard_negatives or spec.shuffle_share or spec.unanswerable_share
    if not enabled:
        yield sample
        return
    base = add_hard_negatives(sample, pool, spec.hard_negatives, seed) if spec.hard_negatives else sample
    yield base
    if chance(seed, "shuffle", sample.key) < spec.shuffle_share:
        shuffled = shuffle_passages(base, seed)
        if shuffled is not None:
            yield shuffled
    if chance(seed, "unanswerable", sample.key) < spec.unanswerable_share:
        unanswerable = replace_document(sample, pool, seed)
        if unanswerable is not None:
            yield unanswerable
    pool.add(sample)


def shuffle_passages(sample: Sample, seed: int) -> Sample | None:
    """Return the sample with its passages in another order.

    Returns None if there are fewer than two passages, or for summaries and code, whose answer depends on the order.
    """
    segments = sample.segments or split_blocks(sample.context)
    if len(segments) < 2 or sample.kind in ("summary", "code"):
        return None
    order = list(range(len(segments)))
    generator = random.Random(draw_bits(seed, "order", sample.key))
    # A shuffle may return the original order; draw until it differs.
    while order == sorted(order):
        generator.shuffle(order)
    return _variant(rearrange(sample, [segments[i] for i in order]), "shuffled")


def add_hard_negatives(sample: Sample, pool: Pool, count: int, seed: int) -> Sample:
    """Return the sample with up to `count` passages of other documents inserted at random between its own.

    Chosen are the passages of the pool that share most words with the question. Passages that contain an answer are
    excluded, because they would be evidence that no label marks.
    """
    if not sample.segments:
        return sample
    own = {sample.context[start:end] for start, end in sample.segments}
    question = _words(sample.question)
    scored = sorted(
        (-len(question & passage.words), number)
        for number, passage in enumerate(pool.passages)
        if passage.document != sample.document_key
        and passage.text not in own
        and not _contains_answer(passage.text, sample.answers)
    )
    chosen = [pool.passages[number].text for score, number in scored[:count] if score < 0]
    generator = random.Random(draw_bits(seed, "negatives", sample.key))
    pieces: list[Piece] = list(sample.segments)
    for text in chosen:
        pieces.insert(generator.randrange(len(pieces) + 1), text)
    extended = rearrange(sample, pieces)
    return replace(extended, provenance={**extended.provenance, "hard_negatives": str(len(chosen))})


def replace_document(sample: Sample, pool: Pool, seed: int) -> Sample | None:
    """Return the question over another document of the pool that does not contain an answer, as an unanswerable sample.

    Returns None if the pool has no such document, or if the question has no short answer to look for.
    """
    if sample.kind not in ("extractive", "free") or not sample.answerable:
        return None
    candidates = [
        other
        for other in pool.documents
        if other.document_key != sample.document_key and not _contains_answer(other.context, sample.answers)
    ]
    if not candidates:
        return None
    other = candidates[draw_bits(seed, "document", sample.key) % len(candidates)]
    # The document of the new context decides the split, so the other document stays out of the opposite split.
    unanswerable = replace(
        sample,
        context=other.context,
        segments=other.segments,
        document=other.document_key,
        answers=(UNANSWERABLE,),
        evidence=(),
        answerable=False,
    )
    return _variant(unanswerable, "unanswerable")


def rearrange(sample: Sample, pieces: Sequence[Piece]) -> Sample:
    """Return the sample over a context made of these pieces, in order. Evidence moves with the text it marks.

    Evidence that crosses the border of a piece is split; evidence outside all pieces is dropped.
    """
    parts: list[str] = []
    segments: list[tuple[int, int]] = []
    moved: list[Evidence] = []
    offset = 0  # start of the current piece in the new context
    for piece in pieces:
        text = piece if isinstance(piece, str) else sample.context[piece[0] : piece[1]]
        if not isinstance(piece, str):
            for item in sample.evidence or ():
                # The part of the evidence inside this piece, shifted from old to new offsets.
                start, end = max(item.start, piece[0]), min(item.end, piece[1])
                if start < end:
                    moved.append(Evidence(start - piece[0] + offset, end - piece[0] + offset, item.hop))
        # A piece from the end of a document may lack a newline; without one, it would merge with the next line.
        if not text.endswith("\n"):
            text += "\n"
        parts.append(text)
        segments.append((offset, offset + len(text)))
        offset += len(text)
    moved.sort(key=lambda item: (item.hop, item.start))
    evidence = None if sample.evidence is None else tuple(moved)
    # Keep the document's key, which may be the hash of the old context: a variant must fall into the same split.
    document = sample.document_key
    return replace(sample, context="".join(parts), segments=tuple(segments), evidence=evidence, document=document)


def split_blocks(text: str) -> tuple[tuple[int, int], ...]:
    """Return the spans of blocks of whole paragraphs; all but the last have at least BLOCK_CHARS characters."""
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


def _contains_answer(text: str, answers: Sequence[str]) -> bool:
    folded = text.casefold()
    return any(answer.strip().casefold() in folded for answer in answers if answer.strip())


def _words(text: str) -> set[str]:
    """Return lower-case words, without short ASCII words such as articles."""
    return {word for word in re.findall(r"\w+", text.casefold()) if len(word) > 3 or not word.isascii()}
