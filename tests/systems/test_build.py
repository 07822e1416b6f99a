"""Building systems by name: options, roles, first stages, and choices that do not go together."""

from __future__ import annotations

import pytest

from seer.engines.scripted import ScriptedEngine
from seer.errors import ConfigError, InputError
from seer.models.counting import tekken_encoder
from seer.reading.policy import ReadingPolicy
from seer.selection.dense import Dense
from seer.systems.build import EVIDENCE_SYSTEMS, READING_SYSTEMS, SYSTEMS, build_system, run_name, selects_pages
from seer.systems.docmemo.system import DocMemo
from seer.systems.trident.system import Trident

ENGINE = ScriptedEngine(encoder=tekken_encoder())


def test_systems_are_reading_and_evidence_systems():
    assert (*READING_SYSTEMS, *EVIDENCE_SYSTEMS) == SYSTEMS
    assert EVIDENCE_SYSTEMS == ("doclens", "docmemo", "trident")
    assert [run_name(name) for name in SYSTEMS] == list(SYSTEMS)
    assert [name for name in SYSTEMS if selects_pages(name)] == ["seer", "seer-k0", "auto"]


@pytest.mark.parametrize("name", EVIDENCE_SYSTEMS)
def test_build_system_sets_options(name, tmp_path):
    options = ["budget.max_calls=7", "max_new_tokens=300"]
    crops = {"doclens": ["localizer=false"], "docmemo": ["max_crops=0"], "trident": [f"memory={tmp_path}"]}[name]
    system = build_system(name, engine=ENGINE, options=[*options, *crops], seed=5)
    assert (system.name, system.budget.max_calls, system.config.max_new_tokens, system.seed) == (name, 7, 300, 5)
    if name == "trident":
        assert system.memory.folder == tmp_path


def test_build_system_builds_first_stage_and_roles(monkeypatch):
    monkeypatch.setattr(Dense, "__init__", lambda self: None)
    trident = build_system("trident", engine=ENGINE, options=["first_stage=hybrid"])
    docmemo = build_system("docmemo", engine=ENGINE, options=["first_stage=dense", "max_crops=0"])
    assert isinstance(trident, Trident) and trident.pool.name == "bm25+dense"
    assert isinstance(docmemo, DocMemo) and docmemo.scorer.name == "dense"
    monkeypatch.setattr("seer.systems.build.build_engine", lambda *name, **options: (name, options))
    options = ["roles.reranker.model=small", "roles.reranker.base_url=http://127.0.0.1:1/v1"]
    assert build_system("trident", engine=ENGINE, options=options).roles == {
        "reranker": ((), {"model": "small", "base_url": "http://127.0.0.1:1/v1"})
    }


@pytest.mark.parametrize(
    ("name", "arguments", "error", "message"),
    [
        ("doclens", {"options": ["answer_sample=3"]}, ConfigError, "answer_samples"),
        ("doclens", {"options": ["answer_samples=0"]}, ConfigError, "answer_samples"),
        ("trident", {"options": ["first_stage=colbert"]}, ConfigError, "first_stage"),
        ("trident", {"options": ["roles.lens.model="]}, InputError, "roles.lens: names neither model nor base_url"),
        ("docmemo", {"selector": "bm25"}, InputError, "chooses its own pages; leave --selector out"),
        ("docmemo", {"policy": ReadingPolicy(rounds=2)}, InputError, "has no reading policy; use --system-option"),
        ("seer", {"options": ["answer_samples=3"]}, InputError, "the system 'seer' has none; use --policy"),
        ("doclense", {}, InputError, "no system 'doclense'; known: seer"),
    ],
)
def test_build_system_rejects_contradictory_choices(name, arguments, error, message):
    with pytest.raises(error, match=message):
        build_system(name, engine=ENGINE, **arguments)
