"""Export a trained model as an ordinary checkpoint folder: weights, tokenizer, processor, template, generation config, card.

The folder has the keys of its base checkpoint, so `seer.models.checkpoint.load`, transformers and vLLM can load it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from seer.models.checkpoint import Checkpoint, save
from seer.storage import atomic_folder
from train.config import TrainConfig
from train.model.glm4v import PREFIX, Trainee
from train.parallel import World


def full_weights(trainee: Trainee) -> dict[str, torch.Tensor]:
    """All weights, unsharded, on the CPU, under the names of transformers. Empty on all ranks but the first.

    A collective: every rank must call it.
    """
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state: dict[str, Any] = dict(get_model_state_dict(trainee, options=options))
    return {name.removeprefix(PREFIX): tensor for name, tensor in state.items()}


def export(folder: str | Path, trainee: Trainee, base: Checkpoint, world: World, card: str = "") -> Path:
    """Write the checkpoint folder with `card` as its README. A collective: every rank must call it."""
    weights = full_weights(trainee)
    if world.is_main:
        write_export(Path(folder), weights, base, card)
    world.wait()
    return Path(folder)


def write_export(target: Path, weights: dict[str, torch.Tensor], base: Checkpoint, card: str = "") -> None:
    """Write unsharded weights as a checkpoint folder under a temporary name, then rename it to `target`.

    An older export is replaced. Weights are stored in the type that the base's configuration names.
    """
    model = model_with(weights, base.model.config, export_dtype(base.path))
    with atomic_folder(target) as partial:
        save(partial, model, base.tokenizer, base.scaling, base.encoder.geometry)
        if card:
            (partial / "README.md").write_text(card, encoding="utf-8")


def model_with(weights: dict[str, torch.Tensor], config: Any, dtype: torch.dtype) -> Any:
    """A Glm4vForConditionalGeneration with these weights, cast to `dtype`. No other weights are initialised."""
    from transformers import Glm4vForConditionalGeneration

    clean = copy.deepcopy(config)
    for part in (clean, clean.text_config, clean.vision_config):
        part._attn_implementation = "sdpa"  # the trainer's attention is not registered where the export is loaded
        part.dtype = dtype
    with torch.device("meta"):
        model = Glm4vForConditionalGeneration(clean)
    cast = {name: weight.to(dtype).contiguous() for name, weight in weights.items()}
    missing, unexpected = set(model.state_dict()) - set(cast), set(cast) - set(model.state_dict())
    assert not missing and not unexpected, f"weights lack {sorted(missing)[:3]} and add {sorted(unexpected)[:3]}"
    model.load_state_dict(cast, assign=True)
    return model


def export_dtype(base_path: str | Path) -> torch.dtype:
    """The type of the base checkpoint's weights according to its configuration; float32 if it names none."""
    settings = json.loads((Path(base_path) / "config.json").read_text(encoding="utf-8"))
    name = settings.get("dtype") or settings.get("torch_dtype") or "float32"
    return getattr(torch, name)


def model_card(
    config: TrainConfig, data: str, sets: Sequence[tuple[str, int]], steps: int, figures: Mapping[str, Any]
) -> str:
    """The README of an exported model: its base, training data, figures and configuration, as Markdown.

    `data` is the digest of the training data, `sets` the name and size of each data set, `figures` the last measured values.
    """
    import tomli_w

    resolved = tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))
    measured = "\n".join(
        f"| {name} | {value:.6g} |" for name, value in figures.items() if isinstance(value, int | float)
    )
    listed = "\n".join(f"- `{name}`: {size} trajectories" for name, size in sets)
    initialised = " (weights initialised anew)" if config.model.from_nothing else ""
    return f"""---
library_name: transformers
pipeline_tag: image-text-to-text
---
# A Seer model

Trained with `seer-train` from `{config.model.path}`{initialised}. The model reads page images, selects pages by a tool
call, receives their exact text and answers.

    seer ask FILE "question" --model FOLDER

## Data

Digest `{data}`, {steps} steps.

{listed}

## Measured

| figure | value |
|---|---|
{measured or "| none | |"}

## Configuration

```toml
{resolved}```
"""
