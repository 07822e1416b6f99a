"""DocMemo: belief arithmetic, the schedule of λ, rounds and memories in scripted runs, and each ablation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seer.engines.base import Request
from seer.engines.scripted import ScriptedEngine
from seer.models.counting import tekken_encoder
from seer.rendering import render_text
from seer.schema import Answer, Box, Document, Page, Status
from seer.systems.base import Task
from seer.systems.docmemo.beliefs import PageBeliefs, lambda_of_round, mix_scores
from seer.systems.docmemo.config import DocMemoConfig
from seer.systems.docmemo.system import DocMemo
from seer.systems.evidence.elements import Element
from seer.systems.evidence.memory import DocumentMemory
from tests.systems.scripts import RoleScript

LINES = [f"Line {k}: the depot in town {k} holds {1000 + k} crates.\n" for k in range(1100)]
DOCUMENT = render_text("".join(LINES), name="depots.txt")
QUESTION = "How many crates are in the depot of town 1?"
MARKS = {"schema": "Describe how the document is built", "planner": "Say where to look first", "reader": "Round "}


def report(**changes: Any) -> dict[str, Any]:
    """A reader's reply that is enough to answer."""
    return {
        "findings": "town 1 holds 1001 crates",
        "useful": [1],
        "irrelevant": [],
        "sufficient": True,
        "missing": "",
        "query": "",
        "analysis": "a",
        "answer": "1001",
        "answerable": True,
        "quotes": [{"page": 1, "quote": "the depot in town 1 holds 1001 crates"}],
        **changes,
    }


def more(**changes: Any) -> dict[str, Any]:
    """A reader's reply that asks for another round."""
    return report(
        useful=[], sufficient=False, findings="nothing yet", missing="the number", query="town stock", **changes
    )


class Script(RoleScript):
    """A model that answers in the first round, unless a role's replies are replaced."""

    def __init__(self, **replies: Any) -> None:
        usual = {
            "schema": [{"type": "list", "topics": "depots", "index": [{"first": 1, "last": 3, "topic": "towns"}]}],
            "planner": [{"query": "depot town", "pages": ["5-6"]}],
            "reader": [report()],
        }
        super().__init__(MARKS, usual | replies)


class Tables:
    """A detector that finds three tables on every page."""

    def detect(self, page: Page) -> list[Element]:
        return [Element("table", Box(x_px=20, y_px=50 * k, width_px=100, height_px=40)) for k in range(1, 4)]


def build(script: Script, seed: int = 0, memory: DocumentMemory | None = None, **config: Any) -> DocMemo:
    settings = DocMemoConfig(**{"max_crops": 0, **config})
    return DocMemo(script.engine, config=settings, detector=Tables(), seed=seed, memory=memory)


def ask(system: DocMemo, document: Document = DOCUMENT) -> Answer:
    return system.answer_batch([Task("q", "", QUESTION, document=document)])[0]


# ── Beliefs ──────────────────────────────────────────────────────────────────────────────────────


def test_beliefs_follow_conjugate_updates_and_spread_positive_evidence_only():
    beliefs = PageBeliefs(8, 1.0, 1.0, radius=2, decay=0.5)
    beliefs.update(useful=(4,), irrelevant=(1, 6))
    assert np.abs(beliefs.alpha - [1, 1.25, 1.5, 2, 1.5, 1.25, 1, 1]).max() < 1e-12
    assert np.abs(beliefs.beta - [2, 1, 1, 1, 1, 2, 1, 1]).max() < 1e-12
    beliefs.update(useful=(1, 8), irrelevant=())
    assert np.abs(beliefs.alpha - [2, 1.75, 1.75, 2, 1.5, 1.5, 1.5, 2]).max() < 1e-12
    assert np.abs(beliefs.mean() - beliefs.alpha / (beliefs.alpha + beliefs.beta)).max() < 1e-12


