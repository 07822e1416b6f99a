"""The trainer's forward equals transformers' own, sample by sample, however samples are packed."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
import torch
from torch.nn import functional
from train_fakes import STYLE, WIDE, as_elsewhere, recipe, samples, tiny_checkpoint, trajectories, trajectory
from transformers.models.glm4v.modeling_glm4v import Glm4vTextRotaryEmbedding

from seer.errors import ConfigError
from seer.models.checkpoint import Checkpoint
from train.config import ModelConfig
from train.data.collate import Batch, collate, idle_batch
from train.data.dataset import Sample, make_sample
from train.model.glm4v import Trainee, prepare


def reference(checkpoint: Checkpoint, sample: Sample, item) -> tuple[torch.Tensor, torch.Tensor]:
    """nll of the supervised tokens and their weighted sum, through transformers' forward on one sample alone."""
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
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_packed_row_equals_transformers_sample_by_sample(
    attention: str, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packing with 3-D positions (transformers #39447), several images of two sizes, loss and every gradient."""
    if elsewhere:
        as_elsewhere(monkeypatch)
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
def test_grouped_attention_turns_as_transformers_does(rotation: dict) -> None:
    """Kinds of rotation that stretch a context: yarn scales queries and keys besides."""
    totals = []
    for attention in ("sdpa", "grouped"):
        checkpoint = tiny_checkpoint()
        config = checkpoint.model.config.text_config
        config.rope_parameters = {**config.rope_parameters, **rotation}
        checkpoint.model.model.language_model.rotary_emb = Glm4vTextRotaryEmbedding(config)
        trainee = prepare(checkpoint, ModelConfig(path="x", attention=attention), seed=0)
        totals.append(trainee(collate(samples(checkpoint, 3))).nll_N)
    torch.testing.assert_close(*totals, atol=2e-5, rtol=2e-5)


def test_the_head_runs_on_supervised_places_alone() -> None:
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


def test_activation_checkpointing_changes_no_gradient() -> None:
    checkpoint = tiny_checkpoint()
    batch = collate(samples(checkpoint, 2))
    grads = []
    for switch in (False, True):
        trainee = prepare(tiny_checkpoint(), ModelConfig(path="x", activation_checkpointing=switch), seed=0)
        trainee(batch).total.backward()
        grads.append(gradients_of(trainee))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_frozen_tower_keeps_no_graph(checkpointing: bool) -> None:
    """ms-swift #10214: nothing of a wholly frozen tower waits for a backward pass, checkpointing or not."""
    checkpoint = tiny_checkpoint()
    switches = ModelConfig(path="x", freeze_vision=True, freeze_merger=True, activation_checkpointing=checkpointing)
    trainee = prepare(checkpoint, switches, seed=0)
    seen = {}
    trainee.visual.register_forward_hook(lambda module, args, out: seen.update(out=out.pooler_output))
    trainee(collate(samples(checkpoint, 1))).total.backward()
    assert seen["out"].grad_fn is None
    assert all(p.grad is None for p in trainee.visual.parameters())
    assert trainee.text.embed_tokens.weight.grad is not None


def test_a_frozen_tower_can_keep_a_trained_merger() -> None:
    checkpoint = tiny_checkpoint()
    trainee = prepare(checkpoint, ModelConfig(path="x", freeze_vision=True), seed=0)
    trainee(collate(samples(checkpoint, 1))).total.backward()
    learned = {n.split(".")[0] for n, p in trainee.visual.named_parameters() if p.grad is not None}
    assert learned == {"merger"}


def test_without_pictures_the_tower_gets_gradients_of_zero() -> None:
    """A rank without images must join the tower's collectives (transformers #37186), out of place (verl #5881)."""
    checkpoint = tiny_checkpoint()
    trainee = prepare(checkpoint, ModelConfig(path="x"), seed=0)
    items = samples(checkpoint, 2, pictures=False)
    trainee(collate(items)).total.backward()
    grads = [p.grad for p in trainee.visual.parameters()]
    assert all(g is not None and not g.any() for g in grads)
    alone = prepare(tiny_checkpoint(), ModelConfig(path="x", freeze_vision=True, freeze_merger=True), seed=0)
    torch.testing.assert_close(alone(collate(items)).total, trainee(collate(items)).total)


def test_an_idle_batch_weighs_nothing() -> None:
    checkpoint = tiny_checkpoint()
    trainee = prepare(checkpoint, ModelConfig(path="x"), seed=0)
    batch = idle_batch(0)
    trainee(batch).total.backward()
    assert batch.weight_sum == 0
    assert all(p.grad is None or not p.grad.any() for p in trainee.parameters())


def test_from_nothing_draws_new_weights_by_seed_and_keeps_nothing() -> None:
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


def test_every_tensor_of_a_batch_moves() -> None:
    batch = collate(samples(tiny_checkpoint(), 1))
    assert batch.to(torch.device("cpu")) is batch
    assert isinstance(batch, Batch)


def test_a_sample_made_of_text_pages_needs_no_rendering() -> None:
    checkpoint = tiny_checkpoint()
    made = make_sample(trajectories(1, False)[0], recipe(checkpoint))
    assert isinstance(made, Sample)
    assert made.vision_tokens == 0
    assert isinstance(prepare(checkpoint, ModelConfig(path="x"), 0), Trainee)


def test_liger_patches_norms_and_mlps_and_leaves_the_loss_to_us(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, object] = {}
    fake = types.ModuleType("liger_kernel.transformers")
    fake.apply_liger_kernel_to_glm4v = lambda **options: told.update(options)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "liger_kernel", types.ModuleType("liger_kernel"))
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", fake)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    checkpoint = tiny_checkpoint()
    prepare(checkpoint, ModelConfig(path="unused", liger=True), 0)
    assert told.pop("model") is checkpoint.model
    assert {name for name, on in told.items() if on} == {"rms_norm", "swiglu"}
    assert {"cross_entropy", "fused_linear_cross_entropy", "rope"} <= told.keys()


def test_liger_without_a_gpu_or_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="needs a CUDA GPU"):
        prepare(tiny_checkpoint(), ModelConfig(path="unused", liger=True), 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", None)
    with pytest.raises(ConfigError, match=r"pip install 'seer-vlm\[gpu\]'"):
        prepare(tiny_checkpoint(), ModelConfig(path="unused", liger=True), 0)


def test_flash_attention_without_its_kernels_is_refused() -> None:
    if torch.cuda.is_available():
        pytest.skip("its kernels may be here")
    with pytest.raises(ConfigError, match='--no-build-isolation flash-attn; "grouped" is exact'):
        prepare(tiny_checkpoint(), ModelConfig(path="unused", attention="flash_attention_2"), 0)
