"""Replies of the server: answers and progress events of any system's steps."""

from __future__ import annotations

import asyncio
import json

import pytest
from fakes import make_document

from seer.schema import Answer, Citation, Region, Status, Step, StepUsage
from seer.serving.reply import completion, step_field, thinking, usage
from seer.serving.stream import Stream

DOCUMENT = make_document(["One.\n", "Two.\n"])


@pytest.mark.parametrize(
    ("step", "event"),
    [
        (Step(name="look", pages=(1, 2)), {"step": "look", "pages": 2}),
        (Step(name="select", pages=(2,), outputs={"raw": "x"}), {"step": "select", "selected_pages": [2]}),
        (Step(name="retrieve", pages=(2,)), None),
        (Step(name="reason", outputs={"text": "so"}), None),
        (Step(name="answer", outputs={"text": "x"}), None),
        (
            Step(name="navigate", pages=(2,), outputs={"next": "page 2", "raw": "left out"}),
            {"step": "navigate", "pages": [2], "outputs": {"next": "page 2"}},
        ),
    ],
)
def test_step_field_names_pages_and_outputs_of_a_step(step, event):
    assert step_field(step) == event


ANSWER = Answer(
    text="Two.",
    status=Status.ANSWERED,
    citations=(
        Citation(page=2, start=5, end=9, quote="Two.", verified=True, regions=(Region(page=2, start=5, end=9),)),
    ),
    trace=(
        Step(name="navigate", pages=(2,), usage=StepUsage(prompt=100, completion=5)),
        Step(name="reason", outputs={"text": "On page two."}),
        Step(name="adjudicate", usage=StepUsage(prompt=50, completion=5), finish="length"),
    ),
)


def test_completion_of_another_systems_answer_has_its_tokens_thoughts_and_regions():
    reply = json.loads(json.dumps(completion("id", 0, "seer", DOCUMENT, ANSWER)))
    assert (usage(ANSWER)["prompt_tokens"], thinking(ANSWER)) == (150, "On page two.")
    assert reply["choices"][0]["finish_reason"] == "length"
    (citation,) = reply["seer"]["citations"]
    assert citation["regions"] == [{"page": 2, "start": 5, "end": 9, "boxes": [], "kind": "text"}]


def test_stream_sends_an_event_for_each_step_of_another_system():
    async def read() -> tuple[object, Answer]:
        listener = stream.listener()
        for step in ANSWER.trace:
            listener.on_step(step)
        await asyncio.sleep(0)
        return DOCUMENT, ANSWER

    async def collect() -> list[dict]:
        nonlocal stream
        stream = Stream("id", 0, "seer", include_usage=False)
        stream.follow(asyncio.create_task(read()))
        await stream.begun()
        lines = [line async for line in stream.events()]
        return [json.loads(line.removeprefix("data: ")) for line in lines if "[DONE]" not in line]

    stream: Stream
    events = asyncio.run(collect())
    assert [event["seer"]["step"] for event in events if "step" in event.get("seer", {})] == ["navigate", "adjudicate"]
    deltas = [event["choices"][0]["delta"] for event in events]
    assert [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta] == ["On page two."]
