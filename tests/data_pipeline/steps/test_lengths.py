"""A trajectory longer than training accepts is rejected before the next teacher call, and unanswerable records can be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixtures.data.builds import configure, correct_teacher, with_teachers
from fixtures.data.teacher_server import Body, Say, is_judge, serve

from data_pipeline.build import build
from data_pipeline.records import Rejected, Sample
from data_pipeline.settings import BuildConfig
from data_pipeline.steps.lengths import LengthLimit
from data_pipeline.steps.paging import layout_pages
from seer.errors import InputError
from seer.models.checkpoint import load_encoder
from seer.models.counting import tekken_encoder
from seer.rendering import render_text, resolve_style
from seer.schema import Trajectory
from seer.shards.reader import ShardSet

STYLE = resolve_style("seer")


def tokens_of(trajectory: Trajectory, encoder: Any = None) -> int:
    """Return the length of a trajectory as the trainer counts it."""
    pages = render_text(trajectory.source, trajectory.style).pages
    sizes = {page.number: (page.width_px, page.height_px) for page in pages}
    return len((encoder or tekken_encoder()).encode(trajectory.turns, sizes))


def built(config: BuildConfig) -> list[Trajectory]:
    build(config)
    return list(ShardSet(Path(config.out) / "train"))


def test_build_rejects_long_pages_before_the_judge_is_paid(tmp_path: Path) -> None:
    with serve(correct_teacher) as server:
        config = configure(tmp_path, max_tokens=700, **with_teachers(server))
        with pytest.raises(InputError, match=r"(?s)no record of 12 was kept.*pages_too_long"):
            build(config)
        assert server.asked == []


def test_build_rejects_long_retrieved_text_before_the_reasoner_is_paid(tmp_path: Path) -> None:
    lengths = sorted(map(tokens_of, built(configure(tmp_path, out="free"))))
    pages_only = max(
        sum(page.vision_tokens for page in layout_pages(STYLE)(trajectory.source))
        for trajectory in ShardSet(tmp_path / "free" / "train")
    )
    with serve(correct_teacher) as server:
        # The limit admits the pages of every record, and the retrieved text of none.
        config = configure(tmp_path, max_tokens=(pages_only + lengths[0]) // 2, **with_teachers(server))
        with pytest.raises(InputError, match=r"(?s)no record of 12 was kept.*retrieved_too_long"):
            build(config)
        assert server.asked and all(map(is_judge, server.asked))


def test_build_rejects_long_reasoning_and_does_not_count_it_as_kept(tmp_path: Path) -> None:
    def wordy(body: Body, n: int) -> Say:
        say = correct_teacher(body, n)
        if not is_judge(body) and "in entry 3?" in str(body["messages"][-1]):
            say.text = say.text and say.text.replace("<think>", "<think>" + "The page goes on. " * 200)
        return say

    with serve(wordy) as server:
        free = built(configure(tmp_path, out="free", **with_teachers(server)))
        limit = sorted(map(tokens_of, free))[-2]
        report = build(configure(tmp_path, max_tokens=limit, **with_teachers(server)))
    source = report.statistics["sources"]["world"]
    assert source["rejected"] == {"trajectory_too_long": 1}
    assert source["written"] == source["retention"]["reason"] == 11
    assert source["retention"]["judge"] == 12
    assert max(map(tokens_of, ShardSet(tmp_path / "out" / "train"))) == limit


def test_length_limit_counts_with_the_checkpoint_of_training(tmp_path: Path, small_checkpoint_dir: Path) -> None:
    (trajectory,) = built(configure(tmp_path, count=1))
    length = tokens_of(trajectory, load_encoder(small_checkpoint_dir)[0])
    pages = layout_pages(STYLE)(trajectory.source)
    LengthLimit(length, str(small_checkpoint_dir)).check("trajectory_too_long", trajectory.turns, pages)
    with pytest.raises(Rejected) as rejected:
        LengthLimit(length - 1, str(small_checkpoint_dir)).check("trajectory_too_long", trajectory.turns, pages)
    assert rejected.value.detail == f"{length} tokens, {length - 1} allowed"


def test_build_drops_unanswerable_records_in_phase_one_unless_kept(tmp_path: Path) -> None:
    rows = [
        {"id": n, "question": f"How many in entry {n}?", "context": f"Entry {n} has {100 + n} steps.", "answers": [str(100 + n)],
         "answerable": n % 2 == 0}
        for n in range(4)
    ]  # fmt: skip
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = [{"kind": "table", "path": str(path), "name": "world"}]
    with serve(correct_teacher) as server:
        teachers = with_teachers(server)
        teachers["judge"]["keep_unanswerable"] = False
        report = build(configure(tmp_path, sources=source, **teachers))
        assert len(server.asked) == 4
    counts = report.statistics["sources"]["world"]
    assert counts["rejected"] == {"unanswerable": 2}
    assert (counts["retention"]["render"], counts["retention"]["judge"], counts["written"]) == (4, 2, 2)
    kept = build(configure(tmp_path, out="kept", sources=source, judge={"kind": "answer"}))
    assert kept.statistics["sources"]["world"]["relevant_pages"] == {"0": 2, "1": 2}


def test_length_limit_of_zero_admits_everything() -> None:
    sample = Sample(id="1", source="s", question="?", context="x " * 90_000, answers=("x",))
    pages = layout_pages(STYLE)(sample.context)
    limit = LengthLimit(0)
    limit.check_pages(sample, pages)
    limit.check_retrieved(replace(sample), pages, (1, 2))
