"""A model for many ranks: one reads it, all hold their shards, none holds two copies.

Rank 0 reads the checkpoint on its CPU; every rank builds the model on the meta device, shards it, makes room, and receives
its shards from rank 0. Buffers are in no checkpoint: a model that came from the meta device has them uninitialised, and its
logits would be silently wrong. Each module that has some is built anew.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

from seer.errors import ModelError
from seer.models.checkpoint import Checkpoint, check_folder, load, load_encoder
from train.config import ModelConfig
from train.model.glm4v import PREFIX, Trainee, draw_weights, prepare
from train.parallel import World


def load_trainee(
    config: ModelConfig, seed: int, world: World, spread: Callable[[Trainee], Trainee], *, offload: bool = False
) -> tuple[Checkpoint, Trainee]:
    """The base and the trainee, spread over the ranks by `spread`. Every rank must call this."""
    if world.mesh is None or world.ranks == 1:
        base = load(config.path, device="cpu", dtype="float32", attention="sdpa")
        trainee = spread(prepare(base, config, seed))
        renew_buffers(trainee, world.device)  # with offload the weights stay behind, the buffers must not
        return base, trainee
    weights: dict[str, Any] = {}
    if world.leads:
        full = load(config.path, device="cpu", dtype="float32", attention="sdpa")
        if config.from_nothing:
            draw_weights(full.model, seed)
        weights = {f"{PREFIX}{name}": tensor for name, tensor in full.model.state_dict().items()}
    base = without_weights(config.path)
    trainee = spread(prepare(base, config, seed))
    trainee.to_empty(device=torch.device("cpu") if offload else world.device)
    set_model_state_dict(trainee, weights, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    renew_buffers(trainee, world.device)
    return base, trainee


def renew_buffers(trainee: Trainee, device: torch.device) -> None:
    """Build every module that holds buffers anew, on the device."""
    for part in (trainee.visual, trainee.text):
        for name, module in part.named_children():
            if any(True for _ in module.buffers(recurse=False)):
                setattr(part, name, type(module)(config=module.config).to(device))
    held = {name for name, _ in trainee.named_buffers() if "rotary" not in name}
    assert not held, f"buffers {sorted(held)} are not restored"


def without_weights(path: str) -> Checkpoint:
    """A checkpoint whose model stands on the meta device."""
    from transformers import AutoConfig, Glm4vForConditionalGeneration

    folder = check_folder(path)
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        with torch.device("meta"):
            model = Glm4vForConditionalGeneration(config).float()
    except Exception as error:  # the boundary to transformers: what it refuses has classes of many libraries
        raise ModelError(f"'{path}' does not load as a GLM-4V-family model: {error}") from error
    encoder, tokenizer, scaling = load_encoder(folder)
    return Checkpoint(str(Path(path)), model, encoder, tokenizer, scaling, config.text_config.max_position_embeddings)
