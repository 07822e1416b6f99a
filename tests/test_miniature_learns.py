"""From nothing, a few minutes on a CPU: a small model of a few names reads them off pictures and finds their pages."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from seer.miniature.lessons import lessons
from seer.miniature.model import build_untrained
from seer.miniature.world import World
from train.config import TrainConfig
from train.sft import fit

pytestmark = pytest.mark.slow
STEPS = 240


def test_a_tiny_vocabulary_is_learned_from_nothing(tmp_path: Path) -> None:
    """Chance is 1 in 12 for a name read off a picture and 1 in 4 or less for a page; both must come close to certainty."""
    world, unseen = (World(0, split, vocabulary=12, max_pages=3, chinese_share=0) for split in ("train", "validation"))
    sets = [
        [list(lessons("reading", w, n)), list(lessons("matching", w, n, max_lines=1, call_share=0))]
        for w, n in ((world, 1500), (unseen, 64))
    ]
    config = TrainConfig.model_validate(
        {
            "out": str(tmp_path / "run"),
            "steps": STEPS,
            "data": {
                "mixing": "step",
                "sets": [{"path": "reading", "samples_per_step": 32}, {"path": "matching", "samples_per_step": 48}],
                "held_out": [{"path": "reading"}, {"path": "matching"}],
            },
            "model": {"path": str(build_untrained(tmp_path / "untrained"))},
            "optimizer": {"kind": "muon", "lr": 3e-3, "betas": (0.9, 0.98), "weight_decay": 0.01, "warmup_steps": 20},
            "batching": {"max_tokens": 1024, "micro_batch_tokens": 16384},
            "checkpoint": {"every_steps": STEPS, "export": False},
        }
    )
    reached = fit(config, sources=sets[0], held_out=sets[1]).evaluation
    assert reached["eval-0/accuracy/answer"] > 0.9, reached
    assert reached["eval-1/accuracy/answer"] > 0.9, reached
