"""Builds without teachers: from sources to finished sets, with the same bytes every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fixtures.data.builds import configure, written_files
from fixtures.data.world import NAMES, fact, write_world

from data_pipeline.build import build, locked
from data_pipeline.tally import BuildStopped
from seer.errors import ConfigError, InputError
from seer.shards.reader import ShardSet


def test_build_without_teachers_quotes_the_evidence(tmp_path: Path) -> None:
    report = build(configure(tmp_path))
    shards = ShardSet(tmp_path / "out" / "train")
    shards.verify()
    assert len(shards) == 12
    for n, trajectory in enumerate(shards):
        observed = "".join(excerpt.text for excerpt in trajectory.turns[2].excerpts)
        assert fact(NAMES[n % 10], 100 + n) in observed
        assert trajectory.answers == (str(100 + n),)
        assert trajectory.provenance["reason"] == "template"
    assert report.statistics["sources"]["world"]["retention"]["read"] == 12
    assert (tmp_path / "out" / "config.toml").is_file()
    assert "| world |" in (tmp_path / "out" / "README.md").read_text()


def test_build_twice_writes_equal_bytes(tmp_path: Path) -> None:
    options = {
        "validation_share": 0.4,
        "variants": {"shuffle_share": 0.5, "unanswerable_share": 0.5},
        "assemble": {"forms": ["select", "iso_control"], "multi_round_share": 0.5},
    }
    for out in ("a", "b"):
        build(configure(tmp_path, count=24, out=out, **options))
    written = written_files(tmp_path / "a")
    assert written == written_files(tmp_path / "b")
    assert {name.rpartition("/")[0] for name in written} == {
        "", "train", "validation", "iso_control/train", "iso_control/validation"
    }  # fmt: skip


def test_build_keeps_each_document_in_one_split(tmp_path: Path) -> None:
    variants = {"shuffle_share": 1.0, "unanswerable_share": 1.0}
    build(configure(tmp_path, count=40, validation_share=0.5, variants=variants))
    splits = {}
    for split in ("train", "validation"):
        for trajectory in ShardSet(tmp_path / "out" / split):
            # Shuffled variants reorder the lines; every line of a document names the record it was written for.
            text = "\n".join(sorted(line for line in trajectory.source.splitlines() if line))
            number = int(next(line for line in text.splitlines() if line.startswith("Entry")).split()[1].split("-")[0])
            splits.setdefault(number // 2, set()).add(split)
    assert len(splits) == 20
    assert all(len(names) == 1 for names in splits.values())
    assert {name for names in splits.values() for name in names} == {"train", "validation"}


def test_build_over_finished_build_returns_it_or_fails(tmp_path: Path) -> None:
    build(configure(tmp_path))
    before = written_files(tmp_path / "out")
    again = build(configure(tmp_path))
    assert again.already_built
    assert again.statistics["written"] == 12
    with pytest.raises(InputError, match="another configuration"):
        build(configure(tmp_path, seed=1))
    assert written_files(tmp_path / "out") == before
    assert not build(configure(tmp_path, seed=1), force=True).already_built


def test_build_in_locked_folder_fails(tmp_path: Path) -> None:
    config = configure(tmp_path)
    Path(config.out).mkdir()
    with locked(Path(config.out)), pytest.raises(InputError, match="another process"):
        build(config)
    assert build(config).statistics["written"] == 12


def test_build_with_missing_manifest_builds_again(tmp_path: Path) -> None:
    config = configure(tmp_path, validation_share=0.4)
    build(config)
    before = written_files(tmp_path / "out")
    (tmp_path / "out" / "train" / "manifest.json").unlink()
    assert not build(config).already_built
    assert written_files(tmp_path / "out") == before


def test_build_with_embed_pages_stores_png_pages(tmp_path: Path) -> None:
    build(configure(tmp_path, count=2, embed_pages=True))
    shards = ShardSet(tmp_path / "out" / "train")
    assert len(shards.pages_png(0)) == len(shards[0].turns[0].pages)
    shards.verify()


def test_build_with_too_many_faults_stops_and_names_reasons(tmp_path: Path) -> None:
    path = write_world(tmp_path / "train.jsonl", 60, filler_sentences=2)
    path.write_text(path.read_text() + "broken\n" * 40)
    with pytest.raises(
        BuildStopped, match=r"max_fault_share = 0\.2 allows: broken_json \d+ \(e\.g\. .+\); fix the input, or"
    ):
        build(configure(tmp_path))
    assert not (tmp_path / "out" / "train" / "manifest.json").exists()
    report = build(configure(tmp_path, max_fault_share=0.5))
    source = report.statistics["sources"]["world"]
    assert source["rejected"] == {"broken_json": 40}
    assert len(source["examples"]["broken_json"]) == 3
    assert "line 61" in source["examples"]["broken_json"][0]["detail"]


def test_build_without_kept_records_fails_with_reasons(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"(?s)no record of 12 was kept.*too_many_pages"):
        build(configure(tmp_path, max_pages=1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"judge": {"kind": "teacher"}}, r"judge.kind is 'teacher': describe the teacher in \[judge.teacher\]"),
        ({"reason": {"kind": "oracle"}}, "reason.kind"),
        ({"variants": {"shufle_share": 1}}, "did you mean 'shuffle_share'"),
        ({"max_pages": 0}, "max_pages"),
        ({"sources": []}, "sources"),
        ({"assemble": {"forms": ["dance"]}}, "forms"),
    ],
)
def test_config_invalid_setting_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configure(tmp_path, **changes)
    with pytest.raises(ConfigError, match="two sources are named 'table': set a different `name`"):
        configure(tmp_path, sources=[{"path": "train.jsonl"}, {"path": "train.jsonl"}])


def test_build_with_unknown_style_suggests_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'seer'"):
        build(configure(tmp_path, style="ser"))


def test_build_rejects_records_with_more_necessary_pages_than_allowed(tmp_path: Path) -> None:
    every, limited = (
        build(configure(tmp_path, count=6, out=out, judge={"kind": "answer", "max_relevant_pages": limit}))
        for out, limit in (("all", 0), ("few", 1))
    )
    relevant = {item.id: item.relevant_pages for item in ShardSet(tmp_path / "all" / "train")}
    few = {item.id for item in ShardSet(tmp_path / "few" / "train")}
    assert few == {name for name, pages in relevant.items() if len(pages) <= 1}
    assert 0 < len(few) < len(relevant) == every.statistics["written"]
    rejected = limited.statistics["sources"]["world"]["rejected"]
    assert rejected["too_many_relevant"] == len(relevant) - len(few)


def test_build_of_other_splits_says_in_its_card_not_to_train_on_it(tmp_path: Path) -> None:
    warning = "**Trial build: some sources are not train splits. Do not train on this set.**"
    config = configure(tmp_path, count=2)
    build(config)
    assert warning not in (tmp_path / "out" / "README.md").read_text()
    trial = config.model_copy(
        update={
            "out": str(tmp_path / "trial"),
            "sources": tuple(source.model_copy(update={"allow_other_splits": True}) for source in config.sources),
        }
    )
    build(trial)
    assert warning in (tmp_path / "trial" / "README.md").read_text()


@pytest.mark.parametrize("phase", ["judge", "reason"])
def test_configuration_with_a_teacher_phase_must_describe_the_teacher(tmp_path: Path, phase: str) -> None:
    with pytest.raises(ValueError, match=rf"{phase}.kind is 'teacher': describe the teacher in \[{phase}.teacher\]"):
        configure(tmp_path, **{phase: {"kind": "teacher"}})
