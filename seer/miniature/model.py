"""The miniature's model: its shape, its untrained checkpoint, and the folder of the trained one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seer.miniature.learning import summarise, write_summary
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
"""1.8 million parameters; heads of 32, a size that the CPU attention of vLLM supports."""

SHIPPED = Path(__file__).parent / "checkpoint"
"""The trained checkpoint that comes with the package."""


def build_untrained(path: str | Path, *, seed: int = 0) -> Path:
    """Write a checkpoint folder with the miniature's shape and tokenizer, and weights drawn from `seed`.

    Returns the folder.
    """
    return build_small(path, seed=seed, shape=SHAPE, tokenizer=build_tokenizer())


ROUNDS = 2
"""Select calls that the model can make in one reading: it follows a pointer after it has read the target's name."""
STAGE_FOLDERS = tuple(f"stage-{number}" for number in range(1, 10))
"""The run folders of the stages, in order."""
ISO_STAGE_FOLDERS = (*STAGE_FOLDERS[:3], *(f"iso-{number}" for number in range(4, 10)))
"""The same for the control that trains on the same data without select turns. Stages 1 to 3 contain no select turns."""


def package_model(runs: Path, out: Path, stages: Sequence[str] = STAGE_FOLDERS) -> None:
    """Write the model of the last stage in bfloat16 to `out`, with a summary of all stages (training.json).

    Raises InputError if a stage has no readable configuration or log.
    """
    summary = summarise(runs, stages)
    trained = load(runs / stages[-1] / "model", device="cpu", dtype="bfloat16")
    save(out, trained.model, trained.tokenizer, trained.scaling, trained.encoder.geometry)
    write_summary(summary, out)
