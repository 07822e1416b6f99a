"""Load a model onto many ranks: rank 0 reads the checkpoint, every rank holds its shards, and no rank holds two copies.

Rank 0 reads the checkpoint into CPU memory. Every rank builds the model on the meta device, shards it, allocates its
shards, and receives their values from rank 0. Checkpoints do not contain buffers: a model from the meta device would have
uninitialised ones and silently wrong logits. So every module with buffers is built again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

from seer.errors import ModelError
from seer.models.checkpoint import Checkpoint, check_folder, first_line, load, load_encoder
from train.config import ModelConfig
from train.model.glm4v import PREFIX, Trainee, draw_weights, prepare
from train.parallel import World


def load_trainee(
    config: ModelConfig, seed: int, world: World, spread: Callable[[Trainee], Trainee], *, offload: bool = False
) -> tuple[Checkpoint, Trainee]:
    """Load the base checkpoint and the trainee, sharded over the ranks by `spread`. A collective: every rank must call it.

    With `offload`, weights stay in CPU memory; buffers are always on the device. Ranks of a sharded run get a base whose
    weights are not loaded.
    """
    if world.mesh is None or world.ranks == 1:
        base = load(config.path, device="cpu", dtype="float32", attention="sdpa")
        trainee = spread(prepare(base, config, seed))
        renew_buffers(trainee, world.device)  # with offload, `spread` leaves them in CPU memory
        return base, trainee
    weights: dict[str, Any] = {}
    if world.is_main:
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
    """Build every module with buffers again, on the device, so that it computes their values."""
    for part in (trainee.visual, trainee.text):
        for name, module in part.named_children():
            if any(True for _ in module.buffers(recurse=False)):
                setattr(part, name, rebuilt(module).to(device))
    # Only rotary embeddings are known to be rebuilt; a buffer of another kind would need code here.
    held = {name for name, _ in trainee.named_buffers() if "rotary" not in name}
    assert not held, f"buffers {sorted(held)} are not restored"


def rebuilt(module: Any) -> Any:
    """A module of the same class and settings, with newly computed buffers."""
    if hasattr(module, "config"):
        return type(module)(config=module.config)
    # Before transformers 5.17, the vision tower's rotary embedding keeps its two arguments instead of a configuration.
    return type(module)(module.dim, module.theta)


def without_weights(path: str) -> Checkpoint:
    """A checkpoint with its encoder and tokenizer, whose model is on the meta device.

    Raises ModelError if the folder is not a checkpoint of the GLM-4V family.
    """
    from transformers import AutoConfig, Glm4vForConditionalGeneration

    folder = check_folder(path)
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        with torch.device("meta"):
            model = Glm4vForConditionalGeneration(config).float()
    except Exception as error:  # transformers raises the exceptions of many libraries here
        raise ModelError(
            f"'{path}' does not load as a GLM-4V-family model: {first_line(error)}; use a complete checkpoint"
        ) from error
    encoder, tokenizer, scaling = load_encoder(folder)
    return Checkpoint(str(Path(path)), model, encoder, tokenizer, scaling, config.text_config.max_position_embeddings)
