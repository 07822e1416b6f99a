"""Sources as people download them: folders with split lists, JSON Lines named .json, stories beside a table, Parquet parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fixtures.data.downloads import SUMMARY, write_gov_report, write_narrativeqa

from data_pipeline.build import build
from data_pipeline.records import Rejection, Sample
from data_pipeline.settings import BuildConfig, SourceSpec
from data_pipeline.sources import rawfiles
from data_pipeline.sources.registry import load_source
from seer.errors import DocumentNotFound, InputError


def load(kind: str, path: Path, **spec: Any) -> list[Sample | Rejection]:
    return list(load_source(SourceSpec(kind=kind, path=str(path), split="train", **spec)))


def samples(items: list[Sample | Rejection]) -> list[Sample]:
    assert all(isinstance(item, Sample) for item in items), items
    return [item for item in items if isinstance(item, Sample)]


# ── GovReport ────────────────────────────────────────────────────────────────────────────────────


def test_gov_report_folder_reads_only_the_split_list(tmp_path: Path) -> None:
    folder = write_gov_report(tmp_path)
    found = samples(load("gov_report", folder))
    assert [sample.id for sample in found] == ["R1", "GAO-0", "GAO-1", "GAO-2", "GAO-3"]
    assert found[0].answers == ("The agency spent more on roads than on rails\n\nIt has no plan for bridges.",)
    assert found[1].answers == (SUMMARY,)
    assert found[1].context.startswith("What GAO Found\n\nThe agency")
    assert {sample.task for sample in found} == {"gov_report"}
    spec = SourceSpec(kind="gov_report", path=str(folder), split="validation", allow_other_splits=True)
    assert [item.id for item in load_source(spec)] == ["GAO-valid"]


def test_gov_report_folder_without_split_lists_fails(tmp_path: Path) -> None:
    folder = write_gov_report(tmp_path)
    for path in (folder / "split_ids").iterdir():
        path.unlink()
    with pytest.raises(
        InputError, match=r"reports of all splits and no split_ids/crs_train\.ids or split_ids/gao_train\.ids"
    ):
        load("gov_report", folder)


def test_gov_report_split_list_rejects_missing_broken_and_outside_reports(tmp_path: Path) -> None:
    folder = write_gov_report(tmp_path)
    (tmp_path / "secret.json").write_text('{"report": "secret", "summary": "secret"}')
    (folder / "gao" / "BAD.json").write_text("[1]")
    (folder / "split_ids" / "gao_train.ids").write_text("GAO-9\nBAD\n../../secret\n")
    items = load("gov_report", folder)
    assert [item.reason for item in items if isinstance(item, Rejection)] == [
        "missing_text",
        "broken_json",
        "missing_text",
    ]
    assert [item.id for item in items if isinstance(item, Sample)] == ["R1"]


def test_gov_report_reads_hub_rows_of_document_and_summary(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"id": "GAO-1", "document": "Money was spent.", "summary": "Spent."}) + "\n")
    (sample,) = samples(load("gov_report", path))
    assert (sample.context, sample.answers) == ("Money was spent.", ("Spent.",))


# ── NarrativeQA ──────────────────────────────────────────────────────────────────────────────────


def test_narrativeqa_official_tables_read_stories_and_text_of_html_scripts(tmp_path: Path) -> None:
    folder = write_narrativeqa(tmp_path / "narrativeqa")
    first, second, other = load("narrativeqa", folder / "qaps.csv", texts=str(folder / "tmp"))
    assert isinstance(first, Sample) and isinstance(second, Sample)
    assert (first.question, first.answers, first.context) == (
        "Who left, and when?",
        ("Ann", "Ann did"),
        "Once upon a time Ann left.",
    )
    assert "Bob stayed & slept." in second.context and "<" not in second.context
    assert isinstance(other, Rejection) and other.reason == "not_train"


def test_narrativeqa_official_tables_read_summaries(tmp_path: Path) -> None:
    folder = write_narrativeqa(tmp_path / "narrativeqa")
    first, second, _ = load("narrativeqa", folder / "qaps.csv", texts=str(folder / "summaries.csv"))
    assert isinstance(first, Sample) and isinstance(second, Sample)
    assert first.context == ' Ann leaves "home".\nShe returns.'
    assert second.context == "Bob stays."
    (missing, *_) = load("narrativeqa", folder / "qaps.csv", texts=str(tmp_path))
    assert isinstance(missing, Rejection) and missing.reason == "missing_text" and "summaries.csv" in missing.detail
    with pytest.raises(DocumentNotFound, match=r"pass the official qaps\.csv"):
        load("narrativeqa", folder / "none.csv")


# ── DuReader, QMSum, LCC ─────────────────────────────────────────────────────────────────────────

DUREADER = {
    "documents": [
        {"is_selected": True, "title": "河流", "most_related_para": 1, "paragraphs": ["很多河。", "坦伯河流经奥尔拉。"],
         "segmented_title": ["河流"], "segmented_paragraphs": [["很多", "河", "。"], ["坦伯河"]]},
    ],
    "answer_spans": [[0, 2]], "answer_docs": [0], "fake_answers": ["坦伯河流经奥尔拉。"], "answers": ["奥尔拉"],
    "question": "坦伯河流经哪里？", "question_type": "ENTITY", "question_id": 7, "fact_or_opinion": "FACT",
    "match_scores": [1.0], "segmented_question": ["坦伯河"], "segmented_answers": [["奥尔拉"]],
}  # fmt: skip


def test_dureader_json_lines_named_json_are_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "search.train.json"
    rows = [{**DUREADER, "question_id": n} for n in range(3)]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    # The preprocessed files have several gigabytes: none of them may be loaded at once.
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("the file was loaded at once"))
    found = samples(load("dureader", path))
    assert [sample.id for sample in found] == ["0", "1", "2"]
    assert [found[0].context[item.start : item.end] for item in found[0].evidence or ()] == ["坦伯河流经奥尔拉。"]
    assert found[0].task == "dureader"


def test_json_of_one_object_on_one_line_is_not_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"a": {"n": 1}, "b": {"n": 2}}) + "\n")
    assert [row["id"] for row in rawfiles.read_rows(str(path)) if not isinstance(row, Rejection)] == ["a", "b"]


def test_qmsum_official_file_keeps_topics_out_of_the_context(tmp_path: Path) -> None:
    meeting = {
        "topic_list": [{"topic": "Hidden topic", "relevant_text_span": [["0", "1"]]}],
        "general_query_list": [{"query": "Summarize the whole meeting.", "answer": "They spoke."}],
        "specific_query_list": [{"query": "What did B say?", "answer": "One.", "relevant_text_span": [["1", "1"]]}],
        "meeting_transcripts": [{"speaker": name, "content": f"I say {n}."} for n, name in enumerate("AB")],
    }
    path = tmp_path / "data" / "ALL" / "jsonl" / "train.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(meeting) + "\n")
    general, specific = samples(load("qmsum", path))
    assert "Hidden topic" not in general.context
    assert (general.kind, general.task) == ("summary", "qmsum")
    assert specific.evidence is not None


def test_lcc_parquet_parts_read_only_the_train_split(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "data").mkdir()
    for number, name in enumerate(
        ["train-00000-of-00002-ab", "train-00001-of-00002-cd", "validation-00000-of-00001-ef"]
    ):
        table = pa.Table.from_pylist([{"context": f"def f{number}():\n", "gt": f"    return {number}"}])
        pq.write_table(table, tmp_path / "data" / f"{name}.parquet")
    assert [sample.answers for sample in samples(load("lcc_python", tmp_path / "data"))] == [
        ("    return 0",),
        ("    return 1",),
    ]


# ── Counted only ─────────────────────────────────────────────────────────────────────────────────


def test_build_counts_an_excluded_source_without_writing_it(tmp_path: Path) -> None:
    rows = [
        {"id": n, "question": f"How many {n}?", "context": f"There are {n + 40}.", "answers": [str(n + 40)]}
        for n in range(6)
    ]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sources = (
        SourceSpec(path=str(path), name="used"),
        SourceSpec(path=str(path), name="counted", include=False, target=2),
    )
    config = BuildConfig.model_validate({"out": str(tmp_path / "out"), "sources": sources, "judge": {"kind": "answer"}})
    report = build(config)
    assert report.sets["train"].rows == 6
    counted = report.statistics["sources"]["counted"]
    assert (counted["retention"]["reason"], counted["written"]) == (2, 0)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "counted only, no record is in the set" in card and "| counted | 2 | 2 |" in card


def test_triviaqa_question_whose_documents_lack_the_answer_is_rejected(tmp_path: Path) -> None:
    page = {"Title": "Orla", "wiki_context": "Orla is a town."}
    path = tmp_path / "train.jsonl"
    row = {"QuestionId": "q1", "Question": "Who?", "Answer": {"Value": "Tamber"}, "EntityPages": [page]}
    path.write_text(json.dumps(row), encoding="utf-8")
    (rejected,) = load("triviaqa", path)
    assert isinstance(rejected, Rejection) and rejected.reason == "answer_not_in_context"
    assert rejected.detail == "q1: no evidence document contains an answer"
    path.write_text(
        json.dumps(row | {"EntityPages": [page | {"wiki_context": "TAMBER lived in Orla."}]}), encoding="utf-8"
    )
    (found,) = samples(load("triviaqa", path))
    assert found.context == "TAMBER lived in Orla."
