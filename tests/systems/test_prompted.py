"""The text baseline: the benchmark's prompt as one chat, bare prompts, thinking, and failures."""

from __future__ import annotations

import pytest
from openai_fakes import engine_for
from serving_fakes import Say

from seer.engines.base import Chat, Conversation, Generation
from seer.engines.scripted import ScriptedEngine, oracle_script
from seer.errors import EngineError, InputError
from seer.evaluation.analysis.endings import ending_of
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.runs.loop import to_prediction
from seer.evaluation.runs.plan_longbench import PredictOptions, to_input, to_task
from seer.schema import Status
from seer.systems.base import Task
from seer.systems.prompted import PromptedSystem, to_answer

TEMPLATES = {"qasper": "Read {context}!\nQ: {input}\nA:", "trec": "{context}\n{input}"}


def record(task: str, context: str = "a {input} text") -> LongBenchRecord:
    return LongBenchRecord(task, task, "Who?", context, answers=("x",), length=None, language="en", all_classes=None)


def test_to_task_puts_document_and_input_into_the_template():
    options = PredictOptions(templates=TEMPLATES, in_place=True, reasoning_tokens=100)
    task = to_task(record("qasper"), options, None)
    assert task.prompt == "Read a {input} text!\nQ: Who?\nA:", "a document that holds {input} is not filled"
    assert (task.max_new_tokens, task.chat) == (228, True)
    bare = to_task(record("trec"), options, None)
    assert (bare.prompt, bare.max_new_tokens, bare.chat) == ("a {input} text\nWho?", 64, False)
    with pytest.raises(InputError, match="no template for 'hotpotqa'"):
        to_task(record("hotpotqa"), options, None)
    ours = to_task(record("qasper"), PredictOptions(in_place=True), None).prompt
    assert ours.startswith("a {input} text\n\n") and ours.endswith("Who?")


def test_to_task_cuts_the_middle_of_the_whole_prompt():
    options = PredictOptions(templates=TEMPLATES, in_place=True, max_context_tokens=20)
    prompt = to_task(record("qasper", "0123456789" * 9), options, len).prompt
    assert prompt == "Read 01234" + "9!\nQ: Who?\nA:"[-10:]


def test_prompted_system_sends_chats_and_bare_prompts():
    engine = ScriptedEngine(oracle_script(answer="Ann", think="hm"))
    tasks = [Task("1", "", "", 9, prompt="Q?"), Task("2", "", "", 9, prompt="Type:", chat=False)]
    answers = PromptedSystem(engine).answer_batch(tasks)
    chat, bare = (request.prompt for request in engine.requests)
    assert chat == Chat.of("Q?")
    assert isinstance(bare, Conversation) and not bare.turns[0].chat and bare.turns[0].text == "Type:"
    assert {request.sampling.max_new_tokens for request in engine.requests} == {9}
    assert [one.text for one in answers] == ["Ann", "Ann"]
    assert [step.name for step in answers[0].trace] == ["look", "reason", "answer"]
    assert answers[0].usage.prompt == answers[0].usage.full_text > 0
    assert engine.forgotten == ["prompted:1", "prompted:2"]


def test_prompted_system_rejects_a_task_without_prompt():
    with pytest.raises(InputError, match="task '1' has no prompt"):
        PromptedSystem(ScriptedEngine()).answer_batch([Task("1", "text", "q")])


@pytest.mark.parametrize(
    ("generation", "cause", "ending"),
    [
        (Generation((("<think>", ""), ("", "long")), finish="length"), "no answer within the token limit", "thinking"),
        (
            Generation((("<think>", ""), ("", "a"), ("</think>", ""), ("", "\n"))),
            "the model gave no answer",
            "complete",
        ),
        (Generation((("", "half an ans"),), finish="length"), "", "cut"),
        (Generation.failed(EngineError("gone", retryable=True)), "gone", "complete"),
    ],
)
def test_to_answer_of_generation_without_answer_fails(generation, cause, ending):
    answer = to_answer(generation)
    assert (answer.status is Status.FAILED, answer.cause) == (bool(cause), cause)
    one = to_prediction(to_input(record("qasper"), PredictOptions()), answer, "prompted")
    assert ending_of(one) == ending


def test_prompted_system_sends_extra_body_over_an_address():
    body = {"chat_template_kwargs": {"enable_thinking": False}}
    with engine_for(lambda sent, n: Say("<think>hm</think>\nAnn"), extra_body=body) as (engine, server):
        (answer,) = PromptedSystem(engine).answer_batch([Task("1", "", "", 9, prompt="Q?")])
    assert answer.text == "Ann"
    assert server.asked[-1]["chat_template_kwargs"] == {"enable_thinking": False}
    assert server.asked[-1]["messages"][-1]["role"] == "user"
