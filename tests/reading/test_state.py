"""The conversation's state: turns with the ids that the model wrote, and the trace beside them."""

from __future__ import annotations

import pytest
from fakes import small_encoder
from reading_fakes import DOCUMENT

from seer.engines.scripted import ScriptedEngine, oracle_script
from seer.reading.budget import observation_budget, observation_fits, prompt_tokens, usage_of
from seer.reading.policy import ReadingPolicy
from seer.reading.state import ReadingState
from seer.schema import Step, Turn

PROMPT = Turn(kind="prompt", text="q", pages=(1, 2, 3))


def make_state(on_step=None, **policy: object) -> ReadingState:
    engine = ScriptedEngine(oracle_script(), small_encoder(), max_positions=2000)
    return ReadingState(DOCUMENT, "q", ReadingPolicy(**policy), engine, "session", on_step)


def test_prompt_carries_the_ids_of_turns_that_the_model_wrote():
    state = make_state()
    state.say(PROMPT)
    state.say(Turn(kind="think", text="so"), ids=(1, 2))
    state.say(Turn(kind="answer", text="x"))
    assert state.prompt().turns == state.turns
    assert state.prompt().written == {1: (1, 2)}
    assert state.prompt(1).written == {}
    assert sorted(state.prompt(1).pages) == [1, 2, 3]


def test_take_back_removes_turns_with_their_ids_and_keeps_the_trace():
    state = make_state()
    state.say(PROMPT)
    state.say(Turn(kind="call", pages=(1,)), ids=(7, 8))
    state.take_back(1)
    state.say(Turn(kind="answer", text="x"))
    assert [turn.kind for turn in state.turns] == ["prompt", "answer"]
    assert state.prompt().written == {}
    assert [step.name for step in state.steps] == ["look", "select", "answer"]


def test_extend_call_replaces_the_selection_and_drops_its_ids():
    state = make_state()
    state.say(PROMPT)
    state.say(Turn(kind="call", pages=(2,)), ids=(7, 8))
    state.extend_call((2, 3))
    assert state.turns[-1] == Turn(kind="call", pages=(2, 3))
    assert state.prompt().written == {}
    assert (state.steps[-1].pages, state.steps[-1].outputs) == ((2, 3), {"added": [3]})


def test_record_adds_a_step_without_a_turn_and_reports_it():
    reported: list[Step] = []
    state = make_state(reported.append)
    state.say(PROMPT)
    state.record(Turn(kind="call", pages=(9,)), deviations=("out_of_range",), allowed=(1, 2))
    assert state.turns == (PROMPT,)
    assert reported == state.steps
    assert (reported[1].inputs, reported[1].deviations) == ({"allowed": [1, 2]}, ("out_of_range",))


def test_usage_of_a_conversation_without_turns_is_that_of_its_steps():
    state = make_state()
    state.steps.append(Step(name="select", usage={"prompt": 40, "completion": 5, "cached": 8}))
    usage = usage_of(state)
    assert (usage.prompt, usage.completion, usage.cached, usage.vision) == (40, 5, 8, 0)
    assert usage.full_text == state.full_text_tokens > 0


def test_prompt_tokens_counts_written_ids_as_they_are():
    state = make_state()
    state.say(PROMPT)
    before = prompt_tokens(state, state.encoder)
    state.say(Turn(kind="call", pages=(1,)), ids=tuple(range(10, 27)))
    assert prompt_tokens(state, state.encoder) == before + 17


@pytest.mark.parametrize(("limit", "fits"), [(None, True), (10_000, True), (1, False)])
def test_observation_fits_within_the_limit_of_the_gate(limit, fits):
    state = make_state()
    state.say(PROMPT)
    state.max_prompt_tokens = limit
    assert observation_fits(state) == fits


def test_observation_budget_is_the_smallest_limit_and_never_negative():
    state = make_state(max_new_tokens=64)
    state.say(PROMPT)
    used = prompt_tokens(state, state.encoder) + 1
    assert observation_budget(state) == 2000 - 64 - used
    state.max_prompt_tokens = used + 5
    assert observation_budget(state) == 5
    state.max_prompt_tokens = 1
    assert observation_budget(state) == 0
