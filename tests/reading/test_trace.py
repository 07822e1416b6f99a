"""Steps of a reading: names, inputs, outputs, usage, and the regions of retrieved text."""

from __future__ import annotations

import json

import pytest
from fakes import make_document
from reading_fakes import DOCUMENT, TEXTS, calls, reader

from seer.engines.base import Generation
from seer.engines.scripted import oracle_script
from seer.protocol.call import render_call
from seer.reading.trace import excerpt_regions, step_of, with_added_pages
from seer.rendering import render_text
from seer.schema import Answer, Box, Excerpt, Step, Turn

GENERATION = Generation(
    (("", "so"),), finish="length", prompt_tokens=90, cached_tokens=40, completion_tokens=3, seconds=0.5
)


def test_trace_of_a_reading_has_inputs_outputs_and_regions():
    think = "The first page."
    answer = reader(oracle_script(pages=(1, 3), answer="x", think=think)).ask(DOCUMENT, "What?")
    look, select, retrieve, reason, last = answer.trace
    assert (look.name, look.inputs, look.outputs, look.pages) == ("look", {"question": "What?"}, {}, (1, 2, 3))
    assert (select.name, select.inputs, select.pages) == ("select", {"allowed": [1, 2, 3]}, (1, 3))
    assert render_call((1, 3)) in select.outputs["raw"]
    assert (retrieve.name, retrieve.pages) == ("retrieve", (1, 3))
    assert [excerpt.text for excerpt in retrieve.excerpts] == [TEXTS[0], TEXTS[2]]
    assert [(region.page, region.kind) for region in retrieve.regions] == [(1, "page"), (3, "page")]
    assert (reason.name, reason.outputs) == ("reason", {"text": think})
    assert (last.name, last.text, last.finish) == ("answer", "x", "stop")
    assert think in last.outputs["raw"]
    assert last.usage.prompt > select.usage.prompt > 0
    assert look.usage.prompt == retrieve.usage.prompt == reason.usage.prompt == 0
    assert Answer.model_validate(json.loads(json.dumps(answer.model_dump(mode="json")))) == answer


def test_trace_of_mode_text_holds_the_text_that_was_shown():
    answer = reader(oracle_script(answer="x"), mode="text").ask(DOCUMENT, "What?")
    assert answer.trace[0].inputs == {"question": "What?", "text": "".join(TEXTS)}
    assert answer.trace[0].pages == ()


def test_trace_of_a_document_scan_has_a_select_step_for_each_chunk():
    document = make_document([f"page {i}\n" for i in range(1, 41)])
    asked = reader(oracle_script(pages=(3, 20), answer="x"), max_new_tokens=64, max_call_tokens=32)
    asked.engine.max_positions = 480
    steps = asked.ask(document, "q").trace
    scans = [step for step in steps if step.name == "select" and step.inputs]
    assert len(scans) > 1
    assert [page for step in scans for page in step.inputs["allowed"]] == list(range(1, 41))
    assert [page for step in scans for page in step.pages] == [3, 20]
    assert [step.name for step in steps[len(scans) :]][:3] == ["look", "select", "retrieve"]


def test_trace_keeps_invalid_calls_with_their_output():
    bad = '{"name": "select", "indices": [9]}'
    answer = reader(calls(bad, render_call((1,))), on_invalid_call="reask").ask(DOCUMENT, "q")
    first, second = [step for step in answer.trace if step.name == "select"]
    assert (first.deviations, first.pages) == (("out_of_range",), ())
    assert bad in first.outputs["raw"]
    assert (second.deviations, second.pages) == ((), (1,))


@pytest.mark.parametrize(
    ("turn", "name", "outputs"),
    [
        (Turn(kind="call", pages=(2,)), "select", {"raw": "so"}),
        (Turn(kind="think", text="so"), "reason", {"text": "so", "raw": "so"}),
        (Turn(kind="answer"), "answer", {"text": "", "raw": "so"}),
    ],
)
def test_step_of_a_generation_has_its_usage(turn, name, outputs):
    step = step_of(DOCUMENT, turn, GENERATION, ("late",))
    assert (step.name, step.outputs, step.deviations) == (name, outputs, ("late",))
    assert (step.usage.prompt, step.usage.completion, step.usage.cached) == (90, 3, 40)
    assert (step.seconds, step.finish) == (0.5, "length")


def test_step_of_an_observation_without_text_has_its_message():
    step = step_of(DOCUMENT, Turn(kind="observation", text="No text."))
    assert (step.name, step.outputs, step.excerpts, step.regions) == ("retrieve", {"text": "No text."}, (), ())


def test_with_added_pages_names_the_pages_that_the_model_did_not_select():
    step = with_added_pages(Step(name="select", pages=(2,), outputs={"raw": "x"}), (1, 2, 5))
    assert (step.pages, step.outputs) == ((1, 2, 5), {"raw": "x", "added": [1, 5]})


def test_excerpt_regions_are_whole_pages_or_the_lines_of_an_excerpt():
    document = render_text("a line of the report\n" * 200)
    page = document.page(2)
    whole = Excerpt(page=2, start=page.start, text=page.text)
    two_lines = Excerpt(page=2, start=page.start, text="a line of the report\n" * 2)
    everything = Excerpt(page=0, start=0, text=document.text)
    first, second = excerpt_regions(document, [whole, two_lines, everything])
    frame = Box(x_px=0, y_px=0, width_px=page.width_px, height_px=page.height_px)
    assert (first.kind, first.boxes) == ("page", (frame,))
    assert (second.kind, second.start, second.end) == ("text", two_lines.start, two_lines.end)
    assert [box.y_px for box in second.boxes] == [line.y_px for line in page.line_boxes()[:2]]
