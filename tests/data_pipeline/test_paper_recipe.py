"""The shipped recipe of the paper: its sources, totals and switches."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fixtures.data.downloads import ANSWER, COUNT, SUMMARY, write_downloads
from fixtures.data.teacher_server import Body, Say, is_judge, serve, user_text

from data_pipeline.build import build
from data_pipeline.estimate import estimate_build
from data_pipeline.settings import BuildConfig, pilot_of
from data_pipeline.sources.registry import SOURCES, check_split, task_of
from seer.config import load_config
from seer.evaluation.benchmarks.tasks import TASKS
from seer.shards.reader import ShardSet

CONFIG = Path(__file__).parents[2] / "configs" / "data-paper.toml"
TRAIN_RECORDS = {
    "2wikimqa": 167_454,
    "hotpotqa": 90_447,
    "musique": 19_938,
    "qasper": 2_593,
    "triviaqa": 110_648,
    "gov_report": 17_517,
    "lcc_python": 100_000,
}
"""Published sizes of the train splits: questions, question-document pairs, reports, files."""


def paper() -> BuildConfig:
    return load_config(BuildConfig, str(CONFIG), [])


def test_paper_recipe_has_all_ten_sources_and_writes_the_papers_seven() -> None:
    config = paper()
    assert {source.kind for source in config.sources} == set(SOURCES)
    included = {source.kind for source in config.sources if source.include}
    assert included == {name for name, source in SOURCES.items() if source.in_paper} == set(TRAIN_RECORDS)
    for source in config.sources:
        check_split(source)
        assert task_of(source)
        assert source.order == "random"
        assert source.include or source.limit is not None


def test_paper_recipe_targets_divide_the_papers_total_in_proportion() -> None:
    targets = {source.kind: source.target or 0 for source in paper().sources if source.include}
    assert sum(targets.values()) == 10_041
    capped = {kind: min(records, 20_000) for kind, records in TRAIN_RECORDS.items()}
    for kind, target in targets.items():
        assert abs(target - 10_041 * capped[kind] / sum(capped.values())) <= 1


def test_paper_recipe_switches_follow_the_paper() -> None:
    config = paper()
    assert config.style == "paper"
    assert (config.max_tokens, config.judge.keep_unanswerable) == (16_384, False)
    assert (config.reason.target, config.reason.correct_by, config.reason.samples) == ("teacher", "official", 1)
    assert (config.assemble.multi_round_share, config.assemble.distributed_share) == (0.2, 0)  # the first is ours
    assert config.reason.hop_thoughts
    assert config.reason.teacher is not None and config.judge.teacher is not None
    assert (config.judge.teacher.temperature, config.judge.teacher.model) == (0.3, "Qwen/Qwen3.5-9B")
    reason = config.reason.teacher
    assert (reason.temperature, reason.top_p, reason.top_k, reason.model) == (0.7, 0.8, 20, "Qwen/Qwen3-32B")
    assert reason.extra == {"chat_template_kwargs": {"enable_thinking": True}}


def test_paper_recipe_pilot_divides_like_the_targets() -> None:
    limits = {source.kind: source.limit or 0 for source in pilot_of(paper(), 200).sources}
    assert sum(limits.values()) == 200
    assert limits["qasper"] < limits["gov_report"] < limits["hotpotqa"]


def teacher(body: Body, n: int) -> Say:
    """Judge every page necessary, and answer every source but DuReader correctly."""
    text = user_text(body)
    if is_judge(body):
        return Say("YES")
    if code := re.search(r"def f(\d)", text):
        answer = f"    return {code[1]}"
    else:
        answer = SUMMARY if "government body" in text else ANSWER if "Which river" in text else "I know not."
    return Say(f"<think>The pages say so.</think>Answer: {answer}")


def test_paper_recipe_builds_from_the_published_downloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_checkpoint_dir: Path
) -> None:
    write_downloads(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "glyph").symlink_to(small_checkpoint_dir)
    monkeypatch.chdir(tmp_path)
    with serve(teacher) as server:
        addresses = [f'{phase}.teacher.base_url="{server.base_url}"' for phase in ("judge", "reason")]
        config = load_config(BuildConfig, str(CONFIG), addresses)
        estimate = estimate_build(config)
        assert not server.asked
        report = build(config)
    sources = report.statistics["sources"]
    written = {name: source["written"] for name, source in sources.items()}
    # GovReport has one more report, of the CRS.
    expected = {name: COUNT + (name == "gov_report") for name in TRAIN_RECORDS}
    assert written == {**expected, "dureader": 0, "qmsum": 0, "narrativeqa": 0}
    assert sources["qasper"]["rejected"] == {"unanswerable": COUNT}
    assert sources["dureader"]["rejected"] == {"answer_differs": COUNT}
    assert {source.name for source in estimate.sources} == set(sources)
    assert all(source.sampled and source.admitted for source in estimate.sources)
    for split in ("train", "validation"):
        for trajectory in ShardSet(Path(config.out) / split) if split in report.sets else ():
            name = trajectory.provenance["source"]
            instruction = TASKS[SOURCES[name].task].instruction
            assert trajectory.question.startswith(instruction)
            assert trajectory.style.newline == TASKS[SOURCES[name].task].newline
            assert trajectory.relevant_pages
    card = (Path(config.out) / "README.md").read_text()
    for said in ("official metric", "teacher's own answer", "random order", "counted only", "16,384 tokens", "10,041"):
        assert said in card, said
