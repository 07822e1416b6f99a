"""Steps, regions and citations: records that keep any system's trace and survive JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from seer.schema import Answer, Box, Citation, Prediction, Region, Status, Step, StepUsage

BOX = Box(x_px=20, y_px=30.5, width_px=41.25, height_px=10)
REGION = Region(page=3, start=120, end=131, boxes=(BOX,), kind="table")
LOCALIZE = Step(
    name="localize",
    inputs={"query": "the total", "pages": [3, 4]},
    outputs={
        "text": "in the table",
        "scores": {"3": 0.5, "4": None},
        "excerpts": [{"page": 3, "start": 120, "text": "x"}],
    },
    pages=(3,),
    regions=(REGION,),
    usage=StepUsage(prompt=900, completion=12, cached=400),
    seconds=1.5,
    finish="stop",
    deviations=("no_box",),
)


def test_step_of_any_system_survives_json_in_answers_and_predictions():
    answer = Answer(text="x", status=Status.ANSWERED, trace=(LOCALIZE,))
    assert Answer.model_validate_json(json.dumps(answer.model_dump(mode="json"))) == answer
    prediction = Prediction(id="1", task="t", pred="x", answers=(), status=Status.ANSWERED, trace=answer.trace)
    assert Prediction.model_validate_json(prediction.model_dump_json()) == prediction


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["query", "votes", "a b"]), json_values), st.text(min_size=1, max_size=100))
def test_step_keeps_any_json_value_whole(values, name):
    step = Step(name=name, inputs=values, outputs=values)
    assert Step.model_validate(json.loads(json.dumps(step.model_dump(mode="json")))) == step
    assert step.inputs == values


def test_step_text_and_excerpts_are_its_outputs():
    assert LOCALIZE.text == "in the table"
    assert [(excerpt.page, excerpt.start, excerpt.text) for excerpt in LOCALIZE.excerpts] == [(3, 120, "x")]
    assert (Step(name="wait").text, Step(name="wait").excerpts) == ("", ())


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"text": 3}, "output 'text' of step 'navigate' is 3: must be a string"),
        ({"raw": None}, "output 'raw' of step 'navigate' is None: must be a string"),
        ({"excerpts": "page 3"}, "output 'excerpts' of step 'navigate' is 'page 3': must be a list of excerpts"),
        ({"excerpts": [{"page": 3}]}, "start"),
        ({"image": b"PNG"}, "JSON"),
        ({"pages": {1, 2}}, "JSON"),
    ],
)
def test_step_rejects_outputs_of_another_form(outputs, message):
    with pytest.raises(ValidationError, match=message):
        Step(name="navigate", outputs=outputs)


@pytest.mark.parametrize("name", ["", "n" * 101])
def test_step_rejects_names_that_are_empty_or_too_long(name):
    with pytest.raises(ValidationError, match="name"):
        Step(name=name)


def test_step_of_an_older_version_is_rejected_with_a_remedy():
    former = {"turn": {"kind": "answer", "text": "x"}, "raw": "x<|user|>", "prompt_tokens": 9, "finish": "stop"}
    with pytest.raises(ValidationError, match="an older version of Seer wrote it; predict again"):
        Step.model_validate(former)


def test_step_rejects_unknown_keys_by_name():
    with pytest.raises(ValidationError, match="unknown key 'output' in Step; did you mean 'outputs'"):
        Step.model_validate({"name": "look", "output": {}})


def test_region_rejects_pages_before_the_first():
    with pytest.raises(ValidationError, match="page"):
        Region(page=0, start=0, end=1)


def test_citation_without_regions_is_still_read():
    """Answers that were saved before citations had regions."""
    former = {"page": 1, "label": None, "start": 0, "end": 4, "quote": "text", "verified": True}
    assert Citation.model_validate(former).regions == ()
