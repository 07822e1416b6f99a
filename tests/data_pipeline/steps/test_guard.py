"""The leakage guard rejects text of a benchmark, whatever its case and punctuation, and accepts other text."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.records import Sample
from data_pipeline.settings import GuardSpec, SourceSpec
from data_pipeline.sources.registry import load_source
from data_pipeline.steps.guard import BenchmarkIndex, LeakageGuard
from data_pipeline.steps.ngrams import (
    QUESTION_GRAM_CHARS,
    Grams,
    RollingHash,
    context_grams,
    distinct_grams,
    letters,
    with_sentinel,
)
from seer.errors import DocumentNotFound, InputError


def words(seed: int, count: int) -> str:
    generator = random.Random(seed)
    return " ".join("".join(generator.choices("abcdefghijklmnop", k=generator.randint(3, 9))) for _ in range(count))


def benchmark(tmp_path: Path) -> Path:
    folder = tmp_path / "bench"
    folder.mkdir(exist_ok=True)
    rows = [
        {"input": f"What colour is the {words(n, 3)} of {words(n + 50, 2)}?", "context": words(n + 100, 800)}
        for n in range(6)
    ]
    rows.append(
        {"input": "Passage:\nText.\nQuestion: Which valley kept the most geese?\nAnswer:", "context": words(300, 50)}
    )
    rows.append(
        {
            "input": "坦伯河流经哪一座古老的城市？",
            "context": "坦伯河是一条很长的河，流经奥尔拉。" * 3 + "河边有很多鹅和面包师，他们都写日记。",
        }
    )
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def sample(question: str = "Something else entirely, is it?", context: str = "Short.") -> Sample:
    return Sample(id="1", source="s", question=question, context=context, answers=("a",))


def reason(guard: LeakageGuard, item: Sample) -> str:
    found = guard.check(item)
    return found.reason if found else ""


def test_guard_rejects_leaked_question_despite_case_and_marks(tmp_path: Path) -> None:
    guard = LeakageGuard(BenchmarkIndex.from_folder(benchmark(tmp_path)), GuardSpec())
    question = f"What colour is the {words(2, 3)} of {words(52, 2)}?"
    assert reason(guard, sample(question)) == "leaked_question"
    assert reason(guard, sample(f"  {question.upper().replace(' ', '  ')}!")) == "leaked_question"
    assert reason(guard, sample("which VALLEY kept the most geese")) == "leaked_question"
    assert reason(guard, sample("坦伯河流经哪一座古老的城市")) == "leaked_question"
    assert reason(guard, sample("What colour is the mill of Orla?")) == ""
    assert reason(guard, sample("Who?")) == ""


def test_guard_rejects_context_with_large_overlap(tmp_path: Path) -> None:
    guard = LeakageGuard(BenchmarkIndex.from_folder(benchmark(tmp_path)), GuardSpec(max_context_overlap=0.5))
    leaked = words(103, 800)
    assert reason(guard, sample(context=leaked)) == "leaked_context"
    assert reason(guard, sample(context=leaked.upper().replace(" ", "\n"))) == "leaked_context"
    assert reason(guard, sample(context=leaked + words(900, 300))) == "leaked_context"
    assert reason(guard, sample(context=leaked[:1500] + words(901, 800))) == ""
    assert reason(guard, sample(context=words(902, 800))) == ""
    report = guard.report()
    assert sum(report["context_overlap"]["s"].values()) == 5
    assert report["benchmark_records"] == 8


def test_guard_ignores_fixed_question_of_a_source(tmp_path: Path) -> None:
    folder = benchmark(tmp_path)
    with (folder / "tasks.jsonl").open("a") as file:
        file.write(json.dumps({"input": "What is the next line of this code?", "context": "x"}) + "\n")
    guard = LeakageGuard(BenchmarkIndex.from_folder(folder), GuardSpec())
    assert reason(guard, replace(sample("What is the next line of this code?"), kind="code")) == ""


def test_index_saved_and_loaded_is_unchanged(tmp_path: Path) -> None:
    index = BenchmarkIndex.from_folder(benchmark(tmp_path))
    index.save(tmp_path / "a.npz")
    index.save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    loaded = BenchmarkIndex.load(tmp_path / "a.npz")
    assert np.array_equal(loaded.context_grams, index.context_grams)
    assert np.array_equal(loaded.questions, index.questions)
    assert loaded.records == index.records


def test_index_load_rejects_invalid_files(tmp_path: Path) -> None:
    with pytest.raises(DocumentNotFound, match=r"gone\.npz"):
        BenchmarkIndex.load(tmp_path / "gone.npz")
    (tmp_path / "bad.npz").write_bytes(b"no")
    with pytest.raises(InputError, match="not a guard index"):
        BenchmarkIndex.load(tmp_path / "bad.npz")
    (tmp_path / "rows.jsonl").write_text('{"question": "x"}\n')
    with pytest.raises(InputError, match="'context'"):
        BenchmarkIndex.load(tmp_path / "rows.jsonl")
    (tmp_path / "broken.jsonl").write_text("{\n")
    with pytest.raises(InputError, match="whole benchmark"):
        BenchmarkIndex.load(tmp_path / "broken.jsonl")


@settings(deadline=None)
@given(st.text(max_size=200), st.integers(1, 12))
def test_distinct_grams_match_naive_windows(text: str, length: int) -> None:
    codes = letters(text)
    runs = {tuple(codes[i : i + length].tolist()) for i in range(len(codes) - length + 1)}
    assert len(distinct_grams(text, length)) == len(runs)


@settings(deadline=None)
@given(st.text(min_size=20, max_size=300), st.text(max_size=50), st.text(max_size=50))
def test_fractions_in_for_contained_text_is_one(text: str, before: str, after: str) -> None:
    inside = distinct_grams(text, 8)
    if len(inside):
        index = with_sentinel(distinct_grams(before + text + after, 8))
        assert Grams(inside, np.zeros(len(inside), np.intp)).fractions_in(index, 1) == [1.0]


@settings(deadline=None)
@given(st.text(max_size=300))
def test_context_grams_ignore_case_space_and_marks(text: str) -> None:
    if all(character.casefold() == character.lower() for character in text):
        changed = " -- ".join(text)
        assert np.array_equal(context_grams([text]).hashes, context_grams([changed]).hashes)


@settings(deadline=None)
@given(st.lists(st.text(alphabet="aBcd ,坦伯河", max_size=400), min_size=1, max_size=6), st.integers(0, 63))
def test_overlaps_of_batch_match_single_samples(texts: list[str], chosen: int) -> None:
    known = ["nothing", *(text[:200] for number, text in enumerate(texts) if chosen >> number & 1)]
    hashes = RollingHash([letters(text) for text in known])
    grams_of = (hashes.whole_texts(), hashes.grams(QUESTION_GRAM_CHARS).hashes, context_grams(known).hashes)
    guard = LeakageGuard(BenchmarkIndex(*(np.unique(each) for each in grams_of), records=len(known)), GuardSpec())
    samples = [sample(question=text, context=text) for text in texts]
    assert guard.overlaps(samples) == [guard.overlaps([one])[0] for one in samples]


def test_context_grams_sample_one_in_sixteen() -> None:
    text = words(1, 20_000)
    assert 0.05 < len(context_grams([text]).hashes) / len(letters(text)) < 0.075


def test_guard_rejects_longbench_contexts(shared_data: Path) -> None:
    folder = shared_data / "longbench" / "samples"
    guard = LeakageGuard(BenchmarkIndex.from_folder(folder), GuardSpec())
    leaked = checked = 0
    for name in ("hotpotqa", "qasper", "dureader", "lcc", "gov_report"):
        for line in (folder / f"{name}.jsonl").read_text().splitlines()[:5]:
            row = json.loads(line)
            leaked += guard.check(sample(context=row["context"])) is not None
            checked += 1
    assert leaked == checked == 25


def test_guard_rejects_only_sources_rebuilt_from_longbench(shared_data: Path) -> None:
    """The sample files of GovReport and LCC were rebuilt from LongBench, so each of their records is a leak."""
    guard = LeakageGuard(BenchmarkIndex.from_folder(shared_data / "longbench" / "samples"), GuardSpec())
    refused = {}
    for kind, name in (
        ("gov_report", "gov_report_shape_from_longbench"),
        ("lcc_python", "lcc_shape_from_longbench"),
        ("hotpotqa", "hotpotqa"),
        ("2wikimqa", "2wikimqa_train_split"),
    ):
        path = shared_data / "train_sources" / f"{name}.jsonl"
        spec = SourceSpec(kind=kind, path=str(path), split="dev", allow_other_splits=True)
        samples = [item for item in load_source(spec) if isinstance(item, Sample)]
        refused[kind] = (sum(guard.check(item) is not None for item in samples), len(samples))
    assert refused == {"gov_report": (12, 12), "lcc_python": (26, 26), "hotpotqa": (0, 40), "2wikimqa": (0, 20)}


def test_index_load_rejects_another_format_version(tmp_path: Path) -> None:
    np.savez(tmp_path / "old.npz", version=np.int64(0))
    with pytest.raises(
        InputError, match=r"old.npz' has another format version; create it again with `seer-data guard`"
    ):
        BenchmarkIndex.load(tmp_path / "old.npz")
    np.savez(tmp_path / "other.npz", x=np.int64(0))
    with pytest.raises(InputError, match=r"other.npz' is not a guard index: .*; create one with `seer-data guard`"):
        BenchmarkIndex.load(tmp_path / "other.npz")
