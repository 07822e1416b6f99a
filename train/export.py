"""A trained model → an ordinary checkpoint folder, whole: weights, tokenizer, processor, template, generation config.

The folder has the keys of the checkpoint it came from; `seer.models.checkpoint.load`, transformers and vLLM load it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from seer.models.checkpoint import Checkpoint, save
from seer.storage import atomic_folder
from train.model.glm4v import PREFIX, Trainee
from train.parallel import World


def full_weights(trainee: Trainee) -> dict[str, torch.Tensor]:
    """Every weight, whole, on the CPU, under transformers' names; empty on ranks other than the first.

    A collective: every rank must call it.
    """
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state: dict[str, Any] = dict(get_model_state_dict(trainee, options=options))
    return {name.removeprefix(PREFIX): tensor for name, tensor in state.items()}


def export(folder: str | Path, trainee: Trainee, base: Checkpoint, world: World, card: str = "") -> Path:
    """Write the checkpoint folder. Every rank must call this."""
    weights = full_weights(trainee)
    if world.leads:
        write_export(Path(folder), weights, base, card)
    world.wait()
    return Path(folder)


def write_export(target: Path, weights: dict[str, torch.Tensor], base: Checkpoint, card: str = "") -> None:
    """Write whole weights under a temporary name and rename it; an older export is replaced.

    Weights keep the type that the base's configuration names.
    """
    model = hold(weights, base.model.config, export_dtype(base.path))
    with atomic_folder(target) as partial:
        save(partial, model, base.tokenizer, base.scaling, base.encoder.geometry)
        if card:
            (partial / "README.md").write_text(card, encoding="utf-8")


def hold(weights: dict[str, torch.Tensor], config: Any, dtype: torch.dtype) -> Any:
    """A model object that holds these weights without having initialised any of its own."""
    import copy

    from transformers import Glm4vForConditionalGeneration

    clean = copy.deepcopy(config)
    for part in (clean, clean.text_config, clean.vision_config):
        part._attn_implementation = "sdpa"  # the trainer's own attention is not known to readers
        part.dtype = dtype
    with torch.device("meta"):
        model = Glm4vForConditionalGeneration(clean)
    cast = {name: weight.to(dtype).contiguous() for name, weight in weights.items()}
    missing, unexpected = set(model.state_dict()) - set(cast), set(cast) - set(model.state_dict())
    assert not missing and not unexpected, f"weights lack {sorted(missing)[:3]} and add {sorted(unexpected)[:3]}"
    model.load_state_dict(cast, assign=True)
    return model


def export_dtype(base_path: str | Path) -> torch.dtype:
    """The type that the base checkpoint is kept in; float32 where it does not say."""
    import json

    settings = json.loads((Path(base_path) / "config.json").read_text(encoding="utf-8"))
    name = settings.get("dtype") or settings.get("torch_dtype") or "float32"
    return getattr(torch, name)
