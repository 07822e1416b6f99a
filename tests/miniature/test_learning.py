"""The learning curve: stages' logs beside a checkpoint become a plot and a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seer.errors import InputError
from seer.miniature.learning import learning_section
from seer.miniature.model import SHIPPED, STAGES


def test_stages_follow_each_other_in_time(tmp_path: Path) -> None:
    for stage, share in ((1, 0.5), (2, 0.9)):
        records = [{"step": 1, "step_s": 30.0, "loss": 1.0}, {"step": 2, "step_s": 30.0, "loss": 1.0}]
        records.append({"kind": "eval", "step": 2, "eval-0/accuracy/answer": 0.1, "eval-1/accuracy/answer": share})
        (tmp_path / f"log-{stage}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), "utf-8")
    section = learning_section(tmp_path)
    assert section is not None
    assert [(dot.x, dot.y) for dot in section.plots[0].dots] == [(1.0, 0.5), (2.0, 0.9)]
    assert len(section.tables[0].rows) == 2


def test_no_logs_no_section_and_a_broken_log_is_named(tmp_path: Path) -> None:
    assert learning_section(tmp_path) is None
    (tmp_path / "log-1.jsonl").write_text("{", "utf-8")
    with pytest.raises(InputError, match="log-1.jsonl', line 1"):
        learning_section(tmp_path)


def test_the_shipped_miniature_tells_how_it_learned() -> None:
    section = learning_section(SHIPPED)
    assert section is not None and len(section.tables[0].rows) == len(STAGES)
    assert {dot.series for dot in section.plots[0].dots} >= {"whole select calls", "whole answers"}
