"""Training in verl: its dataset has the contents of ours, and its loss equals ours.

Tests that need verl run in a separate environment: scripts/test_verl.sh.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from train_fakes import samples, tiny_base, tiny_checkpoint, trajectories

from seer.errors import ConfigError, InputError
from seer.schema import LossClass
from train.adapters.verl import SeerDataset, estimate_flops, float_patches, input_embeds, patch, processor_geometry
from train.config import LossWeights, ModelConfig
from train.data.collate import collate
from train.model.glm4v import prepare

CONFIGS = Path(__file__).parents[2] / "configs" / "verl"
WEIGHTS = {"call": 2.0, "structure": 0.5, "think": 0.25, "answer": 1.0, "stop": 3.0}


def needs_verl() -> None:
    if os.environ.get("SEER_REQUIRE_VERL"):
        import verl  # noqa: F401  the environment for these tests must have it
    else:
        pytest.importorskip("verl")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verl") / "data.jsonl"
    path.write_text("".join(item.model_dump_json() + "\n" for item in trajectories(6)))
    return path


def dataset(data: Path, **settings: Any) -> SeerDataset:
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(tiny_base())
    return SeerDataset(
        [str(data)], processor.tokenizer, {"max_length": 4096, "seer": {"weights": WEIGHTS}, **settings}, processor
    )


def test_seer_dataset_item_has_our_ids_weights_and_four_rows_of_positions(data: Path) -> None:
    ours = samples(tiny_checkpoint(), 6, weights=LossWeights(**WEIGHTS))
    made = dataset(data)
    assert len(made) == 6
    for item, sample in zip((made[i] for i in range(6)), ours, strict=True):
        assert item["input_ids"].tolist() == sample.ids.tolist()
        assert item["loss_mask"].tolist() == sample.weights.tolist()
        assert item["loss_mask"].dtype == torch.float32
        assert item["position_ids"].shape == (4, len(sample))
        assert item["position_ids"][0].tolist() == list(range(len(sample)))
        assert (item["position_ids"][1:].numpy() == sample.positions).all()
        assert (item["multi_modal_inputs"]["image_grid_thw"].numpy() == sample.grid).all()


def test_float_patches_equal_the_processor(data: Path) -> None:
    checkpoint = tiny_checkpoint()
    from seer.rendering import render_text

    item = trajectories(1)[0]
    document = render_text(item.source, item.style)
    sizes = {page.number: (page.width_px, page.height_px) for page in document.pages}
    slots = checkpoint.encoder.encode(item.turns, sizes).slots
    wanted = checkpoint.pixels([document.page(slot.page).image() for slot in slots], slots)
    sample = samples(checkpoint, 1)[0]
    got = float_patches(sample.patches, checkpoint.encoder.geometry, checkpoint.scaling)
    torch.testing.assert_close(torch.from_numpy(got), wanted)


def test_seer_dataset_leaves_out_and_counts_rejected_trajectories(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths = sorted(len(sample) for sample in samples(tiny_checkpoint(), 6))
    made = dataset(data, max_length=lengths[3])
    assert len(made) + made.rejected == 6
    assert made.rejected == sum(length > lengths[3] for length in lengths)
    assert "left out" in capsys.readouterr().out
    with pytest.raises(InputError, match="were rejected"):
        dataset(data, max_length=20)
    with pytest.raises(ConfigError, match="must be no_padding"):
        dataset(data, pad_mode="right")


def test_seer_dataset_applies_dropped_turns_and_limits(data: Path) -> None:
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(tiny_base())
    settings = {"seer": {"drop_turns": ["think"]}}
    made = SeerDataset(str(data), processor.tokenizer, settings, processor, max_samples=2)
    assert len(made) == 2
    assert made.recipe.weights.of(LossClass.THINK) == 1
    plain = SeerDataset(str(data), processor.tokenizer, {}, processor, max_samples=2)
    assert len(made[0]["input_ids"]) < len(plain[0]["input_ids"])


@pytest.mark.parametrize("pictures", [True, False])
def test_input_embeds_inserts_image_features(pictures: bool) -> None:
    checkpoint = tiny_checkpoint()
    sample = samples(checkpoint, 1, pictures=pictures)[0]
    ids = torch.from_numpy(sample.ids).long()[None]
    pixels = torch.from_numpy(float_patches(sample.patches, checkpoint.encoder.geometry, checkpoint.scaling))
    given = {"pixel_values": pixels, "image_grid_thw": torch.from_numpy(sample.grid)} if pictures else {}
    embeds, _ = input_embeds(checkpoint.model.model, ids, **given)
    embeds.sum().backward()
    tower = [p.grad for p in checkpoint.model.model.visual.blocks.parameters()]
    assert all(grad is not None for grad in tower), "every rank takes part in the tower's collectives"
    assert any(grad.any() for grad in tower) is pictures
    if pictures:
        with pytest.raises(InputError, match="image placeholders for"):
            input_embeds(checkpoint.model.model, ids.repeat(1, 2), **given)


def test_estimate_flops_counts_text_and_vision() -> None:
    glm = tiny_checkpoint().model.config
    text = estimate_flops(glm, 100, [60, 40], 1.0)
    assert 0 < text < estimate_flops(glm, 100, [60, 40], 1.0, images_seqlens=[24, 24])
    assert estimate_flops(glm, 100, [60, 40], 0.5) == pytest.approx(2 * text)


# ── With verl ────────────────────────────────────────────────────────────────────────────────────


def test_verl_loss_equals_our_loss(data: Path) -> None:
    needs_verl()
    from tensordict import TensorDict
    from verl.models.transformers.glm4v import forward_with_normal_backend, glm4v_base_forward
    from verl.utils.dataset.dataset_utils import DatasetPadMode, SFTTensorCollator
    from verl.workers.utils.losses import sft_loss

    items = samples(tiny_checkpoint(), 3, weights=LossWeights(**WEIGHTS))
    trainee = prepare(tiny_checkpoint(), ModelConfig(path="x"), 0)
    batch = collate(items)
    with torch.no_grad():
        ours = float(trainee(batch).total) / batch.weight_sum

    made = dataset(data)
    collated = SFTTensorCollator(DatasetPadMode.NO_PADDING)([made[i] for i in range(3)])
    pictures = [made[i]["multi_modal_inputs"] for i in range(3)]
    ids = collated["input_ids"].values()[None]
    positions = torch.cat(list(collated["position_ids"].unbind()), 1)[:, None]
    glm = type(tiny_checkpoint().model.model)
    glm_forward = glm.forward
    glm.forward = glm4v_base_forward
    try:
        with torch.no_grad():
            logits = forward_with_normal_backend(
                tiny_checkpoint().model,
                ids,
                position_ids=positions,
                use_cache=False,  # as verl's engine passes it; with a cache, transformers ignores packing
                pixel_values=torch.cat([p["pixel_values"] for p in pictures]),
                image_grid_thw=torch.cat([p["image_grid_thw"] for p in pictures]),
            ).logits[0]
    finally:
        glm.forward = glm_forward
    following = torch.roll(ids[0], -1)
    log_probs = logits.log_softmax(-1).gather(1, following[:, None])[:, 0]
    offsets = collated["input_ids"].offsets()
    output = {"log_probs": torch.nested.nested_tensor_from_jagged(log_probs, offsets)}
    mask = collated["loss_mask"]
    given = TensorDict({"loss_mask": mask}, batch_size=[3])
    theirs, _ = sft_loss(None, output, _WithNumbers(given, dp_size=1, batch_num_tokens=mask.values().sum()))
    assert float(theirs) == pytest.approx(ours, abs=1e-5)


class _WithNumbers:
    """A TensorDict with the two values that verl's trainer adds."""

    def __init__(self, data: Any, **numbers: Any) -> None:
        self._data, self._numbers = data, numbers

    def __getitem__(self, key: str) -> Any:
        return self._numbers[key] if key in self._numbers else self._data[key]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)


