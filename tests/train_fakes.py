"""Fakes for training tests: a model of 0.2 M parameters, and trajectories over small rendered pages."""

from __future__ import annotations

import atexit
import functools
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import train.model.attention
import train.model.layers
from seer.config import build_config
from seer.models.checkpoint import Checkpoint, load
from seer.models.small import SmallShape, build_small
from seer.rendering import render_text
from seer.schema import Excerpt, PageStyle, Trajectory, Turn
from train.config import LossWeights, TrainConfig
from train.data.dataset import Recipe, TrainingSample, make_sample

torch.set_num_threads(1)  # on a busy machine, two threads that spin while they wait are slower than one

STYLE = PageStyle(
    page_width_px=84,
    page_height_px=56,
    margin_x_px=4,
    margin_y_px=4,
    font_size_pt=9,
    line_height_pt=11,
    crop_last_page=True,
)
WIDE = STYLE.model_copy(update={"page_width_px": 112})
SHAPE = SmallShape(
    hidden=64,
    text_layers=2,
    text_heads=2,
    text_kv_heads=1,
    text_ffn=64,
    vision_depth=2,
    vision_heads=2,
    vision_ffn=64,
    image_px=112,
    max_positions=4096,
    vocabulary=512,
)


def use_other_devices_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the implementations for other devices on a CPU."""
    for module in (train.model.attention, train.model.layers):
        monkeypatch.setattr(module, "on_cpu", lambda x: False)


@functools.cache
def tiny_base() -> Path:
    """Folder of a tiny untrained model with grouped-query attention."""
    folder = Path(tempfile.mkdtemp(prefix="seer-tiny-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build_small(folder / "base", seed=0, shape=SHAPE)


def tiny_checkpoint() -> Checkpoint:
    """A freshly loaded checkpoint, since training changes its model."""
    return load(tiny_base(), device="cpu")


def trajectory(seed: int, *, pictures: bool = True, lines: int | None = None, style: PageStyle = STYLE) -> Trajectory:
    """A complete conversation about one line of a document of one to four pages."""
    rng = random.Random(seed)
    count = lines or rng.randint(2, 14)
    records = [f"{rng.choice(('red', 'blue', 'old', 'new'))} {rng.randint(0, 9999):04d}" for _ in range(count)]
    source = "\n".join(records)
    document = render_text(source, style)
    page = document.page(rng.randint(1, len(document.pages)))
    excerpt = Excerpt(page=page.number, start=page.start, text=page.text)
    return Trajectory(
        id=f"tiny-{seed}",
        source=source,
        style=style,
        turns=(
            Turn(kind="prompt", text="Which?", pages=tuple(range(1, len(document.pages) + 1)) if pictures else ()),
            Turn(kind="call", pages=(page.number,)),
            Turn(kind="observation", excerpts=(excerpt,)),
            Turn(kind="think", text="It stands there."),
            Turn(kind="answer", text=page.text.split("\n")[0]),
        ),
        relevant_pages=(page.number,),
    )


@functools.cache
def trajectories(count: int = 24, pictures: bool = True) -> tuple[Trajectory, ...]:
    return tuple(trajectory(seed, pictures=pictures) for seed in range(count))


def recipe(checkpoint: Checkpoint, **changes: Any) -> Recipe:
    values = {"weights": LossWeights(), "max_tokens": 4096} | changes
    return Recipe(checkpoint.encoder, checkpoint.scaling, **values)


def samples(checkpoint: Checkpoint, count: int, *, pictures: bool = True, **changes: Any) -> list[TrainingSample]:
    made = [make_sample(item, recipe(checkpoint, **changes)) for item in trajectories(count, pictures)]
    assert all(isinstance(sample, TrainingSample) for sample in made)
    return made  # type: ignore[return-value]


def equal_tensors(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    """Whether two states have the same names and bitwise equal tensors."""
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def config(out: str | Path, **sections: Any) -> TrainConfig:
    """The configuration of a short run on the tiny model; `sections` override single keys."""
    values: dict[str, Any] = {
        "out": str(out),
        "steps": 4,
        "data": {"sets": [{"path": "tiny"}], "prefetch_steps": 0},
        "model": {"path": str(tiny_base())},
        "optimizer": {"lr": 1e-3},
        "batching": {"global_batch": 4, "max_tokens": 1024},
        "checkpoint": {"every_steps": 100, "export": False},
        "parallel": {"threads": 1},
    }
    for name, value in sections.items():
        values[name] = {**values.get(name, {}), **value} if isinstance(value, dict) else value
    return build_config(TrainConfig, values, where="test")
