"""Page selection compared with fixed selectors of the same budgets."""

from __future__ import annotations

import pytest

from seer.evaluation.analysis.selector_baselines import select_with_budgets, selector_rows
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.rendering import render_text

FILLER = "nothing of note happened on that day, and the weather stayed as it was. " * 90


def make_records() -> list[LongBenchRecord]:
    """Return records whose documents have several pages and one sentence with the answer in the middle."""
    texts = [FILLER + f"The lantern of Vell{n} was found in the mill. " + FILLER for n in range(4)]
    return [
        LongBenchRecord(f"r{n}", "hotpotqa", f"Where was the lantern of Vell{n} found?", text, ("mill",), 1, "en", None)
        for n, text in enumerate(texts)
    ]


def answer_page(record: LongBenchRecord) -> int:
    document = render_text(record.context, "seer")
    return document.page_at(record.context.index("lantern")).number


def test_selector_rows_compare_selectors_with_budgets_of_run():
    records = make_records()
    gold = {record.id: (answer_page(record),) for record in records[:3]} | {"r3": ()}
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
    assert rows["bm25, matched budget"].gold_nonempty.recall == 1, "the question's words occur on that page"
    assert rows["all"].gold_nonempty.recall == 1
    assert rows["mine"].gold_nonempty.f1 == pytest.approx(1 / 3)
    assert rows["mine"].all_samples.f1 == pytest.approx((1 + 0 + 0 + 1) / 4)
    assert rows["mine"].gold_nonempty.num_samples == 3
    assert rows["mine"].many_pages is None
    assert all(0.5 < overlap <= 1 for overlap in documents.overlaps.values())
    assert set(documents.overlaps) == {"r0", "r1", "r2"}


def test_select_with_budgets_skips_inputs_without_label_or_budget():
    documents = select_with_budgets(make_records(), {"r0": (1,)}, {"r0": 1, "r1": 1})
    assert set(documents.selections["all"]) == {"r0"}
