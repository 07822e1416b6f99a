"""Properties of LongBench's tasks."""

from __future__ import annotations

from seer.evaluation.benchmarks.tasks import TASKS


def test_tasks_that_ask_for_facts_retrieve_passages():
    assert {name for name, task in TASKS.items() if task.retrieve == "passages"} == {
        *("narrativeqa", "qasper", "multifieldqa_en", "multifieldqa_zh"),
        *("hotpotqa", "2wikimqa", "musique", "dureader"),
        *("passage_retrieval_en", "passage_retrieval_zh"),
    }
