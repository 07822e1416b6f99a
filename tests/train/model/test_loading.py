"""Rebuilt buffers, under old and new versions of transformers."""

from __future__ import annotations

import types

import torch
from torch import nn
from train_fakes import tiny_checkpoint

from train.config import ModelConfig
from train.model.glm4v import prepare
from train.model.loading import rebuilt, renew_buffers


class OldRotary(nn.Module):
    """The signature of Glm4vVisionRotaryEmbedding before transformers 5.17."""

    def __init__(self, dim: int, theta: float = 10000.0) -> None:
        super().__init__()
        self.dim, self.theta = dim, theta
        self.register_buffer("inv_freq", 1.0 / theta ** (torch.arange(0, dim, 2).float() / dim), persistent=False)


def test_rebuilt_without_configuration_uses_the_arguments_of_the_module() -> None:
    module = OldRotary(8, 500.0)
    wanted = module.inv_freq.clone()
    module.inv_freq.zero_()
    assert torch.equal(rebuilt(module).inv_freq, wanted)


def test_renew_buffers_with_an_old_vision_tower_restores_them() -> None:
    trainee = prepare(tiny_checkpoint(), ModelConfig(path="x"), 0)
    holder = types.SimpleNamespace(visual=nn.Module(), text=trainee.text, named_buffers=trainee.named_buffers)
    holder.visual.rotary_pos_emb = OldRotary(8)
    wanted = holder.visual.rotary_pos_emb.inv_freq.clone()
    holder.visual.rotary_pos_emb.inv_freq.fill_(7.0)
    renew_buffers(holder, torch.device("cpu"))  # type: ignore[arg-type]
    assert torch.equal(holder.visual.rotary_pos_emb.inv_freq, wanted)
