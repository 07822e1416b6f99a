"""The prediction loop: every input gets a result, a run can be killed at any time, and nothing is done twice."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.engines.base import Generation
from seer.engines.scripted import ScriptedEngine
from seer.errors import (
    ConfigError,
    EngineBusy,
    EngineError,
    EngineTimeout,
    EngineUnavailable,
    InputError,
    PromptTooLong,
    ProtocolError,
    RequestRefused,
)
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.files import RunFolder, read_predictions, read_run_manifest, to_line
from seer.evaluation.runs.loop import answer_every, is_worth_retrying
from seer.evaluation.runs.plan_longbench import PredictOptions, predict
from seer.evaluation.runs.score import score_folder
from seer.schema import Answer, Failure, Prediction, Status, Step, Usage
from seer.systems.base import Task
from seer.systems.build import build_system


def records(number: int, task: str = "hotpotqa") -> list[LongBenchRecord]:
    return [
        LongBenchRecord(f"{task}-{n}", task, f"question {n}?", f"text {n}", (f"answer {n}",), 2, "en", None)
        for n in range(number)
    ]


class Echo:
    """A system with correct answers that raises `error` as often for an input as `failures` says."""

    name = "echo"

    def __init__(self, failures: dict[str, int] | None = None, error: Exception | None = None) -> None:
        self.left = dict(failures or {})
        self.error = error or EngineError("no connection", retryable=True)
        self.calls: Counter[str] = Counter()
        self.tasks: list[Task] = []

    def answer_batch(self, tasks):
        self.tasks.extend(tasks)
        for task in tasks:
            self.calls[task.id] += 1
        for task in tasks:
            if self.left.get(task.id):
                self.left[task.id] -= len(tasks) == 1
                raise self.error
        return [self.answer(task) for task in tasks]

    def answer(self, task):
        trace = (
            Step(name="look", inputs={"question": task.question, "text": task.context}, pages=(1, 2, 3)),
            Step(name="answer", outputs={"text": "x"}, finish="stop"),
        )
        text = f"answer {task.id.rpartition('-')[2]}"
        return Answer(text=text, status=Status.ANSWERED, selected_pages=(2,), usage=Usage(prompt=7), trace=trace)


def test_predict_writes_one_prediction_per_record(tmp_path):
    summary = predict(records(5), Echo(), tmp_path, PredictOptions(batch_size=2))
    assert (summary.num_inputs, summary.num_predicted, summary.num_failed) == (5, 5, 0)
    predictions = read_predictions(tmp_path / "hotpotqa.jsonl")
    assert [one.id for one in predictions] == [f"hotpotqa-{n}" for n in range(5)]
    assert (predictions[0].pages, predictions[0].selected_pages, predictions[0].usage.prompt) == (3, (2,), 7)
    assert "text 0" not in predictions[0].model_dump_json(), "the text of the prompt is not stored"
    report = score_folder(tmp_path)
    assert report.scores == {"hotpotqa": 100.0}
    assert report.manifest["system"] == "echo"


@pytest.mark.parametrize("concurrency", [1, 3])
def test_predict_retries_failed_input_before_recording(tmp_path, concurrency):
    system = Echo({"hotpotqa-1": 2, "hotpotqa-2": 99})
    options = PredictOptions(batch_size=3, concurrency=concurrency, retry_rounds=3)
    summary = predict(records(7), system, tmp_path, options)
    assert (summary.num_predicted, summary.num_failed) == (7, 1)
    by_id = {one.id: one for one in read_predictions(tmp_path / "hotpotqa.jsonl")}
    assert by_id["hotpotqa-1"].status is Status.ANSWERED
    assert by_id["hotpotqa-2"].status is Status.FAILED
    assert by_id["hotpotqa-2"].cause == "EngineError: no connection (after 4 attempts)"
    assert by_id["hotpotqa-2"].failure == Failure.of(system.error)
    assert by_id["hotpotqa-1"].failure is None
    assert score_folder(tmp_path).scores == {"hotpotqa": 85.71}, "six of seven: failures stay in the denominator"


def test_predict_logs_and_records_unexpected_error(tmp_path, caplog):
    with caplog.at_level(logging.ERROR):
        summary = predict(records(3), Echo({"hotpotqa-1": 9}, ZeroDivisionError("oops")), tmp_path)
    assert summary.num_failed == 1
    assert "ZeroDivisionError" in caplog.text
    assert "Traceback" in caplog.text


def test_answer_every_fails_if_system_loses_answers():
    class Loses(Echo):
        def answer_batch(self, tasks):
            return []

    (answer,) = answer_every([Task("1", "text", "question")], Loses())
    assert "gave 0 answers to 1 questions" in answer.cause


def test_answer_batch_fails_only_invalid_questions():
    system = build_system("seer", engine="scripted")
    engine = system.reader.engine
    answers = system.answer_batch([Task("1", "text", "who?"), Task("2", "text", " "), Task("3", "", "who?")])
    assert [answer.status for answer in answers] == [Status.ANSWERED, Status.FAILED, Status.FAILED]
    assert "question is empty" in answers[1].cause
    assert len(engine.requests) == 2, "the other questions are not repeated"


@pytest.mark.parametrize(
    ("error", "name", "again"),
    [
        (EngineError("broke"), "select", True),
        (EngineBusy("busy"), "look", True),
        (EngineTimeout("slow"), "look", True),
        (EngineUnavailable("away"), "look", True),
        (EngineUnavailable("wrong key", retryable=False), "look", False),
        (PromptTooLong("long"), "look", False),
        (RequestRefused("no"), "look", False),
        (ProtocolError("invalid call"), "select", False),
        (InputError("unreadable"), "look", False),
        (None, "select", False),
    ],
)
def test_is_worth_retrying_depends_on_failure(error, name, again):
    step = Step(name=name, finish="stop" if name == "select" else "")
    failure = Failure.of(error) if error else None
    answer = Answer(text="", status=Status.FAILED, cause="why", failure=failure, trace=(step,))
    assert is_worth_retrying(answer) == again


@pytest.mark.parametrize(
    ("error", "attempts"), [(EngineBusy("busy", retry_after_s=2), 3), (RequestRefused("forbidden"), 1)]
)
def test_predict_records_failure_of_engine(tmp_path, error, attempts):
    engine = ScriptedEngine()
    engine.generate = lambda requests: [Generation.failed(error) for _ in requests]
    system = build_system("seer", engine=engine)
    predict(records(1), system, tmp_path, PredictOptions(retry_rounds=2))
    (prediction,) = read_predictions(tmp_path / "hotpotqa.jsonl")
    assert prediction.failure == Failure.of(error)
    assert prediction.cause == str(error) + " (after 3 attempts)" * (attempts == 3)


def test_predict_does_not_retry_generation_without_answer(tmp_path):
    class Silent(Echo):
        def answer(self, task):
            step = Step(name="reason", outputs={"text": "and so on"}, finish="length")
            return Answer(text="", status=Status.FAILED, cause="no answer within the token limit", trace=(step,))

    system = Silent()
    assert predict(records(2), system, tmp_path).num_failed == 2
    assert set(system.calls.values()) == {1}


def test_predict_resumes_run_with_more_records(tmp_path):
    predict(records(3), Echo(), tmp_path)
    system = Echo()
    summary = predict(records(6), system, tmp_path)
    assert (summary.num_already_done, summary.num_predicted) == (3, 3)
    assert sorted(system.calls) == ["hotpotqa-3", "hotpotqa-4", "hotpotqa-5"]
    manifest = read_run_manifest(tmp_path)
    assert manifest["num_inputs"] == {"hotpotqa": 6}
    assert len(manifest["sessions"]) == 2


def test_predict_with_retry_failed_repeats_failed_inputs(tmp_path):
    options = PredictOptions(retry_rounds=0, batch_size=1)
    predict(records(3), Echo({"hotpotqa-1": 9}), tmp_path, options)
    again = Echo()
    assert predict(records(3), again, tmp_path, options).num_failed == 1
    assert not again.calls
    assert predict(records(3), again, tmp_path, PredictOptions(retry_failed=True)).num_failed == 0
    assert again.calls == {"hotpotqa-1": 1}
    assert len(read_predictions(tmp_path / "hotpotqa.jsonl")) == 3


@settings(deadline=None, max_examples=30)
@given(cut=st.integers(0, 10_000))
def test_predict_completes_file_truncated_anywhere(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("run")
    predict(records(4), Echo(), folder)
    file = folder / "hotpotqa.jsonl"
    content = file.read_bytes()
    os.truncate(file, cut % (len(content) + 1))
    predict(records(4), Echo(), folder)
    assert sorted(one.id for one in read_predictions(file)) == [f"hotpotqa-{n}" for n in range(4)]
    assert score_folder(folder).scores == {"hotpotqa": 100.0}


def test_predict_resumes_killed_process(tmp_path):
    """A real process, killed by SIGKILL during prediction."""
    script = textwrap.dedent(
        """
        import sys, time
        sys.path.insert(0, sys.argv[2])
        from tests.evaluation.runs.test_loop import Echo, records
        from seer.evaluation.runs.plan_longbench import PredictOptions, predict

        class Slow(Echo):
            def answer_batch(self, tasks):
                time.sleep(0.01)
                return super().answer_batch(tasks)

        predict(records(500), Slow(), sys.argv[1], PredictOptions(batch_size=1))
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path), str(Path(__file__).parents[3])])
    file = tmp_path / "hotpotqa.jsonl"
    while not (file.exists() and file.stat().st_size > 2000):
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    whole = file.read_bytes().count(b"\n")
    assert 0 < whole < 500
    system = Echo()
    summary = predict(records(500), system, tmp_path)
    assert summary.num_already_done == whole
    assert sum(system.calls.values()) == 500 - whole
    assert len({one.id for one in read_predictions(file)}) == 500


