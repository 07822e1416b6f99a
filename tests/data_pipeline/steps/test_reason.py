"""Phase 2: the gold answer is never sent, only correct answers are kept, and rejections have the right reason."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixtures.data.teacher_server import Say, TeacherServer, serve, user_text
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.records import Evidence, Rejection, Sample
from data_pipeline.settings import ReasonSpec
from data_pipeline.steps.filter import matching_answer, normalise, same_line
from data_pipeline.steps.paging import fixed_pages
from data_pipeline.steps.prompts import parse_reasoning
from data_pipeline.steps.reason import Reasoning, TeacherReasoner, template_reasoning
from seer.teaching.ledger import Budget, Ledger
from seer.teaching.settings import TeacherSpec
from seer.teaching.teachers import open_teacher

SPEC = ReasonSpec()
SAMPLE = Sample(
    id="1",
    source="s",
    question="How many steps has the tower of Orla?",
    context="Geese are loud. Geese are many.".ljust(60)
    + "Bread is dear. The tower has 212 steps. Salt is not.".ljust(60),
    answers=("212", "212 steps"),
    evidence=(Evidence(75, 99),),
)
PAGES = fixed_pages(60)(SAMPLE.context)


@pytest.mark.parametrize(
    ("kind", "gold", "given_answer", "rule"),
    [
        ("extractive", "The Tamber", "tamber.", "exact"),
        ("extractive", "1470", "1,470", "exact"),
        ("extractive", "café", "CAFÉ", "exact"),
        ("extractive", "北京", "北京。", "exact"),
        ("extractive", "October 5, 1987", "5 October 1987", "meaning"),
        ("extractive", "yes", "Yes, both of them are.", "meaning"),
        ("extractive", "yes", "Yes, or rather no.", None),
        ("extractive", "no", "yes", None),
        ("extractive", "Tamber", "The river Tamber", None),
        ("extractive", "212", "213", None),
        ("free", "two scores, BLEU and chrF", "BLEU and chrF scores", "token_f1"),
        ("free", "1470 sentences", "1471 sentences", None),
        ("free", "a new parser", "an old printer", None),
        ("code", "    return x + 1", "```python\nreturn x+1\n```", "line"),
        ("code", "return x + 1", "return x + 2", None),
        (
            "summary",
            "The agency spent more on roads than on rails in 2019.",
            "In 2019 the agency spent more on roads.",
            "rouge_l",
        ),
        ("summary", "The agency spent more on roads.", "Geese fly south.", None),
    ],
)
def test_matching_answer_applies_rule_of_answer_type(kind: Any, gold: str, given_answer: str, rule: str | None) -> None:
    match = matching_answer(replace(SAMPLE, kind=kind, answers=("zzz", gold)), given_answer, SPEC)
    assert (match.rule if match else None) == rule
    assert match is None or match.answer == gold


def test_matching_answer_accepts_unanswerable_only_if_gold() -> None:
    unanswerable = replace(SAMPLE, answerable=False, answers=("unanswerable",), evidence=())
    assert matching_answer(unanswerable, "Unanswerable.", SPEC) is not None
    assert matching_answer(unanswerable, "The question is not answerable from the text", SPEC) is not None
    assert matching_answer(unanswerable, "212", SPEC) is None
    assert matching_answer(SAMPLE, "unanswerable", SPEC) is None


@settings(deadline=None)
@given(st.text(max_size=60))
def test_normalise_is_idempotent_and_answer_matches_itself(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)
    if normalise(text):
        assert matching_answer(replace(SAMPLE, answers=(text,)), text, SPEC) is not None


@settings(deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_same_line_is_symmetric(a: str, b: str) -> None:
    if "`" not in a + b and len(a.splitlines()) == len(b.splitlines()) == 1:
        assert same_line(a, b) == same_line(b, a) or not (a.strip() and b.strip())


@pytest.mark.parametrize(
    ("text", "think", "finish", "expected"),
    [
        ("<think>It is 212.</think>\nAnswer: 212", "", "stop", ("It is 212.", "212", "")),
        ("<think>It is 212.</think>212", "", "stop", ("It is 212.", "212", "")),
        ("It is 212.</think>\n\n**Answer:** 212", "", "stop", ("It is 212.", "212", "")),
        ("Image 2 says 212.\nAnswer: 212", "", "stop", ("Image 2 says 212.", "212", "")),
        ("Answer: 212", "It is 212.", "stop", ("It is 212.", "212", "")),
        ("它有212级。\n答案：212", "", "stop", ("它有212级。", "212", "")),
        ("<think>x</think>    return 1", "", "stop", ("x", "    return 1", "")),
        ("212", "", "stop", ("", "212", "no_reasoning")),
        ("", "", "stop", ("", "", "reason_empty")),
        ("<think>x</think>", "", "stop", ("", "", "reason_empty")),
        ("<think>and then and then", "", "length", ("", "", "reason_truncated")),
        ("and then and then", "", "length", ("", "", "reason_truncated")),
        ("Answer: 21", "It is 212.", "length", ("", "", "reason_truncated")),  # the answer was cut, not the thinking
        ("<think>x</think>I'm sorry, I cannot help.", "", "stop", ("", "", "reason_refused")),
        ("抱歉，我无法回答。", "", "stop", ("", "", "reason_refused")),
    ],
)
def test_parse_reasoning_splits_thinking_and_answer(
    text: str, think: str, finish: str, expected: tuple[str, str, str]
) -> None:
    parsed = parse_reasoning(text, think, finish)
    assert (parsed.think, parsed.answer, parsed.problem) == expected


@settings(deadline=None)
@given(st.text(max_size=120), st.sampled_from(["stop", "length"]))
def test_parse_reasoning_accepts_any_text(text: str, finish: str) -> None:
    parsed = parse_reasoning(text, "", finish)
    assert parsed.problem or (parsed.think and parsed.answer)


def reason_with(tmp_path: Path, server: TeacherServer, sample: Sample = SAMPLE, **spec: Any) -> Reasoning | Rejection:
    async def run() -> Reasoning | Rejection:
        teacher_spec = TeacherSpec(
            base_url=server.base_url, model="big", temperature=0.7, top_p=0.8, top_k=20, attempts=1
        )
        with Ledger(tmp_path / "ledger.jsonl") as ledger:
            async with open_teacher(teacher_spec, ledger, Budget(), role="reason") as teacher:
                return await TeacherReasoner(teacher, ReasonSpec(**spec))(sample, PAGES, (2,))

    return asyncio.run(run())


def test_teacher_reasoner_never_sends_the_gold_answer(tmp_path: Path) -> None:
    sample = replace(SAMPLE, answers=("SECRET-GOLD",))
    with serve(lambda body, n: Say("<think>x</think>Answer: secret gold")) as server:
        found = reason_with(tmp_path, server, sample)
    (body,) = server.asked
    sent = str(body["messages"])
    assert "secret" not in sent.lower()
    assert sample.question in sent
    assert sample.context in user_text(body)
    assert f"Text from image 2: {sample.context[60:]}" in user_text(body)
    assert (body["temperature"], body["top_p"], body["top_k"]) == (0.7, 0.8, 20)
    assert isinstance(found, Reasoning)
    assert (found.answer, found.made_by) == ("secret gold", "teacher:big")


def test_teacher_reasoner_draws_samples_until_one_is_correct(tmp_path: Path) -> None:
    def script(body: Any, n: int) -> Say:
        return Say("<think>x</think>Answer: " + ("212" if body["seed"] == 2 else "300"))

    with serve(script) as server:
        rejection = reason_with(tmp_path, server, samples=2)
        assert isinstance(rejection, Rejection)
        assert rejection.reason == "answer_differs"
        assert rejection.notes == {"reason_replies": 2, "answer_differs": 2}
        found = reason_with(tmp_path, server, samples=4)
    assert isinstance(found, Reasoning)
    assert found.notes["reason_replies"] == 3
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("say", "reason"),
    [
        (Say(""), "reason_empty"),
        (Say(None), "reason_empty"),
        (Say("<html><body>It works!</body></html>"), "no_reasoning"),
        (Say("I'm sorry, I can't."), "reason_refused"),
        (Say("<think>again and again", finish="length"), "reason_truncated"),
        (Say("<think>x</think>Answer: 7"), "answer_differs"),
        (Say(status=400, raw=b"bad"), "reason_failed"),
        (Say(status=400, raw=b"maximum context length is 32768 tokens"), "reason_too_long"),
    ],
)
def test_teacher_reasoner_rejects_bad_reply_with_reason(tmp_path: Path, say: Say, reason: str) -> None:
    with serve(lambda body, n: say) as server:
        found = reason_with(tmp_path, server)
    assert isinstance(found, Rejection)
    assert found.reason == reason


def test_teacher_reasoner_with_answer_judge_accepts_paraphrase(tmp_path: Path) -> None:
    def script(body: Any, n: int) -> Say:
        return Say(
            "YES" if "Do they mean the same?" in user_text(body) else "<think>x</think>Answer: two hundred and twelve"
        )

    with serve(script) as server:
        assert isinstance(reason_with(tmp_path, server), Rejection)
        found = reason_with(tmp_path, server, use_answer_judge=True)
    assert isinstance(found, Reasoning)
    assert found.answer == "two hundred and twelve"
    assert found.notes["right_by_judge"] == 1


@pytest.mark.parametrize(
    ("kind", "gold", "reply", "answer"),
    [
        ("extractive", "Tamber", "the **tamber**.", "the **tamber**."),
        ("extractive", "Tamber", "**tamber**", "tamber"),
        ("code", "    return 1", "```python\n    return  1\n```", "    return  1"),
        ("summary", "The agency spent more on roads.", "The agency spent more.", "The agency spent more."),
    ],
)
def test_teacher_reasoner_target_is_own_answer_unless_gold_is_set(
    tmp_path: Path, kind: Any, gold: str, reply: str, answer: str
) -> None:
    sample = replace(SAMPLE, kind=kind, answers=(gold,))
    with serve(lambda body, n: Say(f"<think>x</think>Answer: {reply}")) as server:
        own = reason_with(tmp_path, server, sample)
        replaced = reason_with(tmp_path, server, sample, target="gold")
    assert isinstance(own, Reasoning) and isinstance(replaced, Reasoning)
    assert (own.answer, replaced.answer) == (answer, gold)
    assert len(server.asked) == 1


def test_template_reasoning_quotes_evidence() -> None:
    reasoning = template_reasoning(SAMPLE, PAGES, (2,))
    assert isinstance(reasoning, Reasoning)
    assert reasoning.think == "Image 2 says: “The tower has 212 steps.”\nSo the answer is: 212"
    assert (reasoning.answer, reasoning.made_by) == ("212", "template")


def test_template_reasoning_without_evidence_finds_answer_or_rejects() -> None:
    reasoning = template_reasoning(replace(SAMPLE, evidence=None), PAGES, (2,))
    assert isinstance(reasoning, Reasoning)
    assert "The tower has 212 steps." in reasoning.think
    for sample in (replace(SAMPLE, evidence=None, answers=("none",)), replace(SAMPLE, kind="summary")):
        rejection = template_reasoning(sample, PAGES, (2,))
        assert isinstance(rejection, Rejection)
        assert rejection.reason == "nothing_to_quote"


def test_template_reasoning_uses_language_of_question() -> None:
    context = "鹅很吵。奥尔拉的塔有212级台阶。"
    sample = replace(
        SAMPLE, question="奥尔拉的塔有多少级台阶？", context=context, evidence=(Evidence(4, len(context)),)
    )
    reasoning = template_reasoning(sample, fixed_pages(60)(context), (1,))
    assert isinstance(reasoning, Reasoning)
    assert reasoning.think == "图1写道：“奥尔拉的塔有212级台阶。”\n因此答案是：212"


@settings(deadline=None)
@given(st.text(max_size=300), st.data())
def test_template_reasoning_quotes_occur_in_context(text: str, data: st.DataObject) -> None:
    context = text + "x"
    start = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(start + 1, len(context)))
    sample = replace(SAMPLE, context=context, evidence=(Evidence(start, end),))
    pages = fixed_pages(100)(context)
    reasoning = template_reasoning(sample, pages, tuple(page.number for page in pages))
    if isinstance(reasoning, Reasoning):
        for line in reasoning.think.split("\n")[:-1]:
            if "“" in line and line.endswith("”"):
                quote = line.partition("“")[2].removesuffix("”")
                assert quote in context.replace("“", '"').replace("”", '"')