@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.sets(st.integers(1, 12)), st.sets(st.integers(1, 12))), max_size=5),
    st.integers(0, 4),
    st.floats(0, 1),
)
def test_beliefs_equal_the_formula(num_pages, rounds, radius, decay):
    beliefs = PageBeliefs(num_pages, 1.5, 0.5, radius, decay)
    alpha, beta = [1.5] * num_pages, [0.5] * num_pages
    for useful, irrelevant in rounds:
        useful, irrelevant = ({page for page in pages if page <= num_pages} for pages in (useful, irrelevant))
        beliefs.update(useful, irrelevant)
        for j in range(1, num_pages + 1):
            alpha[j - 1] += sum(decay ** abs(i - j) for i in useful if 0 < abs(i - j) <= radius) + (j in useful)
            beta[j - 1] += j in irrelevant
    assert np.abs(beliefs.alpha - alpha).max() < 1e-12 and np.abs(beliefs.beta - beta).max() < 1e-12


def test_lambda_grows_linearly_from_zero():
    assert [lambda_of_round(t, 3, 0.5) for t in (1, 2, 3)] == [0, 0.25, 0.5]
    assert lambda_of_round(1, 1, 0.5) == 0


def test_mix_scores_scales_similarities_and_weights_beliefs():
    assert np.allclose(mix_scores([2, 4, 3], [1, 0, 0.5], 0.25), [0.25, 0.75, 0.5], atol=1e-12)
    assert np.allclose(mix_scores([7, 7], [0.1, 0.9], 0.5), [0.05, 0.45], atol=1e-12)
    assert mix_scores([], [], 0.5).shape == (0,)


# ── Rounds ───────────────────────────────────────────────────────────────────────────────────────


def test_docmemo_answers_in_one_round_if_that_is_enough():
    script = Script()
    answer = ask(build(script))
    assert (answer.text, answer.status, answer.selected_pages) == ("1001", Status.ANSWERED, (1,))
    assert [step.name for step in answer.trace] == ["schema", "plan", "choose", "read", "answer"]
    assert answer.citations[0].verified and "pages 1-3: towns" in script.text("reader")


def test_rounds_carry_findings_needs_and_queries():
    script = Script(reader=[more(), report()])
    answer = ask(build(script))
    chosen = [step.pages for step in answer.trace if step.name == "choose"]
    assert len(chosen) == 2 and not set(chosen[0]) & set(chosen[1])
    assert "Earlier rounds" not in script.text("reader")
    second = script.text("reader", 1)
    assert "Found in round 1: nothing yet" in second and "Missing so far: the number" in second
    assert [step.inputs["query"] for step in answer.trace if step.name == "choose"] == [
        f"{QUESTION} depot town",
        "town stock",
    ]
    assert [step.inputs["lambda"] for step in answer.trace if step.name == "choose"] == [0, 0.25]


def test_last_round_is_told_so_and_its_answer_counts():
    script = Script(reader=[more(answer="perhaps 1001")])
    answer = ask(build(script))
    assert script.counts["reader"] == 3 and answer.text == "perhaps 1001"
    assert ["last round" in script.text("reader", k) for k in range(3)] == [False, False, True]


def test_useful_pages_stay_in_view():
    script = Script(reader=[more() | {"useful": [1]}, report()])
    answer = ask(build(script))
    shown = [len(request.prompt.images) for request in script.of("reader")]
    assert shown == [4, 5] and answer.selected_pages == (1,)


def test_positive_feedback_moves_neighbours_up():
    """With λ = 1 and the mean of beliefs, the neighbours of a useful page come next."""
    first = ask(build(Script(), schema_memory=False)).trace[0].pages
    script = Script(reader=[more() | {"useful": [first[-1]]}, report(useful=[])])
    config = {"rounds": 2, "max_lambda": 1.0, "sampling": "mean", "schema_memory": False, "pages_per_round": 4}
    answer = ask(build(script, **config))
    second = [step.pages for step in answer.trace if step.name == "choose"][1]
    near = {page for page in range(first[-1] - 2, first[-1] + 3) if 1 <= page <= len(DOCUMENT.pages)} - set(first)
    assert near and near <= set(second)


