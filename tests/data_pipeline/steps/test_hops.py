"""Reasoning over several rounds from a teacher: each thought sees only the pages that its round has retrieved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fixtures.data.builds import configure
from fixtures.data.teacher_server import Body, Say, TeacherServer, serve, user_text

from data_pipeline.build import build
from data_pipeline.steps.prompts import parse_hop
from seer.errors import InputError
from seer.schema import Turn
from seer.shards.reader import ShardSet

FILLER = "The geese of the valley are loud in spring.\n" * 90
FIRST, SECOND = "Blue Hour is sung by Anna Vik.", "Anna Vik was born in Lund."


def write_two_hops(path: Path) -> None:
    """Write one record whose first hop is on a later page than its second."""
    context = f"{SECOND}\n{FILLER}\n{FILLER}\n{FIRST}\n"
    row = {"id": 1, "question": "Where was the singer of Blue Hour born?", "context": context, "answers": ["Lund"]}
    path.write_text(json.dumps({**row, "evidence": [FIRST, SECOND]}) + "\n")


def is_hop(body: Body) -> bool:
    return "pages read so far" in user_text(body)


def teacher(body: Body, n: int) -> Say:
    if is_hop(body):
        return Say("<think>Hm.</think>Image 3 names Anna Vik as the singer. Her birthplace is missing.")
    return Say("<think>Anna Vik sings Blue Hour and was born in Lund.</think>Answer: Lund")


def build_with(tmp_path: Path, server: TeacherServer, **changes: Any) -> tuple[tuple[Turn, ...], dict[str, int]]:
    write_two_hops(tmp_path / "train.jsonl")
    spec = {"base_url": server.base_url, "model": "scripted", "backoff_s": 0.0, "attempts": 2}
    sources = [{"kind": "table", "path": str(tmp_path / "train.jsonl"), "name": "hops"}]
    reason = {"kind": "teacher", "teacher": spec, **changes}
    report = build(configure(tmp_path, sources=sources, reason=reason, assemble={"multi_round_share": 1.0}))
    return ShardSet(tmp_path / "out" / "train")[0].turns, report.statistics["sources"]["hops"]["notes"]


def test_build_with_hops_writes_a_thought_before_each_further_call(tmp_path: Path) -> None:
    with serve(teacher) as server:
        turns, notes = build_with(tmp_path, server)
    assert [turn.kind for turn in turns] == [
        "prompt", "call", "observation", "think", "call", "observation", "think", "answer"
    ]  # fmt: skip
    first, second = (turn for turn in turns if turn.kind == "call")
    assert first.pages > second.pages == (1,)
    assert turns[3].text == "Image 3 names Anna Vik as the singer. Her birthplace is missing."
    assert turns[6].text == "Anna Vik sings Blue Hour and was born in Lund."
    assert turns[7].text == "Lund"
    assert notes["hop_replies"] == 1
    (hop,) = filter(is_hop, server.asked)
    sent = json.dumps(hop["messages"])
    # Neither the page of the second round nor the answer can reach the thought of the first.
    assert FIRST in sent and SECOND not in sent and "Lund" not in sent


@pytest.mark.parametrize(
    "bad", [Say(""), Say("Image 3 names", finish="length"), Say("I'm sorry, I can't."), Say(status=400)]
)
def test_build_with_unusable_thought_has_one_round(tmp_path: Path, bad: Say) -> None:
    with serve(lambda body, n: bad if is_hop(body) else teacher(body, n)) as server:
        turns, notes = build_with(tmp_path, server)
    assert [turn.kind for turn in turns] == ["prompt", "call", "observation", "think", "answer"]
    assert len(turns[1].pages) == 2
    assert notes["hops_unusable"] == 1


def test_build_with_wrong_answer_pays_for_no_thought(tmp_path: Path) -> None:
    with (
        serve(lambda body, n: Say("<think>x</think>Answer: Oslo")) as server,
        pytest.raises(InputError, match="answer_differs"),
    ):
        build_with(tmp_path, server)
    assert not any(map(is_hop, server.asked))


def test_build_without_hop_thoughts_keeps_all_thinking_after_the_last_call(tmp_path: Path) -> None:
    with serve(teacher) as server:
        turns, _ = build_with(tmp_path, server, hop_thoughts=False)
    assert [turn.kind for turn in turns] == ["prompt", "call", "observation", "call", "observation", "think", "answer"]
    assert not any(map(is_hop, server.asked))


@pytest.mark.parametrize(
    ("text", "finish", "thought"),
    [
        ("<think>x</think>\nImage 1 says so.", "stop", "Image 1 says so."),
        ("Image 1 says so.", "stop", "Image 1 says so."),
        ("Image 1 says", "length", ""),
        ("<think>never closed", "stop", ""),
        ("  ", "stop", ""),
        ("抱歉，我无法回答。", "stop", ""),
    ],
)
def test_parse_hop_accepts_only_whole_thoughts(text: str, finish: str, thought: str) -> None:
    assert parse_hop(text, finish) == thought
