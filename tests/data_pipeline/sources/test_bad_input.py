"""Bad records are rejected with a reason, and loading continues."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from data_pipeline.build import build
from data_pipeline.records import Rejection, Sample
from data_pipeline.settings import BuildConfig, SourceSpec
from data_pipeline.sources.registry import load_source
from data_pipeline.steps.prepare import Preparation
from seer.errors import InputError
from seer.shards.reader import ShardSet

GOOD = {"id": "g", "question": "How many?", "context": "There are two.", "answers": ["two"]}


def reasons(tmp_path: Path, data: bytes, **spec: Any) -> list[str]:
    path = tmp_path / "train.jsonl"
    path.write_bytes(data)
    items = load_source(SourceSpec(path=str(path), **spec), max_bytes=4096)
    return ["ok" if isinstance(item, Sample) else item.reason for item in items]


def line(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode() + b"\n"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"id": "x", "question": "Wh\n', "broken_json"),
        (b"[1, 2]\n", "broken_json"),
        (b"null\n", "broken_json"),
        (b"[" * 3000 + b"\n", "broken_json"),
        (b'{"question": "caf\xe9", "context": "x", "answers": ["x"]}\n', "not_utf8"),
        (b'{"question": "Who?", "answers": ["x"]}\n', "missing_field"),
        (b'{"question": "Who?", "context": "x"}\n', "missing_field"),
        (line(question=5), "wrong_type"),
        (line(context=["a"]), "wrong_type"),
        (line(answers={"a": 1}), "wrong_type"),
        (line(question=" \n"), "empty_question"),
        (line(context=""), "empty_context"),
        (line(context=" \n\t"), "empty_context"),
        (line(answers=[]), "no_answer"),
        (line(answers=["", " "]), "no_answer"),
        (line(context="x" * 9000), "too_large"),
        (line(evidence=["nowhere"]), "wrong_type"),
        (line(evidence=[[5, 2]]), "wrong_type"),
        (line(evidence=[[0, 999]]), "wrong_type"),
        (line(evidence=[7]), "wrong_type"),
    ],
)
def test_load_source_rejects_bad_record_and_continues(tmp_path: Path, data: bytes, reason: str) -> None:
    assert reasons(tmp_path, line() + data + line(id="h")) == ["ok", reason, "ok"]


def test_load_source_with_answer_in_context_rejects_absent_answer(tmp_path: Path) -> None:
    data = line(answers=["seven"]) + line(answers=["TWO"])
    assert reasons(tmp_path, data) == ["ok", "ok"]
    assert reasons(tmp_path, data, answer_in_context=True) == ["answer_not_in_context", "ok"]


def test_load_source_accepts_bom_empty_lines_and_missing_newline(tmp_path: Path) -> None:
    assert reasons(tmp_path, b"\xef\xbb\xbf" + line() + b"\n \n" + line().rstrip()) == ["ok", "ok"]


def test_load_source_replaces_lone_surrogates(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(
        r'{"id": "s\ud800", "question": "How \ud800 many?", "context": "There are \udfff two.", "answers": ["two"]}'
    )
    (sample,) = load_source(SourceSpec(path=str(path)))
    assert isinstance(sample, Sample)
    assert (sample.id, sample.question, sample.context) == ("s\ufffd", "How \ufffd many?", "There are \ufffd two.")


def test_build_with_lone_surrogates_writes_record(tmp_path: Path) -> None:
    """Without replacement, the error would occur when the record is written, after its teacher calls were paid."""
    path = tmp_path / "train.json"
    row = {
        "_id": "a\ud800",
        "type": "bridge\udfff",
        "question": "Where is \ud800 it?",
        "context": [["Rome\udc00", ["It is in Rome.", " And \udc00 there."]]],
        "supporting_facts": [["Rome\udc00", 0]],
        "answer": "Rome",
    }
    path.write_text(json.dumps([row]))
    spec = {"kind": "hotpotqa", "path": str(path)}
    config = {"out": str(tmp_path / "out"), "sources": [spec], "style": "miniature"}
    assert build(BuildConfig.model_validate(config)).statistics["written"] == 1
    (trajectory,) = ShardSet(tmp_path / "out" / "train")
    assert (trajectory.id, trajectory.provenance["type"]) == ("hotpotqa/a\ufffd", "bridge\ufffd")


def test_load_source_skips_giant_line_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    with path.open("wb") as file:
        file.write(line())
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b"\n" + line(id="after"))
    tracemalloc.start()
    items = list(load_source(SourceSpec(path=str(path))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [type(item) for item in items] == [Sample, Rejection, Sample]
    assert peak < 80 << 20


def test_preparation_rejects_duplicate_id_within_source(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(line() + line(context="There are two more.") + line(id="other"))
    sources = (SourceSpec(path=str(path)), SourceSpec(path=str(path), name="again"))
    items = list(Preparation(BuildConfig(out=str(tmp_path), sources=sources)))
    found = [item.reason if isinstance(item, Rejection) else "ok" for item in items]
    assert found == ["ok", "duplicate_id", "ok"] * 2


@pytest.mark.parametrize("data", [b"{", b'"text"', b"3", b"\xff\xfe"])
def test_load_source_broken_json_file_fails(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "train.json"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"train\.json"):
        list(load_source(SourceSpec(path=str(path))))


def test_load_source_invalid_parquet_file_fails(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    path.write_bytes(b"not parquet")
    with pytest.raises(InputError, match="(?s)not readable Parquet: .*; download it again"):
        list(load_source(SourceSpec(path=str(path))))


DEEP: dict[str, Any] = {"section_title": "t", "paragraphs": ["p"]}
"""A report with sections that are nested too deeply."""
for _ in range(40):
    DEEP = {"section_title": "t", "subsections": [DEEP]}


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("hotpotqa", {"question": "Q?", "answer": "a", "context": "text"}),
        ("hotpotqa", {"question": "Q?", "answer": "a", "context": [["title"]]}),
        ("hotpotqa", {"question": "Q?", "answer": "a", "context": [["t", [1]]]}),
        ("hotpotqa", {"question": "Q?", "answer": "a", "context": [["t", ["s"]]], "supporting_facts": [["t", "0"]]}),
        ("hotpotqa", {"question": "Q?", "answer": "a", "context": {"title": ["a"], "sentences": []}}),
        ("musique", {"question": "Q?", "answer": "a", "paragraphs": "text"}),
        ("musique", {"question": "Q?", "answer": "a", "paragraphs": [1]}),
        ("qasper", {"paper": "p", "questions": "['a'", "answers": "[]"}),
        ("qasper", {"paper": "p", "questions": "['a']", "answers": "[]"}),
        ("qasper", {"title": "t", "full_text": "x", "qas": []}),
        ("qmsum", {"meeting_transcripts": [{"speaker": "A", "content": "x"}],
                   "specific_query_list": [{"query": "q", "answer": "a", "relevant_text_span": [["0", "9"]]}]}),
        ("qmsum", {"meeting_transcripts": [{"speaker": "A", "content": "x"}],
                   "specific_query_list": [{"query": "q", "answer": "a", "relevant_text_span": [["-1", "x"]]}]}),
        ("dureader", {"question": "q", "answers": ["a"], "documents": [{"title": "t", "paragraphs": [1]}]}),
        ("triviaqa", {"question": "q", "answer": "text"}),
        ("qasper", {"paper": "p", "questions": "{'a': 1}", "answers": "[]"}),
        ("gov_report", {"report": "text"}),
        ("gov_report", {"summary": "text"}),
        ("gov_report", {"report": DEEP, "summary": "text"}),
    ],
)  # fmt: skip
def test_load_source_rejects_unknown_row_shape(tmp_path: Path, kind: str, row: dict[str, Any]) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps(row))
    (item,) = load_source(SourceSpec(kind=kind, path=str(path)))
    assert isinstance(item, Rejection)
    assert item.reason in ("wrong_type", "missing_field")
    assert item.detail


def test_load_source_json_file_of_lines_with_a_broken_first_line_keeps_the_others(tmp_path: Path) -> None:
    """Some published .json files hold one object a line."""
    path = tmp_path / "train.json"
    path.write_bytes(b'{"id": "x", "question": "Wh\n' + line() + line(id="h"))
    items = list(load_source(SourceSpec(path=str(path))))
    assert ["ok" if isinstance(item, Sample) else item.reason for item in items] == ["broken_json", "ok", "ok"]


def test_load_source_json_list_rejects_entries_that_are_no_records(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps([GOOD, 5, GOOD | {"id": "h"}]))
    first, rejected, last = load_source(SourceSpec(path=str(path)))
    assert (rejected.reason, rejected.detail) == ("broken_json", "record 2 is int")
    assert (first.id, last.id) == ("g", "h")


def test_load_source_saved_dataset_without_the_split_names_those_it_has(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([GOOD])
    datasets.DatasetDict({"train": rows, "dev": rows}).save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(InputError, match="has no split 'trian'; it has train, dev"):
        list(load_source(SourceSpec(path=str(tmp_path / "saved"), split="trian", allow_other_splits=True)))


def test_load_source_stops_at_its_limit_within_one_row(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    questions = [{"query": f"q{n}", "answer": "a", "relevant_text_span": [["0", "0"]]} for n in range(3)]
    row = {"meeting_transcripts": [{"speaker": "A", "content": "x"}], "specific_query_list": questions}
    path.write_text(json.dumps(row))
    items = list(load_source(SourceSpec(kind="qmsum", path=str(path), limit=2)))
    assert [item.question for item in items] == ["q0", "q1"]


def test_load_source_keeps_a_report_that_only_looks_like_a_list(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"report": "[draft] Costs rose.", "summary": "Costs rose."}))
    (sample,) = load_source(SourceSpec(kind="gov_report", path=str(path)))
    assert sample.context.strip() == "[draft] Costs rose."