def test_same_seed_gives_the_same_choices_and_another_seed_others():
    def choices(seed: int) -> list[tuple[int, ...]]:
        answer = ask(build(Script(reader=[more()]), seed, max_lambda=1.0, pages_per_round=2))
        return [step.pages for step in answer.trace if step.name == "choose"]

    assert choices(3) == choices(3)
    assert len({tuple(choices(seed)) for seed in range(6)}) > 1


@pytest.mark.parametrize(
    ("config", "check"),
    [
        ({"schema_memory": False}, lambda a, s: "schema" not in s.counts and "planner" not in s.counts),
        ({"belief": False}, lambda a, s: all(x.inputs["lambda"] == 0 for x in a.trace if x.name == "choose")),
        ({"episodic": False}, lambda a, s: "Earlier rounds" not in s.text("reader", 1)),
        ({"rounds": 1}, lambda a, s: s.counts["reader"] == 1),
        ({"max_crops": 5}, lambda a, s: sum(len(x.regions) for x in a.trace if x.name == "read") == 5),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_ablation_changes_what_it_names(config, check):
    script = Script(reader=[more(), report()])
    answer = ask(build(script, **config))
    assert answer.status is Status.ANSWERED and check(answer, script)


def test_ablation_without_bayes_keeps_the_prior():
    def second_choice(bayes: bool) -> tuple[int, ...]:
        script = Script(reader=[more() | {"useful": [4]}, report()])
        config = {"rounds": 2, "max_lambda": 1.0, "sampling": "mean", "schema_memory": False, "bayes": bayes}
        trace = ask(build(script, **config, pages_per_round=8)).trace
        return [step.pages for step in trace if step.name == "choose"][1]

    assert second_choice(True) != () and second_choice(False) != ()
    # With equal beliefs everywhere, pages follow in their order.
    first = set(ask(build(Script(), schema_memory=False, pages_per_round=8)).trace[0].pages)
    rest = [page for page in range(1, len(DOCUMENT.pages) + 1) if page not in first]
    assert list(second_choice(False)) == rest[:8]


def test_schema_is_built_once_for_a_document(tmp_path):
    first, second = Script(), Script()
    ask(build(first, memory=DocumentMemory(tmp_path)))
    ask(build(second, memory=DocumentMemory(tmp_path)))
    assert first.counts["schema"] == 1 and "schema" not in second.counts and second.counts["planner"] == 1


def test_document_shorter_than_the_rounds_ends_when_all_is_read():
    script = Script(reader=[more()])
    answer = ask(build(script), render_text("A short note.\n"))
    assert script.counts["reader"] == 1 and answer.status is Status.ANSWERED


@pytest.mark.parametrize(
    "changes", [{"useful": [99, -1], "irrelevant": ["page 1"]}, {"useful": [1], "irrelevant": [1]}, {"query": None}]
)
def test_odd_reports_are_read_tolerantly(changes):
    script = Script(reader=[more() | changes, report()])
    assert ask(build(script)).status is Status.ANSWERED


def test_unanswerable_report_becomes_status():
    script = Script(reader=[report(answer="", answerable=False, quotes=[])])
    answer = ask(build(script))
    assert (answer.status, answer.text) == (Status.NOT_ANSWERABLE, "Not answerable")


@pytest.mark.parametrize("text", ["", "{}", '{"type": 1}', "\x00"])
def test_liar_never_crashes(text):
    engine = ScriptedEngine(lambda _: text, encoder=tekken_encoder())
    answer = ask(DocMemo(engine, config=DocMemoConfig(max_crops=0)))
    assert answer.status is Status.FAILED and answer.cause


def test_role_engines_answer_their_roles():
    own, reader = Script(), Script()
    system = DocMemo(own.engine, roles={"reader": reader.engine}, config=DocMemoConfig(max_crops=0))
    assert ask(system).text == "1001"
    assert set(own.order()) == {"schema", "planner"} and reader.order() == ["reader"]


def test_script_requests_are_chats_of_one_message() -> None:
    script = Script()
    ask(build(script))
    requests: list[Request] = script.engine.requests
    assert all(len(request.prompt.messages) == 1 for request in requests)
