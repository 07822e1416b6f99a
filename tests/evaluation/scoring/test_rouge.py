"""ROUGE-L: pinned values of the `rouge` package, a slow implementation of the definition, and properties."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seer.evaluation.scoring import rouge
from seer.evaluation.scoring.rouge import RougeL, rouge_l
from seer.evaluation.scoring.scorers import (
    Metric,
    rouge_l_zh,
    score_sample,
)

PINNED = json.loads((Path(__file__).parents[2] / "fixtures/evaluation/pinned_scores.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("hypothesis", "reference", "expected"), PINNED["rouge_l"])
def test_rouge_l_equals_rouge_package(hypothesis, reference, expected):
    assert rouge_l(hypothesis, reference).f1 == expected


@pytest.mark.parametrize(("hypothesis", "reference", "expected"), PINNED["rouge_l_zh"])
def test_rouge_l_zh_equals_rouge_package_over_jieba_words(hypothesis, reference, expected):
    assert rouge_l_zh(hypothesis, reference).f1 == expected


def slow_rouge(hypothesis: list[list[str]], reference: list[list[str]]) -> tuple[set[str], int]:
    """Return the words of all subsequences and the longest trace, computed with a full table for each pair of sentences."""
    union, longest = set(), 0
    for ref in reference:
        for hyp in hypothesis:
            lengths = [[0] * (len(hyp) + 1) for _ in range(len(ref) + 1)]
            for i, word in enumerate(ref, 1):
                for j, other in enumerate(hyp, 1):
                    same = word == other
                    lengths[i][j] = lengths[i - 1][j - 1] + 1 if same else max(lengths[i - 1][j], lengths[i][j - 1])
            i, j, steps = len(ref), len(hyp), 0
            while i and j:
                steps += 1
                if ref[i - 1] == hyp[j - 1]:
                    union.add(ref[i - 1])
                    i, j = i - 1, j - 1
                elif lengths[i - 1][j] > lengths[i][j - 1]:
                    i -= 1
                else:
                    j -= 1
            longest = max(longest, steps)
    return union, longest


sentences = st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=12), min_size=1, max_size=5)


@settings(deadline=None)
@given(sentences, sentences)
def test_rouge_l_equals_slow_implementation(hypothesis, reference):
    union, _ = slow_rouge(hypothesis, reference)
    found = rouge_l(".".join(map(" ".join, hypothesis)), ".".join(map(" ".join, reference)))
    assert found.recall == len(union) / len({word for sentence in reference for word in sentence})
    assert found.precision == len(union) / len({word for sentence in hypothesis for word in sentence})


@settings(deadline=None)
@given(sentences, sentences, st.integers(1, 20))
def test_rouge_l_detects_long_trace_in_any_pair(hypothesis, reference, limit):
    """Pairs that cannot add a word are skipped, but a trace that is too long must be found in any pair."""
    _, longest = slow_rouge(hypothesis, reference)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rouge, "ORIGINAL_TRACE_LIMIT", limit)
        patch.setattr(rouge, "BLOCK_ROWS", 3)
        found = rouge_l(".".join(map(" ".join, hypothesis)), ".".join(map(" ".join, reference)))
    assert (found.longest_trace >= limit) == (longest >= limit)


@settings(deadline=None)
@given(sentences, sentences)
def test_rouge_l_is_independent_of_batch_and_block_size(hypothesis, reference):
    pair = ".".join(map(" ".join, hypothesis)), ".".join(map(" ".join, reference))
    usual = rouge_l(*pair)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rouge, "BATCH_BITS", 9)
        patch.setattr(rouge, "BLOCK_ROWS", 2)
        assert rouge_l(*pair).f1 == usual.f1


def test_rouge_l_scores_and_reports_long_trace():
    """The `rouge` package recurses once per step and fails here, which the published scorer counts as 0."""
    hypothesis = " ".join(f"w{i}" for i in range(2000))
    result = rouge_l(hypothesis, hypothesis)
    assert result.longest_trace == 2000
    assert result.f1 == pytest.approx(1, abs=1e-7)
    assert score_sample(Metric.ROUGE_L, hypothesis, ["w1", hypothesis]).deep, "one long trace is enough"
    assert not score_sample(Metric.ROUGE_L, "w1 w2", [hypothesis[:500]]).deep


@given(sentences, st.integers(2, 30))
@example([["a"]] * 6, 3)
@example([["a"]] * 6, 4)
def test_batches_are_filled_up_to_bit_limit(given_sentences, bits):
    """Each batch is full, and exceeds the limit only if it has a single sentence."""

    def width(batch: list[list[str]]) -> int:
        return sum(len(sentence) + 1 for sentence in batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rouge, "BATCH_BITS", bits)
        batches = list(rouge._batches(given_sentences))
    assert [sentence for batch in batches for sentence in batch] == given_sentences
    assert all(width(batch) <= bits or len(batch) == 1 for batch in batches)
    assert all(width([*batch, following[0]]) > bits for batch, following in itertools.pairwise(batches))


@pytest.mark.parametrize(("hypothesis", "reference"), [("", "a"), ("a", ""), ("...", "a"), ("", ""), ("a", "b")])
def test_rouge_l_without_common_words_is_zero(hypothesis, reference):
    assert rouge_l(hypothesis, reference) == RougeL(f1=0.0, precision=0.0, recall=0.0, longest_trace=0)


def test_score_sample_marks_long_prediction_without_common_words_as_deep():
    assert score_sample(Metric.ROUGE_L, "a " * 1000, ["b. a"]).deep
    assert score_sample(Metric.ROUGE_L, "a " * rouge.ORIGINAL_TRACE_LIMIT, ["b"]).deep
    assert not score_sample(Metric.ROUGE_L, "a " * (rouge.ORIGINAL_TRACE_LIMIT - 1), ["b"]).deep
    assert not score_sample(Metric.ROUGE_L, "a. " * 1000, ["b"]).deep


@pytest.mark.parametrize(
    ("num_words", "deep"), [(rouge.ORIGINAL_TRACE_LIMIT - 1, False), (rouge.ORIGINAL_TRACE_LIMIT, True)]
)
def test_score_sample_marks_trace_as_deep_from_limit(num_words, deep):
    text = " ".join(f"w{i}" for i in range(num_words))
    assert score_sample(Metric.ROUGE_L, text, [text]).deep is deep


def test_rouge_l_depends_on_order_of_arguments():
    """Each sentence of the answer is traced through the prediction, so the roles of the texts matter."""
    assert score_sample(Metric.ROUGE_L, "cold rain", ["rain cold. rain"]).value == pytest.approx(1, abs=1e-7)
    assert score_sample(Metric.ROUGE_L, "rain cold. rain", ["cold rain"]).value == pytest.approx(0.5, abs=1e-7)
    assert score_sample(Metric.ROUGE_L_ZH, "老师学生", ["学生老师.学生"]).value == pytest.approx(1, abs=1e-7)
    assert score_sample(Metric.ROUGE_L_ZH, "学生老师.学生", ["老师学生"]).value == pytest.approx(0.5, abs=1e-7)
