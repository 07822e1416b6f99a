"""LongBench's tasks, records and prompts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seer.errors import InputError
from seer.evaluation.benchmarks.longbench import read_records
from seer.evaluation.benchmarks.tasks import LONGBENCH, TASKS, build_question, load_templates


def write_lines(path: Path, lines: list[dict]) -> None:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


def test_longbench_has_21_tasks_in_six_categories():
    assert len(TASKS) == 21
    assert LONGBENCH.num_records == 4750
    assert len(LONGBENCH.categories) == 6
    assert {task.category for task in TASKS.values()} == set(LONGBENCH.categories)
    assert {task.name for task in TASKS.values() if task.first_line} == {"trec", "triviaqa", "samsum", "lsht"}
    assert {task.name for task in TASKS.values() if not task.chat} == {
        *("trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p")
    }


def test_longbench_tasks_marked_in_glyphs_evaluation_have_newline_marks():
    marked = "passage_retrieval_en hotpotqa narrativeqa qmsum gov_report vcsum triviaqa multi_news dureader qasper samsum trec"
    assert {name for name, task in TASKS.items() if task.newline == "mark"} == set(marked.split())
    assert all(task.newline in ("mark", "break") for task in TASKS.values())


def test_read_records_reads_records_of_every_task(shared_data):
    num_records = 0
    for task in TASKS.values():
        records = list(read_records(shared_data / f"longbench/samples/{task.name}.jsonl", task))
        assert len({record.id for record in records}) == len(records)
        assert all(record.answers and record.context for record in records)
        num_records += len(records)
    assert num_records == 237


def test_read_records_accepts_question_and_creates_missing_id(tmp_path):
    task = LONGBENCH.find("qasper")
    fields = {"question": "Why?", "context": "Because.\u2028", "answers": ["so"], "_id": None}
    write_lines(tmp_path / "qasper.jsonl", [fields, fields | {"_id": "x7"}])
    first, second = read_records(tmp_path / "qasper.jsonl", task)
    assert (first.id, second.id) == ("qasper-0000", "x7")
    assert (first.input, first.context, first.length, first.language) == ("Why?", "Because.\u2028", None, "en")


def test_build_question_contains_input_once_and_keeps_braces():
    for task in TASKS.values():
        question = build_question(task, "what is {this}?")
        expected = 0 if task.input_ends_document else 1
        assert question.count("what is {this}?") == expected
        assert "{input}" not in question


def test_build_question_uses_templates_of_dataset2prompt_format(tmp_path):
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps({"qasper": "Read.\n{context}\n\nAsked: {input}\nReply:"}), encoding="utf-8")
    templates = load_templates(path)
    question = build_question(LONGBENCH.find("qasper"), "why {context}?", templates)
    assert question == "Read.\n\n\nAsked: why {context}?\nReply:"
    with pytest.raises(InputError, match="no template for 'trec'"):
        build_question(LONGBENCH.find("trec"), "x", templates)
    path.write_text('{"qasper": "no place for it"}', encoding="utf-8")
    with pytest.raises(InputError, match=r"lacks \{context\}"):
        load_templates(path)


@pytest.mark.parametrize("record", [{"context": "x"}, {"input": "x"}, {"input": 5, "context": "x"}])
def test_read_records_names_the_line_and_the_fields_that_it_needs(tmp_path, record):
    write_lines(tmp_path / "hotpotqa.jsonl", [{"input": "a", "context": "b", "answers": ["c"]}, record])
    with pytest.raises(InputError, match=r"line 2: .* must be texts; the record has (context|input) \((str|int)\)"):
        list(read_records(tmp_path / "hotpotqa.jsonl", TASKS["hotpotqa"]))
