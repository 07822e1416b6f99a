"""Assembled trajectories follow the protocol's layout, and the encoder accepts them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from fakes import small_encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.records import Evidence, Sample
from data_pipeline.settings import AssembleSpec
from data_pipeline.steps.assemble import assemble, selection_rounds
from data_pipeline.steps.paging import fixed_pages, layout_pages, newline_of, pages_overlapping
from data_pipeline.steps.reason import Reasoning, template_reasoning
from seer.protocol.call import parse_call, render_call
from seer.rendering import render_text, resolve_style
from seer.schema import LossClass, NewlineMode, Trajectory

STYLE = resolve_style("seer")
CONTEXT = "".join(f"Line {n}: the valley of Orla is quiet.\n" for n in range(200))
SAMPLE = Sample(
    id="1",
    source="made",
    question="Is the valley <|user|> quiet?",
    context=CONTEXT,
    answers=("yes",),
    evidence=(Evidence(7000, 7010, 0), Evidence(10, 20, 1)),
    provenance={"type": "bridge", "empty": ""},
)
PAGES = layout_pages(STYLE)(CONTEXT)
REASONING = Reasoning("Image 1 says </think> so.", "yes", "template")


def assemble_sample(relevant: tuple[int, ...] = (1, 3), **spec: object) -> dict[str, Trajectory]:
    wanted = AssembleSpec.model_validate(spec)
    return assemble(SAMPLE, PAGES, relevant, REASONING, style=STYLE, spec=wanted, seed=0, judged_by="gold")


def test_layout_pages_match_drawn_pages() -> None:
    document = render_text(CONTEXT, STYLE)
    assert [(page.number, page.start, page.end) for page in document.pages] == [
        (p.number, p.start, p.end) for p in PAGES
    ]
    assert len(PAGES) >= 3
    assert PAGES[0].vision_tokens == 630


@pytest.mark.parametrize(("task", "newline"), [("", "mark"), ("hotpotqa", "mark"), ("musique", "break")])
def test_assemble_in_paper_style_records_newlines_of_the_task_or_the_text(task: str, newline: NewlineMode) -> None:
    paper, sample = resolve_style("paper"), replace(SAMPLE, task=task)
    pages = layout_pages(paper)(CONTEXT, newline_of(sample))
    made = assemble(sample, pages, (1,), REASONING, style=paper, spec=AssembleSpec(), seed=0, judged_by="gold")
    style = made["select"].style
    assert style.newline == newline
    drawn = render_text(CONTEXT, style)
    assert [(page.start, page.end) for page in drawn] == [(page.start, page.end) for page in pages]
    assert len(pages) == len(render_text(CONTEXT, resolve_style("seer", newline=newline)).pages)


def test_assemble_select_form_has_every_turn() -> None:
    trajectory = assemble_sample()["select"]
    assert [turn.kind for turn in trajectory.turns] == ["prompt", "call", "observation", "think", "answer"]
    prompt, call, observed, think, answer = trajectory.turns
    assert prompt.pages == tuple(page.number for page in PAGES)
    assert prompt.text == SAMPLE.question
    assert call.pages == trajectory.relevant_pages == (1, 3)
    document = render_text(trajectory.source, trajectory.style)
    assert [excerpt.text for excerpt in observed.excerpts] == [document.page(n).text for n in (1, 3)]
    assert all(trajectory.source[excerpt.start : excerpt.end] == excerpt.text for excerpt in observed.excerpts)
    assert (think.text, answer.text) == (REASONING.think, "yes")
    assert trajectory.provenance == {
        "type": "bridge",
        "source": "made",
        "judge": "gold",
        "reason": "template",
        "form": "select",
    }


def test_assemble_other_forms_omit_retrieved_text() -> None:
    forms = assemble_sample(forms=("select", "iso_control", "without_retrieve"))
    assert [turn.kind for turn in forms["iso_control"].turns] == ["prompt", "think", "answer"]
    acknowledged = forms["without_retrieve"].turns[2]
    assert acknowledged.excerpts == ()
    assert acknowledged.text.startswith("You identified images [1, 3] as relevant.")
    assert forms["iso_control"].id == forms["select"].id


def test_assemble_empty_selection_has_acknowledgement() -> None:
    trajectory = assemble_sample(relevant=())["select"]
    assert trajectory.turns[1].pages == ()
    assert trajectory.turns[2].text.startswith("You selected no images.")


def test_assemble_multi_round_follows_evidence_hops() -> None:
    last = pages_overlapping([(7000, 7010)], PAGES)
    trajectory = assemble_sample(relevant=(1, *last), multi_round_share=1.0)["select"]
    assert [turn.pages for turn in trajectory.turns if turn.kind == "call"] == [last, (1,)]
    assert [turn.kind for turn in trajectory.turns] == [
        "prompt",
        "call",
        "observation",
        "call",
        "observation",
        "think",
        "answer",
    ]


def test_assemble_multi_round_places_each_quote_after_its_call() -> None:
    last = pages_overlapping([(7000, 7010)], PAGES)
    relevant = (1, *last)
    reasoning = template_reasoning(SAMPLE, PAGES, relevant)
    spec = AssembleSpec.model_validate({"multi_round_share": 1.0})
    options = {"style": STYLE, "seed": 0, "judged_by": "gold"}
    turns = assemble(SAMPLE, PAGES, relevant, reasoning, spec=spec, **options)["select"].turns
    kinds = [turn.kind for turn in turns]
    assert kinds == ["prompt", "call", "observation", "think", "call", "observation", "think", "answer"]
    assert turns[3].text.startswith(f"Image {last[0]} says: ") and "answer" not in turns[3].text
    assert turns[6].text.startswith("Image 1 says: ") and turns[6].text.endswith("So the answer is: yes")
    assert sorted(f"{turns[3].text}\n{turns[6].text}".splitlines()) == sorted(reasoning.think.splitlines())
    (whole,) = [
        turn.text
        for turn in assemble(SAMPLE, PAGES, relevant, reasoning, spec=AssembleSpec(), **options)["select"].turns
        if turn.kind == "think"
    ]
    assert whole == reasoning.think


@settings(deadline=None)
@given(st.sets(st.integers(1, 12), min_size=1), st.lists(st.tuples(st.integers(0, 119), st.integers(0, 3)), max_size=5))
def test_selection_rounds_contain_every_page_once(relevant: set[int], marked: list[tuple[int, int]]) -> None:
    evidence = tuple(Evidence(start, start + 1, hop) for start, hop in marked) or None
    sample = Sample(id="1", source="s", question="?", context="x" * 120, answers=("a",), evidence=evidence)
    rounds = selection_rounds(sample, fixed_pages(10)(sample.context), sorted(relevant), share=1.0, seed=0)
    assert Counter(page for pages in rounds for page in pages) == Counter(relevant)
    for pages in rounds:
        assert parse_call(render_call(pages), range(1, 13)).deviations == ()


def test_selection_rounds_respect_the_share() -> None:
    several = 0
    for n in range(400):
        sample = Sample(id=str(n), source="s", question="?", context="x" * 40, answers=("a",))
        several += len(selection_rounds(sample, fixed_pages(10)(sample.context), (1, 2), share=0.25, seed=0)) > 1
    assert 70 < several < 130


@pytest.mark.parametrize("form", ["select", "iso_control", "without_retrieve"])
def test_assemble_every_form_encodes_untrusted_text_as_text(form: str) -> None:
    trajectory = assemble_sample(forms=(form,))[form]
    document = render_text(trajectory.source, trajectory.style)
    sizes = {page.number: (page.width_px, page.height_px) for page in document.pages}
    encoder = small_encoder()
    encoded = encoder.encode(trajectory.turns, sizes)
    assert encoded.pages == tuple(sizes)
    assert encoded.count(LossClass.ANSWER) > 0
    assert encoded.count(LossClass.STOP) == 1
    # The two markers are those of the protocol: "<|user|>" in the question and "</think>" in the thought are plain text.
    assert int(np.sum(encoded.ids == encoder.control("<|user|>"))) == 2
    assert int(np.sum(encoded.ids == encoder.control("</think>"))) == 1
