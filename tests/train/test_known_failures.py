"""Seventeen ways in which known trainers went wrong, and the test here that fails if we do.

The list and its sources stand in the issue on training; a failure is covered where its fix lives, and this table leads there.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from train_fakes import samples, tiny_checkpoint

from train.config import ModelConfig, OptimizerConfig
from train.data.collate import collate
from train.model.glm4v import prepare
from train.optimizer import AdamWBf16States, build_optimizer

TESTS = Path(__file__).parent
COVERED = {
    "1 the end of the turn is not learned": "data/test_dataset.py::test_golden_tokens_and_weights_of_the_papers_example",
    "2 mm_token_type_ids are missing": "test_known_failures.py::test_positions_are_explicit",
    "3 M-RoPE of several images": "data/test_dataset.py::test_positions_of_many_images_equal_transformers",
    "4 packing with 3-D positions": "model/test_model.py::test_a_packed_row_equals_transformers_sample_by_sample",
    "5 a rank without images": "test_distributed.py::test_a_rank_without_pictures_does_not_hang",
    "6 truncation cuts image tokens": (
        "data/test_dataset.py::test_over_long_trajectories_are_dropped_with_a_count_or_refused_never_cut"
    ),
    "7 fields sliced apart": "data/test_dataset.py::test_fields_stay_aligned",
    "8 buffers from the meta device": (
        "test_distributed.py::test_gradients_of_two_processes_and_four_micro_batches_equal_one_process"
    ),
    "9 frozen weights under sharding": (
        "test_distributed.py::test_a_frozen_tower_trains_under_sharding_with_checkpointing"
    ),
    "10 a frozen tower keeps its graph": "model/test_model.py::test_a_frozen_tower_keeps_no_graph",
    "11 the head outside FSDP's forward": "test_distributed.py::test_every_way_of_sharding_follows_the_single_process",
    "12 the convolution of the patch embedding": (
        "data/test_dataset.py::test_byte_patches_embed_as_the_processor_and_the_convolution_do"
    ),
    "13 bf16 optimisers that do not learn": "test_config.py::test_bad_settings_are_refused_with_the_way_out",
    "14 exports that do not load": "test_export.py::test_the_export_has_the_keys_of_its_base",
    "15 the mask is off by one": "data/test_dataset.py::test_predictors_stand_one_before_their_targets",
    "16 means of means": "model/test_loss.py::test_the_sum_over_pieces_is_the_whole_and_a_mean_of_means_is_not",
    "17 samplers lose their epoch": "data/test_sampler.py::test_a_step_depends_on_its_number_alone",
}


def test_each_of_the_seventeen_has_its_test() -> None:
    assert [int(name.split()[0]) for name in COVERED] == list(range(1, 18))
    for place in COVERED.values():
        file, test = place.split("::")
        assert re.search(rf"^def {test}\(", (TESTS / file).read_text(), re.M), place


def test_positions_are_explicit() -> None:
    """The model never has to guess positions from token types: four rows are always given (Liger #1120)."""
    checkpoint = tiny_checkpoint()
    trainee = prepare(checkpoint, ModelConfig(path="x"), 0)
    given = {}
    trainee.text.register_forward_pre_hook(lambda _, args, kwargs: given.update(kwargs), with_kwargs=True)
    batch = collate(samples(checkpoint, 2))
    trainee(batch)
    assert given["position_ids"].shape == (4, 1, batch.num_tokens)


@pytest.mark.parametrize(("dtype", "least", "most"), [(torch.float32, 0.999, 1.0), (torch.bfloat16, 0.0, 0.2)])
def test_small_updates_vanish_in_plain_bf16(dtype: torch.dtype, least: float, most: float) -> None:
    """Why the configuration refuses it: at lr 3e-6 hardly any bf16 weight moves, every fp32 weight does."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 64).to(dtype)
    before = layer.weight.detach().clone()
    optimizer = build_optimizer(layer, OptimizerConfig(lr=3e-6))
    for _ in range(10):
        layer.weight.grad, layer.bias.grad = torch.randn_like(layer.weight), torch.randn_like(layer.bias)
        optimizer.step()
    moved = float((layer.weight != before).float().mean())
    assert least <= moved <= most


def test_bf16_moments_follow_fp32_ones_closely() -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(32, 32) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    start = layers[0].weight.detach().clone()
    pair = [
        torch.optim.AdamW(layers[0].parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1),
        AdamWBf16States(layers[1].parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1),
    ]
    for _ in range(20):
        grads = [torch.randn(32, 32), torch.randn(32)]
        for layer, optimizer in zip(layers, pair, strict=True):
            layer.weight.grad, layer.bias.grad = (g.clone() for g in grads)
            optimizer.step()
    travelled = (layers[0].weight - start).norm()
    assert (layers[0].weight - layers[1].weight).norm() < 0.02 * travelled
