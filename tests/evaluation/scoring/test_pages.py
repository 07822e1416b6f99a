"""Metrics of page selection: the published definitions, rankings, subsets and labels."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.evaluation.scoring.pages import (
    PageMetric,
    all_hit,
    hit,
    lexical_overlap,
    ndcg,
    page_score,
    read_page_labels,
    reciprocal_rank,
    sample_score,
    split_at_median,
)

pages = st.sets(st.integers(1, 6), max_size=4)


def test_sample_score_with_relevant_pages_is_equal_for_all_definitions():
    for metric in PageMetric:
        assert sample_score([1, 2], [2, 3, 4], metric) == (0.5, 1 / 3, 0.4)
        assert sample_score([], [2], metric) == (0.0, 0.0, 0.0)


def test_sample_score_without_relevant_pages_follows_definition():
    assert sample_score([], [], PageMetric.GOLD_NONEMPTY) is None
    assert sample_score([], [], PageMetric.ALL_SAMPLES) == (1.0, 1.0, 1.0)
    assert sample_score([3], [], PageMetric.ALL_SAMPLES) == (0.0, 0.0, 0.0)
    assert sample_score([], [], PageMetric.DOCLENS) == (0.0, 1.0, 0.0)
    assert sample_score([3], [], PageMetric.SIMPLEDOC) == (0.0, 1.0, 0.0)
    assert sample_score([], [], PageMetric.SIMPLEDOC) == (1.0, 1.0, 1.0)


def test_page_score_is_mean_over_samples():
    samples = [([1], [1]), ([1, 2], [2]), ([5], [])]
    subset = page_score(samples, PageMetric.GOLD_NONEMPTY)
    assert (subset.precision, subset.recall, subset.num_samples, subset.mean_pages) == (0.75, 1.0, 2, 1.5)
    assert subset.f1 == pytest.approx((1 + 2 / 3) / 2)
    assert page_score(samples, PageMetric.ALL_SAMPLES).f1 == pytest.approx((1 + 2 / 3) / 3)
    assert page_score([]).num_samples == 0


@settings(deadline=None)
@given(st.lists(st.tuples(pages, pages), max_size=8), st.sampled_from(PageMetric))
def test_page_score_is_in_range_and_one_for_oracle(samples, metric):
    score = page_score(samples, metric)
    assert 0 <= score.precision <= 1
    assert 0 <= score.recall <= 1
    assert 0 <= score.f1 <= 1
    oracle = page_score([(gold, gold) for _, gold in samples if gold], metric)
    assert oracle.num_samples == 0 or (oracle.precision, oracle.recall, oracle.f1) == (1, 1, 1)
    assert page_score(samples[::-1], metric) == score


def test_ranking_metrics_of_known_rankings():
    assert reciprocal_rank([4, 2, 9], {9, 2}) == 0.5
    assert reciprocal_rank([4], {9}) == 0.0
    assert ndcg([4, 2], {2}, 2) == 1 / math.log2(3)
    assert ndcg([2, 3, 4], {2, 3, 4}, 2) == 1.0
    assert ndcg([1], set(), 3) == 0.0
    assert hit([1, 2, 3], {3}, 3)
    assert not hit([1, 2, 3], {3}, 2)
    assert all_hit([1, 2, 3], {1, 3}, 3)
    assert not all_hit([1, 2, 3], {1, 3}, 2)
    assert not all_hit([1], set(), 1)


def test_lexical_overlap_and_median_split():
    assert lexical_overlap("Who built the tower?", "The tower was built", str.split) == pytest.approx(1 / 2)
    assert lexical_overlap("?", "a", str.split) == 0.0
    low, high = split_at_median({"a": 0.1, "b": 0.5, "c": 0.5, "d": 0.9})
    assert (low, high) == ({"a"}, {"b", "c", "d"})
    assert split_at_median({}) == (set(), set())


def test_read_page_labels_sorts_and_deduplicates_pages(tmp_path):
    path = tmp_path / "labels.jsonl"
    path.write_text('{"id": "a", "pages": [3, 1, 3]}\n{"id": "b", "pages": []}\n', encoding="utf-8")
    assert read_page_labels(path) == {"a": (1, 3), "b": ()}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x", "line 1: not JSON"),
        ('{"id": "a"}', "line 1: needs a text 'id' and a list 'pages'"),
        ('{"id": "a", "pages": [0]}', "pages are \\[0\\]; they must be integers from 1"),
        (
            '{"id": "a", "pages": [1]}\n{"id": "a", "pages": [1]}',
            "line 2: the id 'a' occurs twice; keep one of the lines",
        ),
    ],
)
def test_read_page_labels_rejects_invalid_line(tmp_path, content, message):
    path = tmp_path / "labels.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_page_labels(path)


def test_read_page_labels_rejects_unreadable_file(tmp_path):
    with pytest.raises(InputError, match="no file at"):
        read_page_labels(tmp_path / "none.jsonl")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path, tmp_path / "bytes.jsonl"):
        with pytest.raises(InputError, match="cannot be read"):
            read_page_labels(path)
