"""Adapters for questions over several passages: HotpotQA and 2WikiMultihopQA, which share a shape, and MuSiQue.

Every public function adapts one row of its source to samples and raises `Rejected` if the row lacks a required field or
a field has the wrong type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from data_pipeline.records import Evidence, Rejected, Sample
from data_pipeline.settings import SourceSpec
from data_pipeline.sources.adapting import (
    TextBuilder,
    decode_json,
    list_field,
    optional_text,
    record_list,
    required_field,
    text_field,
    text_list,
)
from data_pipeline.sources.rawfiles import Row
from seer.teaching.template import UNANSWERABLE


def hotpot_like(row: Row, spec: SourceSpec) -> Iterator[Sample]:
    """Adapt a row of HotpotQA or 2WikiMultihopQA. A supporting fact names a title and a sentence number in its passage.

    The official files hold context [[title, [sentence, ...]], ...] and supporting_facts [[title, n], ...]. Hub rows
    hold the same in columns, {"title": [...], "sentences": [...]} and {"title": [...], "sent_id": [...]}, or as JSON
    in strings.
    """
    builder = TextBuilder()
    places: dict[tuple[str, int], tuple[int, int]] = {}
    for title, sentences in _passages(required_field(row, "context")):
        builder.add(f"{title}\n")
        for number, sentence in enumerate(sentences):
            # The sentences of HotpotQA start with a space, those of 2WikiMultihopQA do not.
            builder.add(" " if number and not sentence[:1].isspace() else "")
            places.setdefault((title, number), builder.add(sentence))
        builder.add("\n\n")
        builder.end_segment()
    evidence: list[Evidence] = []
    for hop, (title, number) in enumerate(_facts(row.get("supporting_facts"))):
        # A few facts of HotpotQA name a sentence that does not exist in the passage.
        if (title, number) in places:
            start, end = places[title, number]
            evidence.append(Evidence(start, end, hop))
    yield Sample(
        id=optional_text(row, "_id", "id"),
        source=spec.label,
        question=text_field(row, "question"),
        context=builder.text,
        answers=tuple(text_list(required_field(row, "answer"))),
        evidence=tuple(evidence) or None,
        segments=builder.segments,
        provenance={"type": optional_text(row, "type")},
    )


def _passages(value: Any) -> Iterator[tuple[str, list[str]]]:
    value = decode_json(value)
    if isinstance(value, Mapping):
        value = [(item.get("title"), item.get("sentences")) for item in record_list(value)]
    if not isinstance(value, list | tuple):
        raise Rejected("wrong_type", f"'context' is {type(value).__name__}; a list of passages is required")
    for item in value:
        if isinstance(item, Mapping):
            item = (item.get("title"), item.get("sentences", item.get("content")))
        if not isinstance(item, list | tuple) or len(item) != 2 or not isinstance(item[0], str):
            raise Rejected("wrong_type", "a passage of 'context' is not [title, [sentence, ...]]")
        title, sentences = item
        if not isinstance(sentences, list | tuple) or not all(isinstance(sentence, str) for sentence in sentences):
            raise Rejected("wrong_type", f"passage '{title[:40]}' does not hold a list of sentences")
        yield title, list(sentences)


def _facts(value: Any) -> Iterator[tuple[str, int]]:
    value = decode_json(value)
    if value is None:
        return
    if isinstance(value, Mapping):
        value = [(item.get("title"), item.get("sent_id")) for item in record_list(value)]
    if not isinstance(value, list | tuple):
        raise Rejected("wrong_type", f"'supporting_facts' is {type(value).__name__}; a list is required")
    for item in value:
        if isinstance(item, Mapping):
            item = (item.get("title"), item.get("sent_id"))
        if (
            not isinstance(item, list | tuple)
            or len(item) != 2
            or not isinstance(item[0], str)
            or type(item[1]) is not int
        ):
            raise Rejected("wrong_type", "a supporting fact is not [title, sentence number]")
        yield item[0], item[1]


def musique(row: Row, spec: SourceSpec) -> Iterator[Sample]:
    """Adapt a row of MuSiQue: paragraphs marked as supporting, and a question decomposition that gives their hops.

    The `full` files also hold unanswerable questions, whose paragraphs lack a necessary fact.
    """
    answerable = row.get("answerable", True) is not False
    hops = _hops(row.get("question_decomposition"))
    builder = TextBuilder()
    evidence: list[Evidence] = []
    for number, paragraph in enumerate(record_list(list_field(row, "paragraphs"))):
        builder.add(f"{optional_text(paragraph, 'title')}\n")
        start, end = builder.add(text_field(paragraph, "paragraph_text"))
        builder.add("\n\n")
        builder.end_segment()
        # A supporting paragraph that the decomposition does not mention comes after all hops.
        if answerable and paragraph.get("is_supporting"):
            evidence.append(Evidence(start, end, hops.get(optional_text(paragraph, "idx") or str(number), len(hops))))
    answers = [*text_list(row.get("answer") or ""), *text_list(row.get("answer_aliases") or [])]
    evidence.sort(key=lambda item: (item.hop, item.start))
    yield Sample(
        id=optional_text(row, "id"),
        source=spec.label,
        question=text_field(row, "question"),
        context=builder.text,
        answers=tuple(answers) if answerable else (UNANSWERABLE,),
        evidence=() if not answerable else tuple(evidence) or None,
        answerable=answerable,
        segments=builder.segments,
        provenance={"hops": str(len(hops))},
    )


def _hops(value: Any) -> dict[str, int]:
    """Map each paragraph index to the step of the decomposition that needs it."""
    steps = record_list(value) if value else []
    return {
        optional_text(step, "paragraph_support_idx"): hop
        for hop, step in enumerate(steps)
        if step.get("paragraph_support_idx") is not None
    }