def test_patch_is_installed_in_verl() -> None:
    needs_verl()
    from verl.models.transformers import glm4v
    from verl.utils.flops_counter import ESTIMATE_FUNC, FlopsCounter

    assert glm4v._get_input_embeds is input_embeds
    assert ESTIMATE_FUNC["glm4v"] is estimate_flops
    counted = FlopsCounter(tiny_checkpoint().model.config)
    assert counted.config.model_type == "glm4v"


def test_verl_config_composes_over_the_defaults_of_verl() -> None:
    needs_verl()
    from hydra import compose, initialize_config_dir, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        composed = compose("sft_trainer_engine")
    with initialize_config_dir(str(CONFIGS.resolve()), version_base=None):
        ours = compose("seer-9b", overrides=["hydra.searchpath=[pkg://verl.trainer.config]"])
    for section in ("data", "model", "engine", "optim", "trainer"):
        unknown = set(ours[section]) - set(composed[section]) - {"seer"}
        assert not unknown, f"verl does not know {section}.{unknown}"
    assert ours.data.custom_cls.name == "SeerDataset"
    assert ours.optim.lr == 3e-6
    assert ours.model.external_lib == "train.adapters.verl"


def test_patch_replaces_the_embeddings_and_the_estimator_of_glm4v_only() -> None:
    estimators = {"glm4v": None, "qwen2_vl": "theirs"}
    modules = {"glm4v": SimpleNamespace(), "flops_counter": SimpleNamespace(ESTIMATE_FUNC=estimators)}
    patch(modules)
    assert modules["glm4v"]._get_input_embeds is input_embeds
    assert estimators == {"glm4v": estimate_flops, "qwen2_vl": "theirs"}


def test_processor_geometry_without_a_processor_says_what_the_checkpoint_needs() -> None:
    with pytest.raises(
        ConfigError, match="needs the model's processor, got none; use a checkpoint folder with a prepro"
    ):
        processor_geometry(None)


@pytest.mark.parametrize("given", ["pixel_values_videos", "video_grid_thw"])
def test_input_embeds_rejects_videos(given: str) -> None:
    ids = torch.zeros(1, 4, dtype=torch.long)
    with pytest.raises(InputError, match="the batch has videos, which are not supported; give page images"):
        input_embeds(tiny_checkpoint().model.model, ids, **{given: torch.zeros(1, 3)})
