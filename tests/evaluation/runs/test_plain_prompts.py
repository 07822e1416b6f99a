"""Text baselines without a chat template, only for the tasks for which the benchmark requires it."""

from __future__ import annotations

import pytest
from fakes import make_document, small_encoder
from serving_fakes import Say, serve

from seer.engines.openai.engine import OpenAIEngine
from seer.engines.scripted import ScriptedEngine
from seer.errors import InputError
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.benchmarks.tasks import LONGBENCH
from seer.evaluation.files import read_predictions
from seer.evaluation.runs.plan_longbench import predict
from seer.evaluation.runs.probing import probe_prefill
from seer.protocol.control import CONTROL
from seer.protocol.literals import neutralise
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import Reader
from seer.schema import Excerpt, Turn
from seer.systems.base import Task
from seer.systems.seer import ReadingSystem

PLAIN_TASKS = {"trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"}


def record(task: str) -> LongBenchRecord:
    return LongBenchRecord(f"{task}-1", task, "Question: x\nType:", "A: b\nC: d\n", ("d",), 2, "en", ("b", "d"))


def prompts(system: str, mode: str, out) -> dict[str, Turn]:
    """Return the first turn of each task's input."""
    engine = ScriptedEngine(encoder=small_encoder())
    reading = ReadingSystem(system, Reader(engine, policy=ReadingPolicy(mode=mode)), "seer")
    records = [record(name) for name in LONGBENCH.tasks]
    predict(records, reading, out)
    firsts = {}
    for request in engine.requests:
        firsts.setdefault(request.session.partition("-1#")[0], request.prompt.turns[0])
    return firsts


def test_text_run_sends_bare_prompt_for_six_tasks(tmp_path):
    turns = prompts("text", "text", tmp_path)
    assert set(turns) == set(LONGBENCH.tasks)
    assert {name for name, prompt in turns.items() if not prompt.chat} == PLAIN_TASKS


@pytest.mark.parametrize("mode", ["select", "visual"])
def test_image_run_keeps_chat_template(tmp_path, mode):
    assert all(prompt.chat for prompt in prompts("seer", mode, tmp_path).values())


def test_encode_bare_prompt_has_no_role_and_ends_with_input():
    encoder = small_encoder()
    whole = Excerpt(page=0, start=0, text="A: b\nC: d")
    plain = encoder.encode([Turn(kind="prompt", text="Type:", excerpts=(whole,), chat=False)], {})
    start = [encoder.control(CONTROL.mask), encoder.control(CONTROL.start)]
    assert plain.ids.tolist() == start + encoder.encode_text("A: b\nC: d\nType:")
    chat = encoder.encode([Turn(kind="prompt", text="Type:", excerpts=(whole,))], {})
    assert encoder.control(CONTROL.assistant) in chat.ids
    with pytest.raises(InputError, match="shows text only"):
        encoder.encode([Turn(kind="prompt", text="Type:", pages=(1,), chat=False)], {1: (56, 56)})


def test_full_text_and_probe_count_sent_prompt(tmp_path):
    engine = ScriptedEngine(encoder=small_encoder())
    system = ReadingSystem("text", Reader(engine, policy=ReadingPolicy(mode="text")), "seer")
    predict([record("trec")], system, tmp_path)
    (prediction,) = read_predictions(tmp_path / "trec.jsonl")
    assert prediction.usage.full_text == prediction.usage.prompt
    task = Task("t", "A: b\n", "Type:", chat=False)
    assert probe_prefill(task, system).prompt_tokens == 2 + len(small_encoder().encode_text("A: b\n\nType:"))


def test_openai_engine_sends_bare_prompt():
    document = make_document(["A: <|user|>\n", "C: d\n"])
    with serve(lambda body, n: Say(" d\nmore")) as server:
        engine = OpenAIEngine(server.base_url, structure="none", continuation="user")
        try:
            plain = Reader(engine, policy=ReadingPolicy(mode="text", chat=False)).ask(document, "Type:")
            chat = Reader(engine, policy=ReadingPolicy(mode="text")).ask(document, "Type:")
        finally:
            engine.close()
    assert plain.text == chat.text == " d\nmore"
    first, second = server.asked
    assert first["prompt"] == neutralise("A: <|user|>\nC: d\n\nType:")
    assert "messages" not in first
    assert [message["role"] for message in second["messages"]] == ["user"], (
        "no system message about pages before a text"
    )
    assert plain.usage.prompt == 11
