"""Augmented samples keep exact evidence, stay in the split of their document, and contain no unmarked answer."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.records import Evidence, Sample
from data_pipeline.settings import VariantSpec
from data_pipeline.steps.augment import (
    BLOCK_CHARS,
    Pool,
    add_hard_negatives,
    augment,
    rearrange,
    replace_document,
    shuffle_passages,
    split_blocks,
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
def test_shuffle_passages_moves_evidence_with_passages(n: int, seed: int) -> None:
    sample = make(n)
    changed = shuffle_passages(sample, seed)
    assert changed is not None
    assert changed.context != sample.context
    assert sorted(changed.context) == sorted(sample.context)
    assert marked(changed) == marked(sample)
    assert changed.document_key == sample.document_key
    assert changed.id == f"s{n}#shuffled"
    assert changed == shuffle_passages(sample, seed)


@settings(deadline=None)
@given(st.text(max_size=120), st.data())
def test_rearrange_keeps_marked_text(text: str, data: st.DataObject) -> None:
    context = text + "."
    cuts = sorted({0, len(context), *data.draw(st.lists(st.integers(0, len(context)), max_size=4))})
    segments = list(pairwise(cuts))
    start = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(start + 1, len(context)))
    sample = Sample(id="1", source="s", question="?", context=context, answers=("a",), evidence=(Evidence(start, end),))
    changed = rearrange(sample, data.draw(st.permutations(segments)))
    pieces = sorted(changed.context[item.start : item.end] for item in changed.evidence or ())
    assert sorted("".join(pieces)) == sorted(context[start:end])
    assert all(piece in context for piece in pieces)
    assert changed.segments[0][0] == 0
    assert changed.segments[-1][1] == len(changed.context)


def test_shuffle_passages_without_segments_uses_blocks() -> None:
    text = "\n\n".join(f"Paragraph {n}. " + "Words follow words. " * 40 for n in range(8))
    cut = split_blocks(text)
    assert "".join(text[start:end] for start, end in cut) == text
    assert all(end - start >= BLOCK_CHARS for start, end in cut[:-1])
    sample = Sample(id="1", source="s", question="?", context=text, answers=("a",))
    assert shuffle_passages(sample, 0) is not None
    assert shuffle_passages(replace(sample, kind="summary"), 0) is None
    assert shuffle_passages(replace(sample, context="One line."), 0) is None
    assert split_blocks("") == ()


def test_add_hard_negatives_excludes_passages_with_answer() -> None:
    pool = Pool()
    for n in range(1, 6):
        pool.add(make(n))
    sample = make(0)
    holding = replace(make(9), context=make(9).context.replace("902 sacks", "2 sacks"))
    pool.add(holding)
    changed = add_hard_negatives(sample, pool, 3, seed=1)
    assert len(changed.segments) == len(sample.segments) + 3
    assert marked(changed) == marked(sample)
    assert changed.provenance["hard_negatives"] == "3"
    own = {sample.context[start:end] for start, end in sample.segments}
    added = [changed.context[start:end] for start, end in changed.segments if changed.context[start:end] not in own]
    assert len(added) == 3
    assert all("mill of place" in text and "2" not in text.partition("grinds ")[2] for text in added)


def test_replace_document_gives_unanswerable_sample() -> None:
    pool = Pool()
    sample, other = make(0), make(3)
    assert replace_document(sample, pool, 0) is None
    pool.add(sample)
    assert replace_document(sample, pool, 0) is None
    pool.add(replace(other, context=other.context.replace("2", "two"), evidence=None))
    changed = replace_document(sample, pool, 0)
    assert changed is not None
    assert (changed.answerable, changed.answers, changed.evidence) == (False, ("unanswerable",), ())
    assert changed.question == sample.question
    assert sample.answers[0] not in changed.context
    assert changed.document_key == pool.documents[-1].document_key
    assert replace_document(replace(sample, kind="summary"), pool, 0) is None


def test_augment_respects_shares_and_is_reproducible() -> None:
    spec = VariantSpec(shuffle_share=0.5, hard_negatives=1, unanswerable_share=0.5)

    def run(seed: int) -> list[Sample]:
        pool = Pool()
        return [changed for n in range(40) for changed in augment(make(n), pool, spec, seed)]

    first = run(0)
    assert first == run(0) != run(1)
    kinds = [changed.provenance.get("variant", "") for changed in first]
    assert kinds.count("") == 40
    assert 10 <= kinds.count("shuffled") <= 30
    assert 10 <= kinds.count("unanswerable") <= 30
    assert len({changed.key for changed in first}) == len(first)


def test_augment_without_variants_returns_sample_unchanged() -> None:
    pool = Pool()
    assert list(augment(make(0), pool, VariantSpec(), 0)) == [make(0)]
    assert not pool.documents