def test_predict_rejects_folder_of_running_process(tmp_path):
    with RunFolder(tmp_path), pytest.raises(InputError, match="another process"):
        predict(records(1), Echo(), tmp_path)
    predict(records(1), Echo(), tmp_path)


def test_predict_rejects_folder_of_another_run(tmp_path):
    predict(records(1), Echo(), tmp_path, describe={"model": "a", "list": (1, 2)})
    predict(records(1), Echo(), tmp_path, describe={"model": "a", "list": (1, 2)})
    with pytest.raises(ConfigError, match="model 'a', not 'b'"):
        predict(records(1), Echo(), tmp_path, describe={"model": "b", "list": (1, 2)})


def test_predict_gives_system_context_question_and_budgets(tmp_path):
    system = Echo()
    code = LongBenchRecord("c1", "repobench-p", "def f(", "import x\n", ("):",), 1, "en", None)
    options = PredictOptions(reasoning_tokens=100, gold_pages={"c1": (2, 3)}, page_budgets={"c1": 2})
    predict([code, *records(1)], system, tmp_path, options)
    first, second = system.tasks
    assert (first.context, first.max_new_tokens) == ("import x\ndef f(", 164)
    assert (first.gold_pages, first.selector_pages) == ((2, 3), 2)
    assert second.question.endswith("question 0?")
    assert second.max_new_tokens == 132


