"""The trainer's forward equals that of transformers for each sample, however samples are packed."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
import torch
from torch.nn import functional
from train_fakes import STYLE, WIDE, recipe, samples, tiny_checkpoint, trajectories, trajectory, use_other_devices_code
from transformers.models.glm4v.modeling_glm4v import Glm4vTextRotaryEmbedding

from seer.errors import ConfigError
from seer.models.checkpoint import Checkpoint
from train.config import ModelConfig
from train.data.collate import Batch, collate, idle_batch
from train.data.dataset import TrainingSample, make_sample
from train.model.glm4v import Trainee, prepare


def reference(checkpoint: Checkpoint, sample: TrainingSample, item) -> tuple[torch.Tensor, torch.Tensor]:
    """nll of the supervised tokens and their weighted sum, from the forward of transformers on a single sample."""
    from seer.rendering import render_text

    encoded = checkpoint.encoder
    document = render_text(item.source, item.style)
    sizes = {page.number: (page.width_px, page.height_px) for page in document.pages}
    slots = encoded.encode(item.turns, sizes).slots
    pixels = checkpoint.pixels([document.page(s.page).image() for s in slots], slots)
    logits = checkpoint.model(
        input_ids=torch.from_numpy(sample.ids.astype(np.int64))[None],
        mm_token_type_ids=torch.from_numpy(sample.types.astype(np.int32))[None],
        attention_mask=torch.ones(1, len(sample), dtype=torch.long),
        pixel_values=pixels,
        image_grid_thw=torch.from_numpy(sample.grid),
    ).logits[0]
    places = np.flatnonzero(sample.weights)
    targets = torch.from_numpy(sample.ids[places].astype(np.int64))
    nll = functional.cross_entropy(logits[places - 1], targets, reduction="none")
    return nll, (nll * torch.from_numpy(sample.weights[places])).sum()


def gradients_of(trainee: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {n.removeprefix("model."): p.grad.clone() for n, p in trainee.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("attention", ["grouped", "sdpa"])
@pytest.mark.parametrize("other_devices", [False, True])
def test_trainee_packed_row_equals_transformers_per_sample(
    attention: str, other_devices: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packing with 3-D positions (transformers #39447) and images of two sizes: loss and every gradient."""
    if other_devices:
        use_other_devices_code(monkeypatch)
    checkpoint = tiny_checkpoint()
    chosen = [trajectory(seed, style=style) for seed, style in enumerate((STYLE, WIDE, STYLE))]
    items = [make_sample(item, recipe(checkpoint)) for item in chosen]
    losses = [reference(checkpoint, s, t) for s, t in zip(items, chosen, strict=True)]
    sum(total for _, total in losses).backward()
    wanted = {n: p.grad.clone() for n, p in checkpoint.model.named_parameters() if p.grad is not None}

    trainee = prepare(tiny_checkpoint(), ModelConfig(path="x", attention=attention), seed=0)
    figures = trainee(collate(items))
    torch.testing.assert_close(figures.nll_N, torch.cat([nll for nll, _ in losses]).detach(), atol=2e-5, rtol=2e-5)
    figures.total.backward()
    got = gradients_of(trainee)
    assert got.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(got[name], wanted[name], atol=5e-4, rtol=5e-4, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize(
    "rotation",
    [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
        {"rope_type": "dynamic", "factor": 4.0},
    ],
    ids=lambda rotation: rotation["rope_type"],
)
def test_trainee_grouped_attention_with_scaled_rope_equals_sdpa(rotation: dict) -> None:
    """Rope types that extend the context; yarn also scales queries and keys."""
    totals = []
    for attention in ("sdpa", "grouped"):
        checkpoint = tiny_checkpoint()
        config = checkpoint.model.config.text_config
        config.rope_parameters = {**config.rope_parameters, **rotation}
        checkpoint.model.model.language_model.rotary_emb = Glm4vTextRotaryEmbedding(config)
        trainee = prepare(checkpoint, ModelConfig(path="x", attention=attention), seed=0)
        totals.append(trainee(collate(samples(checkpoint, 3))).nll_N)
    torch.testing.assert_close(*totals, atol=2e-5, rtol=2e-5)


def test_loss_head_runs_on_supervised_places_only() -> None:
    checkpoint = tiny_checkpoint()
    trainee = prepare(checkpoint, ModelConfig(path="x"), seed=0)
    batch = collate(samples(checkpoint, 2))
    with torch.profiler.profile(record_shapes=True) as profile:
        trainee(batch)
    vocabulary = checkpoint.model.config.text_config.vocab_size
    rows = {
        event.input_shapes[0][0]
        for event in profile.events()
        if event.name in ("aten::mm", "aten::addmm")
        and event.input_shapes[1:2]
        and event.input_shapes[1][-1] == vocabulary
    }
    assert rows == {len(batch.targets_N)}


def test_prepare_activation_checkpointing_keeps_gradients_equal() -> None:
    checkpoint = tiny_checkpoint()
    batch = collate(samples(checkpoint, 2))
    grads = []
    for switch in (False, True):
        trainee = prepare(tiny_checkpoint(), ModelConfig(path="x", activation_checkpointing=switch), seed=0)
        trainee(batch).total.backward()
        grads.append(gradients_of(trainee))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_trainee_with_frozen_vision_keeps_no_graph(checkpointing: bool) -> None:
    """A frozen tower keeps no activations (ms-swift #10214), with or without activation checkpointing."""
    checkpoint = tiny_checkpoint()
    switches = ModelConfig(path="x", freeze_vision=True, freeze_merger=True, activation_checkpointing=checkpointing)
    trainee = prepare(checkpoint, switches, seed=0)
    seen = {}
    trainee.visual.register_forward_hook(lambda module, args, out: seen.update(out=out.pooler_output))
    trainee(collate(samples(checkpoint, 1))).total.backward()
    assert seen["out"].grad_fn is None
    assert all(p.grad is None for p in trainee.visual.parameters())
    assert trainee.text.embed_tokens.weight.grad is not None


def test_freeze_vision_still_trains_the_merger() -> None:
    checkpoint = tiny_checkpoint()
    trainee = prepare(checkpoint, ModelConfig(path="x", freeze_vision=True), seed=0)
    trainee(collate(samples(checkpoint, 1))).total.backward()
    learned = {n.split(".")[0] for n, p in trainee.visual.named_parameters() if p.grad is not None}
    assert learned == {"merger"}


def test_trainee_without_pictures_has_zero_vision_gradients() -> None:
    """A rank without images takes part in the tower's collectives (transformers #37186), out of place (verl #5881)."""
    checkpoint = tiny_checkpoint()
    trainee = prepare(checkpoint, ModelConfig(path="x"), seed=0)
    items = samples(checkpoint, 2, pictures=False)
    trainee(collate(items)).total.backward()
    grads = [p.grad for p in trainee.visual.parameters()]
    assert all(g is not None and not g.any() for g in grads)
    alone = prepare(tiny_checkpoint(), ModelConfig(path="x", freeze_vision=True, freeze_merger=True), seed=0)
    torch.testing.assert_close(alone(collate(items)).total, trainee(collate(items)).total)


def test_idle_batch_has_no_weight_and_no_gradient() -> None:
    checkpoint = tiny_checkpoint()
    trainee = prepare(checkpoint, ModelConfig(path="x"), seed=0)
    batch = idle_batch(0)
    trainee(batch).total.backward()
    assert batch.weight_sum == 0
    assert all(p.grad is None or not p.grad.any() for p in trainee.parameters())


def test_prepare_from_nothing_draws_all_weights_from_the_seed() -> None:
    def drawn(seed: int, disturb: bool = False) -> dict[str, torch.Tensor]:
        checkpoint = tiny_checkpoint()
        if disturb:
            with torch.no_grad():
                for parameter in checkpoint.model.parameters():
                    parameter.add_(1)
        return prepare(checkpoint, ModelConfig(path="x", from_nothing=True), seed).state_dict()

    first, again, other = drawn(5), drawn(5, disturb=True), drawn(6)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["model.lm_head.weight"], other["model.lm_head.weight"])


