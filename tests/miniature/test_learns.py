"""Test that a small model learns from nothing, in a few minutes on a CPU, to read twelve names and find their pages."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from seer.miniature.lessons import lessons
from seer.miniature.model import build_untrained
from seer.miniature.world import World
from seer.schema import Trajectory
from train.config import TrainConfig
from train.loop import fit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
STEPS = 320


def test_training_learns_twelve_names_from_nothing(tmp_path: Path) -> None:
    """Evaluated on held-out pages.

    A guess gets half of the tokens in "reading" right, because every second token is a line break. In "matching" half of
    the answer repeats the names of the question, and a guess finds at most one page in four.
    """

    def lesson_sets(split: str, count: int) -> list[list[Trajectory]]:
        world = World(0, split, num_names=12, max_pages=3, chinese_share=0)  # type: ignore[arg-type]
        matched = lessons("matching", world, count, max_lines=1, call_share=0)
        return [list(lessons("reading", world, count)), list(matched)]

    config = TrainConfig.model_validate(
        {
            "out": str(tmp_path / "run"),
            "steps": STEPS,
            "data": {
                "mixing": "step",
                "sets": [
                    {"path": "reading", "share": 1, "samples_per_step": 48},
                    {"path": "matching", "share": 2, "samples_per_step": 32},
                ],
                "held_out": [{"path": "reading"}, {"path": "matching"}],
            },
            "model": {"path": str(build_untrained(tmp_path / "untrained"))},
            "optimizer": {"kind": "muon", "lr": 3e-3, "betas": (0.9, 0.98), "weight_decay": 0.01, "warmup_steps": 20},
            "batching": {"max_tokens": 1024, "micro_batch_tokens": 16384},
            "checkpoint": {"every_steps": STEPS, "export": False},
        }
    )
    reached = fit(config, sources=lesson_sets("train", 1500), held_out=lesson_sets("validation", 64)).evaluation
    assert reached["eval-0/accuracy/answer"] > 0.75, reached
    assert reached["eval-1/accuracy/answer"] > 0.85, reached
