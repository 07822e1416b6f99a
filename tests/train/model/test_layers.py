"""Replacement modules equal those of transformers, forward and backward, and keep their weights."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
from train_fakes import STYLE, WIDE, recipe, samples, tiny_checkpoint, trajectory
from transformers.models.glm4v.modeling_glm4v import Glm4vForConditionalGeneration

from train.config import ModelConfig
from train.data.collate import collate
from train.data.dataset import make_sample
from train.data.pixels import SharedPositions
from train.model.attention import GroupedVisionAttention
from train.model.glm4v import prepare
from train.model.layers import LastLayer, RmsNorm, TextMlp, VisionMlp


def model() -> Glm4vForConditionalGeneration:
    """A model whose scales and biases are drawn as well; in a new model they are 1 and 0."""
    made = tiny_checkpoint().model
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim < 2:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def outcome(module: torch.nn.Module, x: torch.Tensor, *more: object, **named: object) -> list[torch.Tensor]:
    """The output and the gradients of the input and of every trained weight."""
    x = x.clone().requires_grad_()
    out = module(x, *more, **named)
    direction = torch.randn(out.shape, generator=torch.Generator().manual_seed(7))
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return [out.detach(), *torch.autograd.grad((out * direction).sum(), [x, *trained])]


@pytest.mark.parametrize(
    ("path", "replacement"),
    [
        ("language_model.norm", RmsNorm),
        ("visual.post_layernorm", RmsNorm),
        ("language_model.layers.0.mlp", TextMlp),
        ("visual.blocks.0.mlp", VisionMlp),
    ],
)
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_replacement_module_equals_transformers(
    path: str, replacement: type[torch.nn.Module], frozen: bool, dtype: torch.dtype
) -> None:
    theirs = model().model.get_submodule(path).to(dtype).requires_grad_(not frozen)
    ours = copy.deepcopy(theirs)
    ours.__class__ = replacement
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    x = torch.randn(2, 9, 64, generator=torch.Generator().manual_seed(1)).to(dtype)
    tight = dict(atol=2e-5, rtol=2e-5) if dtype == torch.float32 else dict(atol=0.1, rtol=0.05)
    for got, wanted in zip(outcome(ours, x), outcome(theirs, x), strict=True):
        torch.testing.assert_close(got, wanted, **tight)


def test_rms_norm_with_frozen_inputs_has_weight_gradient() -> None:
    norm = model().model.visual.post_layernorm
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(1))
    wanted = torch.autograd.grad(norm(x).square().sum(), norm.weight)
    norm.__class__ = RmsNorm
    torch.testing.assert_close(torch.autograd.grad(norm(x).square().sum(), norm.weight), wanted)


SHAPES = torch.tensor([[1, 4, 6], [1, 4, 6], [1, 2, 6], [1, 6, 4], [1, 6, 4]])


def test_shared_positions_of_several_shapes_equal_transformers() -> None:
    theirs = model().model.visual.embeddings
    ours = copy.deepcopy(theirs)
    ours.__class__ = SharedPositions
    areas = SHAPES.prod(1)
    places = [torch.cartesian_prod(torch.arange(rows), torch.arange(columns)) for _, rows, columns in SHAPES.tolist()]
    rows, columns = torch.cat(places).T
    x = torch.randn(int(areas.sum()), 64, generator=torch.Generator().manual_seed(1))
    results = [outcome(module, x, areas, SHAPES, rows, columns) for module in (ours, theirs)]
    torch.testing.assert_close(*results, atol=2e-5, rtol=2e-5)


def test_grouped_vision_attention_of_several_shapes_equals_transformers() -> None:
    theirs = model().model.visual.blocks[0].attn
    ours = copy.deepcopy(theirs)
    ours.__class__ = GroupedVisionAttention
    angles = torch.randn(60, theirs.head_dim // 2, generator=torch.Generator().manual_seed(2)).repeat(1, 2)
    x = torch.randn(60, 64, generator=torch.Generator().manual_seed(1))
    turns = (angles.cos(), angles.sin())
    got = outcome(ours, x, position_embeddings=turns, vision_runs=((2, 24), (1, 12)))
    wanted = outcome(theirs, x, position_embeddings=turns, cu_seqlens=torch.tensor([0, 24, 48, 60]))
    torch.testing.assert_close(got, wanted, atol=5e-5, rtol=5e-5)


def test_collate_sorts_pictures_and_their_tokens_by_shape() -> None:
    checkpoint = tiny_checkpoint()
    items = [make_sample(trajectory(i, style=(STYLE, WIDE)[i % 2]), recipe(checkpoint)) for i in range(6)]
    batch = collate(items)
    sizes = [tuple(row) for row in batch.grid_n3.tolist()]
    assert len(set(sizes)) > 1
    assert sum(a != b for a, b in itertools.pairwise(sizes)) == len(set(sizes)) - 1
    assert sum(count for count, _ in batch.vision_runs) == len(sizes)
    # The patches of each picture belong to the places of its own sample.
    starts = np.cumsum([0, *map(len, items)])
    expected = {}
    for sample, start in zip(items, starts, strict=False):
        places = start + np.flatnonzero(sample.types)
        for place, patches in zip(places, sample.patches.reshape(len(places), -1), strict=True):
            expected[int(place)] = patches
    found = batch.patches_PX.numpy().reshape(len(batch.image_places_V), -1)
    assert len(expected) == len(found)
    for place, patches in zip(batch.image_places_V.tolist(), found, strict=True):
        assert (patches == expected[place]).all()


def test_last_layer_mlp_runs_on_supervised_places_only() -> None:
    checkpoint = tiny_checkpoint()
    trainee = prepare(checkpoint, ModelConfig(path="x"), 0)
    assert isinstance(trainee.text.layers[-1], LastLayer)
    rows = []
    for layer in trainee.text.layers:
        layer.mlp.register_forward_hook(lambda _, args, out: rows.append(args[0].shape[1]))
    batch = collate(samples(checkpoint, 2))
    trainee(batch)
    assert rows == [*[batch.num_tokens] * (len(rows) - 1), len(batch.targets_N)]
