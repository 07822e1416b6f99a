"""lm-evaluation-harness through `seer serve`: conversion of prompts, and a real run if the harness is installed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import small_encoder
from fixtures.data.teacher_server import Say, serve
from hypothesis import given
from hypothesis import strategies as st
from serving_fakes import listening
from typer.testing import CliRunner

from seer.cli.eval.main import app
from seer.errors import InputError
from seer.evaluation.harness.chats import chat_of, cut_at_stops, render_chat, sampling_of, take_apart

TASK = """
task: small_lookup
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "Read this.\\n\\n{{{{context}}}}\\n\\nQuestion: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{max_gen_toks: 16, do_sample: false, until: ["\\n"]}}
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
"""


def test_take_apart_splits_prompt_into_document_and_question():
    record = {"context": "  It rained.\n", "question": "Did it rain?"}
    document, question = take_apart("Read.\n\n  It rained.\n\n\nDid it rain?\nAnswer:", record)
    assert (document, question) == ("  It rained.\n", "Read.\n\nDid it rain?\nAnswer:")
    assert take_apart("It rained.\n\nDid it?", record) == (record["context"], "Did it?"), "the harness strips prompts"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, "have no text 'context'"),
        ({"context": " "}, "have no text"),
        ({"context": "x"}, "does not contain its record's .context.; set num_fewshot to 0"),
    ],
)
def test_take_apart_rejects_record_without_document(record, message):
    with pytest.raises(InputError, match=message):
        take_apart("Is it?", record)


@given(st.text(min_size=1), st.text())
def test_chat_of_sends_document_unchanged(document, question):
    (message,) = render_chat(chat_of(document, question), {})
    file, text = message["content"]
    data = base64.b64decode(file["file"]["file_data"].partition(",")[2])
    assert data == document.encode("utf-8", "replace")
    assert text["text"] == question


def test_sampling_and_stops_follow_task():
    arguments = {"max_gen_toks": 32, "temperature": 1, "do_sample": False}
    assert sampling_of(arguments, 100) == {"temperature": 0.0, "max_tokens": 132}
    assert sampling_of({"do_sample": True, "temperature": 0.5}, 0) == {"temperature": 0.5, "max_tokens": 256}
    assert cut_at_stops("\nParis\nLondon", ["\n"]) == "Paris"
    assert cut_at_stops(" a b", None) == " a b"
    assert cut_at_stops("a. b", ".") == "a"


@pytest.fixture
def task_folder(tmp_path: Path) -> Path:
    pytest.importorskip("lm_eval", reason="the extra lm-eval is not installed")
    folder = tmp_path / "tasks"
    folder.mkdir()
    rows = [{"context": f"{n * n}\nis a square.", "question": "Which?", "answer": str(n * n)} for n in range(5)]
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "small.yaml").write_text(TASK.format(data=data), encoding="utf-8")
    return folder


@pytest.fixture
def seer_url() -> Iterator[str]:
    """A real server with the scripted engine, which answers with the first line of page 1."""
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    from seer.engines.batched import BatchedEngine
    from seer.engines.scripted import ScriptedEngine
    from seer.reading.policy import ReadingPolicy
    from seer.serving.server import create_app
    from seer.serving.settings import ServeSettings

    engine = BatchedEngine(ScriptedEngine(encoder=small_encoder()))
    with listening(create_app(engine, ReadingPolicy(), ServeSettings())) as address:
        yield f"{address}/v1"


def run(task_folder: Path, url: str, out: Path, *more: str):
    arguments = ["harness", "--base-url", url, "--tasks", "small_lookup", "--include", str(task_folder)]
    return CliRunner().invoke(app, [*arguments, "--out", str(out), *more])


def test_harness_scores_answers_of_server(task_folder, seer_url, tmp_path):
    out = tmp_path / "out"
    result = run(task_folder, seer_url, out)
    assert result.exit_code == 0, result.output
    results = json.loads((out / "results.json").read_text())
    assert results["results"]["small_lookup"]["exact_match,none"] == 1.0
    assert (results["requests"], results["failed"]) == (5, 0)
    assert len((out / "ledger.jsonl").read_text().splitlines()) == 5
    assert run(task_folder, seer_url, out, "--limit", "2").exit_code == 0
    assert len((out / "ledger.jsonl").read_text().splitlines()) == 5, "finished calls are not repeated"


def test_harness_counts_failed_requests_and_stops_at_unusable_server(task_folder, tmp_path):
    with serve(lambda body, n: Say(status=400) if n == 0 else Say("4")) as server:
        assert run(task_folder, server.base_url, tmp_path / "a").exit_code == 0
    results = json.loads((tmp_path / "a/results.json").read_text())
    assert results["failed"] == 1
    assert results["results"]["small_lookup"]["exact_match,none"] <= 0.2
    with serve(lambda body, n: Say(status=401)) as server:
        assert "401" in str(run(task_folder, server.base_url, tmp_path / "b").exception)
    arguments = ["harness", "--base-url", "http://127.0.0.1:9/v1", "--out", str(tmp_path / "c"), "--tasks", "no_such"]
    assert "has no task 'no_such'" in str(CliRunner().invoke(app, arguments).exception)
