"""Seventeen known failures of other trainers, with the test that would fail if this trainer had them.

Each failure is tested next to the code that prevents it; this table names the tests. Their docstrings cite the issues.
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
    "1 the end of the turn is not learned": "data/test_dataset.py::test_make_sample_paper_example_has_golden_tokens_and_weights",
    "2 mm_token_type_ids are missing": "test_known_failures.py::test_trainee_passes_explicit_positions_to_the_model",
    "3 M-RoPE of several images": "data/test_dataset.py::test_collate_positions_of_several_images_equal_transformers",
    "4 packing with 3-D positions": "model/test_model.py::test_trainee_packed_row_equals_transformers_per_sample",
    "5 a rank without images": "test_distributed.py::test_train_step_with_a_rank_without_pictures_does_not_hang",
    "6 truncation cuts image tokens": (
        "data/test_dataset.py::test_dataset_over_long_trajectory_is_counted_or_refused_but_never_truncated"
    ),
    "7 fields sliced apart": "data/test_dataset.py::test_training_sample_rejects_misaligned_fields",
    "8 buffers from the meta device": (
        "test_distributed.py::test_gradients_on_two_processes_and_four_micro_batches_equal_one_process"
    ),
    "9 frozen weights under sharding": (
        "test_distributed.py::test_train_step_with_frozen_vision_learns_under_sharding_with_checkpointing"
    ),
    "10 a frozen tower keeps its graph": "model/test_model.py::test_trainee_with_frozen_vision_keeps_no_graph",
    "11 the head outside FSDP's forward": "test_distributed.py::test_train_step_under_every_sharding_follows_one_process",
    "12 the convolution of the patch embedding": (
        "data/test_dataset.py::test_byte_patch_embed_equals_processor_and_convolution"
    ),
    "13 bf16 optimisers that do not learn": "test_config.py::test_config_rejects_bad_settings_with_a_remedy",
    "14 exports that do not load": "test_export.py::test_export_has_the_keys_of_its_base",
    "15 the mask is off by one": "data/test_dataset.py::test_collate_predictors_are_one_place_before_their_targets",
    "16 means of means": "model/test_loss.py::test_weighted_nll_sum_over_micro_batches_equals_whole_unlike_mean_of_means",
    "17 samplers lose their epoch": "data/test_sampler.py::test_sample_plan_step_depends_on_its_number_only",
}


def test_covered_names_an_existing_test_for_each_failure() -> None:
    assert [int(name.split()[0]) for name in COVERED] == list(range(1, 18))
    for place in COVERED.values():
        file, test = place.split("::")
        assert re.search(rf"^def {test}\(", (TESTS / file).read_text(), re.M), place


def test_trainee_passes_explicit_positions_to_the_model() -> None:
    """The model never derives positions from token types: four rows are always passed (Liger #1120)."""
    checkpoint = tiny_checkpoint()
    trainee = prepare(checkpoint, ModelConfig(path="x"), 0)
    given = {}
    trainee.text.register_forward_pre_hook(lambda _, args, kwargs: given.update(kwargs), with_kwargs=True)
    batch = collate(samples(checkpoint, 2))
    trainee(batch)
    assert given["position_ids"].shape == (4, 1, batch.num_tokens)


@pytest.mark.parametrize(("dtype", "least", "most"), [(torch.float32, 0.999, 1.0), (torch.bfloat16, 0.0, 0.2)])
def test_adamw_small_updates_vanish_in_plain_bf16(dtype: torch.dtype, least: float, most: float) -> None:
    """The reason why the configuration rejects it: at lr 3e-6 few bf16 weights change, but every fp32 weight does."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 64).to(dtype)
    before = layer.weight.detach().clone()
    optimizer = build_optimizer(layer, OptimizerConfig(lr=3e-6))
    for _ in range(10):
        layer.weight.grad, layer.bias.grad = torch.randn_like(layer.weight), torch.randn_like(layer.bias)
        optimizer.step()
    moved = float((layer.weight != before).float().mean())
    assert least <= moved <= most


def test_adamw_bf16_states_follows_fp32_moments() -> None:
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
