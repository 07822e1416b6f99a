"""The miniature's model: its shape, its untrained checkpoint, and where the trained one lies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from seer.miniature.tokenizer import build_tokenizer
from seer.models.checkpoint import load, save
from seer.models.small import SmallShape, build_small

SHAPE = SmallShape(
    hidden=128,
    text_layers=6,
    text_heads=4,
    text_kv_heads=4,
    text_ffn=256,
    vision_depth=3,
    vision_heads=4,
    vision_ffn=256,
    image_px=112,
    max_positions=8192,
)
"""1.8 million parameters; heads of 32, which vLLM's attention on a CPU supports."""

SHIPPED = Path(__file__).parent / "checkpoint"
"""The trained checkpoint that comes with the package."""


def build_untrained(path: str | Path, *, seed: int = 0) -> Path:
    """A checkpoint folder with the miniature's shape and tokenizer and weights drawn from `seed`."""
    return build_small(path, seed=seed, shape=SHAPE, tokenizer=build_tokenizer())


ROUNDS = 2
"""Select calls that its readings may make: it follows a pointer when it has read where it leads."""
STAGES = tuple(f"stage-{number}" for number in range(1, 10))
"""The stages' run folders, in order."""
ISO_STAGES = (*STAGES[:3], *(f"iso-{number}" for number in range(4, 10)))
"""Of the control that learns from the same data without select turns; no stage before has any."""
KEPT = ("step", "kind", "loss", "lr", "step_s")
"""Of a log's records: what the learning curve needs, and what evaluations found."""


def finish(runs: Path, out: Path, stages: Sequence[str] = STAGES) -> None:
    """The last stage's model in bf16, with what every stage was told (config-N.toml) and how it went (log-N.jsonl)."""
    trained = load(runs / stages[-1] / "model", device="cpu", dtype="bfloat16")
    save(out, trained.model, trained.tokenizer, trained.scaling, trained.encoder.geometry)
    for stage, name in enumerate(stages, 1):
        folder = runs / name
        shutil.copy(folder / "config.toml", out / f"config-{stage}.toml")
        with (out / f"log-{stage}.jsonl").open("w", encoding="utf-8") as log:
            for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
                told = json.loads(line)
                kept = {
                    k: _short(v)
                    for k, v in told.items()
                    if k in KEPT or (("accuracy" in k or "exact" in k) and "kind" in told)
                }
                log.write(json.dumps(kept) + "\n")


def _short(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value