def test_batch_to_cpu_returns_the_batch_itself() -> None:
    batch = collate(samples(tiny_checkpoint(), 1))
    assert batch.to(torch.device("cpu")) is batch
    assert isinstance(batch, Batch)


def test_make_sample_without_pictures_has_no_vision_tokens() -> None:
    checkpoint = tiny_checkpoint()
    made = make_sample(trajectories(1, False)[0], recipe(checkpoint))
    assert isinstance(made, TrainingSample)
    assert made.vision_tokens == 0
    assert isinstance(prepare(checkpoint, ModelConfig(path="x"), 0), Trainee)


def test_use_liger_patches_norms_and_mlps_but_not_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    received: dict[str, object] = {}
    fake = types.ModuleType("liger_kernel.transformers")
    fake.apply_liger_kernel_to_glm4v = lambda **options: received.update(options)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "liger_kernel", types.ModuleType("liger_kernel"))
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", fake)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    checkpoint = tiny_checkpoint()
    prepare(checkpoint, ModelConfig(path="unused", liger=True), 0)
    assert received.pop("model") is checkpoint.model
    assert {name for name, on in received.items() if on} == {"rms_norm", "swiglu"}
    assert {"cross_entropy", "fused_linear_cross_entropy", "rope"} <= received.keys()


def test_use_liger_rejects_missing_gpu_or_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="needs a CUDA GPU"):
        prepare(tiny_checkpoint(), ModelConfig(path="unused", liger=True), 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", None)
    with pytest.raises(ConfigError, match=r"pip install 'seer-vlm\[gpu\]'"):
        prepare(tiny_checkpoint(), ModelConfig(path="unused", liger=True), 0)


def test_prepare_rejects_flash_attention_without_its_kernels() -> None:
    if torch.cuda.is_available():
        pytest.skip("flash attention may be installed")
    with pytest.raises(ConfigError, match='--no-build-isolation flash-attn. Or set it to "grouped"'):
        prepare(tiny_checkpoint(), ModelConfig(path="unused", attention="flash_attention_2"), 0)
