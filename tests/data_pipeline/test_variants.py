"""Variants keep their evidence exact, stay on their document's side of a split, and never hold the answer by accident."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.records import Evidence, Sample
from data_pipeline.settings import VariantSpec
from data_pipeline.steps.variants import (
    BLOCK_CHARS,
    Pool,
    blocks,
    mismatched,
    rearranged,
    shuffled,
    variants,
    with_hard_negatives,
)


def make(n: int, count: int = 4) -> Sample:
    parts, segments, at = [], [], 0
    for number in range(count):
        text = (
            f"Passage {number} of {n}\nThe mill of place{n}x{number} grinds {n * 100 + number} sacks of rye flour.\n\n"
        )
        parts.append(text)
        segments.append((at, at + len(text)))
        at += len(text)
    context = "".join(parts)
    start = context.index(f"The mill of place{n}x2")
    return Sample(
        id=f"s{n}",
        source="s",
        question=f"How many sacks of flour does the mill of place{n}x2 grind?",
        context=context,
        answers=(f"{n * 100 + 2}",),
        evidence=(Evidence(start, start + 20, 1), Evidence(0, 9, 0)),
        segments=tuple(segments),
    )


def marked(sample: Sample) -> list[tuple[int, str]]:
    return sorted((item.hop, sample.context[item.start : item.end]) for item in sample.evidence or ())


@settings(deadline=None)
@given(st.integers(0, 5), st.integers(0, 1000))
def test_shuffling_moves_passages_and_their_evidence(n: int, seed: int) -> None:
    sample = make(n)
    told = shuffled(sample, seed)
    assert told is not None
    assert told.context != sample.context
    assert sorted(told.context) == sorted(sample.context)
    assert marked(told) == marked(sample)
    assert told.document_key == sample.document_key
    assert told.id == f"s{n}#shuffled"
    assert told == shuffled(sample, seed)


@settings(deadline=None)
@given(st.text(max_size=120), st.data())
def test_rearranging_any_text_keeps_what_is_marked(text: str, data: st.DataObject) -> None:
    context = text + "."
    cuts = sorted({0, len(context), *data.draw(st.lists(st.integers(0, len(context)), max_size=4))})
    segments = list(pairwise(cuts))
    start = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(start + 1, len(context)))
    sample = Sample(id="1", source="s", question="?", context=context, answers=("a",), evidence=(Evidence(start, end),))
    told = rearranged(sample, data.draw(st.permutations(segments)))
    pieces = sorted(told.context[item.start : item.end] for item in told.evidence or ())
    assert sorted("".join(pieces)) == sorted(context[start:end])
    assert all(piece in context for piece in pieces)
    assert told.segments[0][0] == 0
    assert told.segments[-1][1] == len(told.context)


def test_documents_of_one_piece_are_shuffled_in_blocks() -> None:
    text = "\n\n".join(f"Paragraph {n}. " + "Words follow words. " * 40 for n in range(8))
    cut = blocks(text)
    assert "".join(text[start:end] for start, end in cut) == text
    assert all(end - start >= BLOCK_CHARS for start, end in cut[:-1])
    sample = Sample(id="1", source="s", question="?", context=text, answers=("a",))
    assert shuffled(sample, 0) is not None
    assert shuffled(replace(sample, kind="summary"), 0) is None
    assert shuffled(replace(sample, context="One line."), 0) is None
    assert blocks("") == ()


def test_hard_negatives_come_from_elsewhere_and_never_hold_the_answer() -> None:
    pool = Pool()
    for n in range(1, 6):
        pool.add(make(n))
    sample = make(0)
    holding = replace(make(9), context=make(9).context.replace("902 sacks", "2 sacks"))
    pool.add(holding)
    told = with_hard_negatives(sample, pool, 3, seed=1)
    assert len(told.segments) == len(sample.segments) + 3
    assert marked(told) == marked(sample)
    assert told.provenance["hard_negatives"] == "3"
    own = {sample.context[start:end] for start, end in sample.segments}
    added = [told.context[start:end] for start, end in told.segments if told.context[start:end] not in own]
    assert len(added) == 3
    assert all("mill of place" in text and "2" not in text.partition("grinds ")[2] for text in added)


def test_mismatched_questions_have_no_answer_and_follow_the_other_document() -> None:
    pool = Pool()
    sample, other = make(0), make(3)
    assert mismatched(sample, pool, 0) is None
    pool.add(sample)
    assert mismatched(sample, pool, 0) is None
    pool.add(replace(other, context=other.context.replace("2", "two"), evidence=None))
    told = mismatched(sample, pool, 0)
    assert told is not None
    assert (told.answerable, told.answers, told.evidence) == (False, ("unanswerable",), ())
    assert told.question == sample.question
    assert sample.answers[0] not in told.context
    assert told.document_key == pool.documents[-1].document_key
    assert mismatched(replace(sample, kind="summary"), pool, 0) is None


def test_variants_are_drawn_by_share_and_alike_on_every_run() -> None:
    spec = VariantSpec(shuffle_share=0.5, hard_negatives=1, unanswerable_share=0.5)

    def run(seed: int) -> list[Sample]:
        pool = Pool()
        return [told for n in range(40) for told in variants(make(n), pool, spec, seed)]

    first = run(0)
    assert first == run(0) != run(1)
    kinds = [told.provenance.get("variant", "") for told in first]
    assert kinds.count("") == 40
    assert 10 <= kinds.count("shuffled") <= 30
    assert 10 <= kinds.count("unanswerable") <= 30
    assert len({told.key for told in first}) == len(first)


def test_without_variants_samples_pass_untouched() -> None:
    pool = Pool()
    assert list(variants(make(0), pool, VariantSpec(), 0)) == [make(0)]
    assert not pool.documents
