"""Page selection: each published definition, rankings, subsets and budgets."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.evaluation.analysis.selector_baselines import select_with_budgets, selector_rows
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.files import to_line
from seer.evaluation.runs.plan_longbench import matched_budgets
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
from seer.rendering import render_text
from seer.schema import Prediction, Status

pages = st.sets(st.integers(1, 6), max_size=4)


def test_a_sample_with_relevant_pages_is_scored_alike_by_all_definitions():
    for metric in PageMetric:
        assert sample_score([1, 2], [2, 3, 4], metric) == (0.5, 1 / 3, 0.4)
        assert sample_score([], [2], metric) == (0.0, 0.0, 0.0)


def test_without_relevant_pages_the_definitions_part():
    assert sample_score([], [], PageMetric.GOLD_NONEMPTY) is None
    assert sample_score([], [], PageMetric.ALL_SAMPLES) == (1.0, 1.0, 1.0)
    assert sample_score([3], [], PageMetric.ALL_SAMPLES) == (0.0, 0.0, 0.0)
    assert sample_score([], [], PageMetric.DOCLENS) == (0.0, 1.0, 0.0)
    assert sample_score([3], [], PageMetric.SIMPLEDOC) == (0.0, 1.0, 0.0)
    assert sample_score([], [], PageMetric.SIMPLEDOC) == (1.0, 1.0, 1.0)


def test_means_are_over_samples():
    samples = [([1], [1]), ([1, 2], [2]), ([5], [])]
    subset = page_score(samples, PageMetric.GOLD_NONEMPTY)
    assert (subset.precision, subset.recall, subset.num_samples, subset.mean_pages) == (0.75, 1.0, 2, 1.5)
    assert subset.f1 == pytest.approx((1 + 2 / 3) / 2)
    assert page_score(samples, PageMetric.ALL_SAMPLES).f1 == pytest.approx((1 + 2 / 3) / 3)
    assert page_score([]).num_samples == 0


@settings(deadline=None)
@given(st.lists(st.tuples(pages, pages), max_size=8), st.sampled_from(PageMetric))
def test_scores_lie_in_range_and_the_oracle_is_perfect(samples, metric):
    score = page_score(samples, metric)
    assert 0 <= score.precision <= 1
    assert 0 <= score.recall <= 1
    assert 0 <= score.f1 <= 1
    oracle = page_score([(gold, gold) for _, gold in samples if gold], metric)
    assert oracle.num_samples == 0 or (oracle.precision, oracle.recall, oracle.f1) == (1, 1, 1)
    assert page_score(samples[::-1], metric) == score


def test_rankings():
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


def test_overlap_and_subsets():
    assert lexical_overlap("Who built the tower?", "The tower was built", str.split) == pytest.approx(1 / 2)
    assert lexical_overlap("?", "a", str.split) == 0.0
    low, high = split_at_median({"a": 0.1, "b": 0.5, "c": 0.5, "d": 0.9})
    assert (low, high) == ({"a"}, {"b", "c", "d"})
    assert split_at_median({}) == (set(), set())


def test_labels_are_read(tmp_path):
    path = tmp_path / "labels.jsonl"
    path.write_text('{"id": "a", "pages": [3, 1, 3]}\n{"id": "b", "pages": []}\n', encoding="utf-8")
    assert read_page_labels(path) == {"a": (1, 3), "b": ()}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x", "line 1: not JSON"),
        ('{"id": "a"}', "line 1: needs a text 'id' and a list 'pages'"),
        ('{"id": "a", "pages": [0]}', "pages are \\[0\\]; they must be integers from 1"),
        ('{"id": "a", "pages": [1]}\n{"id": "a", "pages": [1]}', "line 2: the id 'a' occurs twice"),
    ],
)
def test_broken_labels_are_named(tmp_path, content, message):
    path = tmp_path / "labels.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_page_labels(path)


def test_a_file_of_labels_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InputError, match="no file at"):
        read_page_labels(tmp_path / "none.jsonl")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path, tmp_path / "bytes.jsonl"):
        with pytest.raises(InputError, match="cannot be read"):
            read_page_labels(path)


# ── Beside other selectors ───────────────────────────────────────────────────────────────────────

FILLER = "nothing of note happened on that day, and the weather stayed as it was. " * 90


def forced_records() -> list[LongBenchRecord]:
    """Documents of several pages with one telling sentence far inside."""
    texts = [FILLER + f"The lantern of Vell{n} was found in the mill. " + FILLER for n in range(4)]
    return [
        LongBenchRecord(f"r{n}", "hotpotqa", f"Where was the lantern of Vell{n} found?", text, ("mill",), 1, "en", None)
        for n, text in enumerate(texts)
    ]


def telling_page(record: LongBenchRecord) -> int:
    document = render_text(record.context, "seer")
    return document.page_at(record.context.index("lantern")).number


def test_selectors_get_the_budget_of_the_run():
    records = forced_records()
    gold = {record.id: (telling_page(record),) for record in records[:3]} | {"r3": ()}
    own = {"r0": gold["r0"], "r1": (99,), "r2": (), "r3": ()}
    budgets = {identifier: max(1, len(pages)) for identifier, pages in own.items()}
    documents = select_with_budgets(records, gold, budgets, seed=3)
    for name in ("bm25", "first", "random"):
        assert {one: len(pages) for one, pages in documents.selections[name].items()} == budgets
    rows = {row.name: row for row in selector_rows("mine", own, gold, documents)}
    assert list(rows) == [
        "mine",
        "bm25, matched budget",
        "first, matched budget",
        "random, matched budget",
        "all",
        "oracle",
    ]
    assert rows["oracle"].gold_nonempty.f1 == rows["oracle"].all_samples.f1 == 1
    assert rows["bm25, matched budget"].gold_nonempty.recall == 1, "the words stand on that page"
    assert rows["all"].gold_nonempty.recall == 1
    assert rows["mine"].gold_nonempty.f1 == pytest.approx(1 / 3)
    assert rows["mine"].all_samples.f1 == pytest.approx((1 + 0 + 0 + 1) / 4)
    assert rows["mine"].gold_nonempty.num_samples == 3
    assert rows["mine"].many_pages is None
    assert all(0.5 < overlap <= 1 for overlap in documents.overlaps.values())
    assert set(documents.overlaps) == {"r0", "r1", "r2"}


def test_inputs_without_a_label_or_a_budget_are_left_out():
    documents = select_with_budgets(forced_records(), {"r0": (1,)}, {"r0": 1, "r1": 1})
    assert set(documents.selections["all"]) == {"r0"}


def test_budgets_by_id_do_not_mix_tasks(tmp_path):
    for task, pages in (("hotpotqa", (1, 2, 3)), ("musique", (4,))):
        one = Prediction(id="same", task=task, pred="x", answers=("x",), status=Status.ANSWERED, selected_pages=pages)
        (tmp_path / f"{task}.jsonl").write_text(f"{to_line(one)}\n", encoding="utf-8")
    with pytest.raises(InputError, match="'same' occurs in two tasks"):
        matched_budgets(tmp_path)
    (tmp_path / "musique.jsonl").unlink()
    assert matched_budgets(tmp_path) == {"same": 3}