def test_predict_rejects_invalid_inputs_and_options(tmp_path):
    with pytest.raises(InputError, match="no inputs"):
        predict([], Echo(), tmp_path)
    with pytest.raises(InputError, match="occurs twice"):
        predict(records(1) * 2, Echo(), tmp_path)
    with pytest.raises(InputError, match="batch_size is 0"):
        PredictOptions(batch_size=0)


def test_predict_rejects_missing_template_and_tokenizer_before_first_input(tmp_path):
    system = Echo()
    with pytest.raises(InputError, match="no template for 'hotpotqa'"):
        predict(records(2), system, tmp_path, PredictOptions(templates={"trec": "{context} {input}"}))
    with pytest.raises(InputError, match="needs a tokenizer"):
        predict(records(2), system, tmp_path, PredictOptions(max_context_tokens=10))
    assert not system.calls
    assert not list(tmp_path.iterdir())


def test_predict_fails_only_input_that_tokenizer_rejects(tmp_path):
    def count(text: str) -> int:
        if "text 1" in text:
            raise RuntimeError("no such token")
        return len(text)

    system = Echo()
    options = PredictOptions(max_context_tokens=4, retry_rounds=0)
    summary = predict(records(3), system, tmp_path, options, count_tokens=count)
    assert summary.num_failed == 1
    assert [task.context for task in system.tasks] == ["te 0", "te 2"], "the middle is cut"
    by_id = {one.id: one for one in read_predictions(tmp_path / "hotpotqa.jsonl")}
    assert by_id["hotpotqa-1"].cause == "RuntimeError: no such token"


def test_to_line_replaces_lone_surrogate():
    line = to_line(Prediction(id="1", task="lcc", pred="a\ud800b\u2028\n", answers=(), status=Status.ANSWERED))
    assert json.loads(line)["pred"] == "a?b\u2028\n"
    assert "\n" not in line


def test_read_predictions_rejects_steps_of_an_older_version(tmp_path):
    former = {"id": "1", "task": "trec", "pred": "x", "answers": [], "status": "answered"}
    former["trace"] = [{"turn": {"kind": "answer", "text": "x"}, "raw": "x", "prompt_tokens": 9}]
    (tmp_path / "trec.jsonl").write_text(json.dumps(former) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 1: .*an older version of Seer wrote it; predict again"):
        read_predictions(tmp_path / "trec.jsonl")


# ── Folders that cannot be used ──────────────────────────────────────────────────────────────────


def test_run_folder_below_a_file_names_the_reason_and_the_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match="file/run' cannot hold a run: Not a directory; give another folder"),
        RunFolder(tmp_path / "file/run"),
    ):
        pass


@pytest.mark.parametrize("counts", [[1], {"hotpotqa": "4"}])
def test_read_run_manifest_rejects_numbers_of_inputs_of_another_type(tmp_path, counts):
    (tmp_path / "run.json").write_text(json.dumps({"num_inputs": counts}))
    with pytest.raises(InputError, match="must hold a JSON object, with a number for each task in 'num_inputs'"):
        read_run_manifest(tmp_path)


def test_read_predictions_of_a_missing_file_names_it(tmp_path):
    with pytest.raises(InputError, match="trec.jsonl' cannot be read: No such file or directory"):
        read_predictions(tmp_path / "trec.jsonl")
