"""Training in verl 0.9 with our data and loss: a dataset class, a patch for Glm4v, a FLOPs estimator.

    data.custom_cls.path=pkg://train.adapters.verl  data.custom_cls.name=SeerDataset
    model.external_lib=train.adapters.verl

verl's loss is fixed: sum of mask · nll over the global sum of the mask. A float mask makes the mask our weights, so its loss
is ours. Stock verl 0.9.1 does not run Glm4v: its dataset gives flat positions where the model wants four rows, and its
forward takes the vision tower's output for a tensor. Both are set right here, on import, which verl does when it reads its
configuration. verl wants an environment of its own; see scripts/test_verl.sh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from seer.errors import ConfigError, InputError
from seer.models.checkpoint import PixelScaling
from seer.protocol.encoding import Encoder
from seer.protocol.geometry import VisionGeometry
from train.config import LossWeights
from train.data.dataset import Recipe, Rejection, Sample, make_sample, open_trajectories
from train.data.pages import pictures_of
from train.planning.flops import flops_model


class SeerDataset(torch.utils.data.Dataset[dict[str, Any]]):
    """Trajectories for verl's SFT trainer: ids, four-row positions, float loss mask, patches.

    `parquet_files` are folders of shards (or .jsonl files). Samples that are rejected are left out at construction, counted:
    verl wants every index to hold one. `config.seer` may give `weights` (by loss class) and `drop_turns`.
    """

    def __init__(
        self,
        parquet_files: str | Sequence[str],
        tokenizer: Any,
        config: Any,
        processor: Any = None,
        max_samples: int = -1,
    ) -> None:
        settings = config or {}
        if str(settings.get("pad_mode", "no_padding")) != "no_padding":
            raise ConfigError(f"SeerDataset packs: data.pad_mode must be no_padding, got {settings.get('pad_mode')}")
        ours = settings.get("seer") or {}
        self.recipe = Recipe(
            encoder=Encoder(tokenizer, processor_geometry(processor)),
            scaling=processor_scaling(processor),
            weights=LossWeights(**dict(ours.get("weights") or {})),
            max_tokens=int(settings.get("max_length", 16384)),
            drop_turns=tuple(ours.get("drop_turns") or ()),
        )
        paths = [parquet_files] if isinstance(parquet_files, str) else list(parquet_files)
        self.sets = [open_trajectories(path) for path in paths]
        places = [(chosen, index) for chosen, items in enumerate(self.sets) for index in range(len(items))]
        places = places[:max_samples] if max_samples > 0 else places
        self.places = [place for place in places if not isinstance(self._make(place), Rejection)]
        self.rejected = len(places) - len(self.places)
        if not self.places:
            raise InputError(f"all {len(places)} trajectories of {paths} were rejected; raise data.max_length")
        if self.rejected:
            print(f"{self.rejected} of {len(places)} trajectories left out: over-long, or nothing to learn")

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample = self._make(self.places[index])
        assert isinstance(sample, Sample), "rejected samples were left out at construction"
        return as_item(sample, self.recipe)

    def _make(self, place: tuple[int, int]) -> Sample | Rejection:
        chosen, index = place
        return make_sample(self.sets[chosen][index], self.recipe, pictures_of(self.sets[chosen], index))


def as_item(sample: Sample, recipe: Recipe) -> dict[str, Any]:
    """A sample in verl's terms. Row 0 of the positions counts tokens, rows 1 to 3 are M-RoPE."""
    rows = np.concatenate([np.arange(len(sample))[None], sample.positions]).astype(np.int64)
    item: dict[str, Any] = {
        "input_ids": torch.from_numpy(sample.ids.astype(np.int64)),
        "position_ids": torch.from_numpy(rows),
        "loss_mask": torch.from_numpy(sample.weights),
    }
    if len(sample.grid):
        item["multi_modal_inputs"] = {
            "pixel_values": torch.from_numpy(float_patches(sample.patches, recipe.encoder.geometry, recipe.scaling)),
            "image_grid_thw": torch.from_numpy(sample.grid),
        }
    return item


def float_patches(patches: np.ndarray, geometry: VisionGeometry, scaling: PixelScaling) -> np.ndarray:
    """Byte patches → what transformers' vision tower takes: float32 (P, 3 · frames · patch · patch)."""
    pixels = geometry.patch_px**2
    channels = patches.reshape(len(patches), patches.shape[1] // pixels, pixels)
    mean, std = (np.array(values, np.float32)[:, None] for values in (scaling.mean, scaling.std))
    scaled = (channels.astype(np.float32) / 255 - mean) / std  # grey spreads over three channels
    return np.repeat(scaled[:, :, None], geometry.frames, 2).reshape(len(patches), 3 * geometry.frames * pixels)


def processor_geometry(processor: Any) -> VisionGeometry:
    if processor is None:
        raise ConfigError("SeerDataset needs the model's processor: give a checkpoint folder that holds one")
    image = processor.image_processor
    size = {key: getattr(image.size, key, None) for key in ("shortest_edge", "longest_edge")}
    defaults = VisionGeometry()
    return VisionGeometry(
        patch_px=image.patch_size,
        merge=image.merge_size,
        frames=image.temporal_patch_size,
        min_pixels=size["shortest_edge"] or defaults.min_pixels,
        max_pixels=size["longest_edge"] or defaults.max_pixels,
    )


def processor_scaling(processor: Any) -> PixelScaling:
    image = processor.image_processor
    return PixelScaling(mean=tuple(image.image_mean), std=tuple(image.image_std))


# ── The patch ────────────────────────────────────────────────────────────────────────────────────


def input_embeds(
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    pixel_values: torch.Tensor | None = None,
    pixel_values_videos: torch.Tensor | None = None,
    image_grid_thw: torch.Tensor | None = None,
    video_grid_thw: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Embeddings with pictures put in, for verl's forward. Without pictures the tower looks at one blank token, weighted 0."""
    if pixel_values_videos is not None or video_grid_thw is not None:
        raise InputError("videos are not supported; give page images")
    embeds = model.get_input_embeddings()(input_ids)
    visual = model.visual
    if pixel_values is None:
        config = visual.config
        width = config.in_channels * config.temporal_patch_size * config.patch_size**2
        merge = config.spatial_merge_size
        blank = torch.zeros((merge**2, width), dtype=visual.dtype, device=embeds.device)
        grid = torch.tensor([[1, merge, merge]], device=embeds.device)
        return embeds + 0.0 * visual(blank, grid_thw=grid).pooler_output.mean(), attention_mask
    seen = visual(pixel_values.to(visual.dtype), grid_thw=image_grid_thw).pooler_output
    places = (input_ids == model.config.image_token_id)[..., None].expand_as(embeds)
    if int(places[..., 0].sum()) != len(seen):
        raise InputError(f"{int(places[..., 0].sum())} image placeholders for {len(seen)} image features")
    return embeds.masked_scatter(places, seen.to(embeds.dtype)), attention_mask


def estimate_flops(
    config: Any, tokens_sum: float, batch_seqlens: Sequence[int], delta_time: float, **more: Any
) -> float:
    """TFLOP a second of a GLM-4V model for verl's counter; vision counted where verl tells the sizes of the images."""
    images: Sequence[int] = more.get("images_seqlens") or ()
    total = flops_model(config).of(
        tokens=int(tokens_sum),
        patches=int(sum(images)),
        supervised=int(tokens_sum),  # verl runs the head on every token
        squared_tokens=int(sum(length**2 for length in batch_seqlens)),
        squared_patches=int(sum(patches**2 for patches in images)),
    )
    return total / delta_time / 1e12


def patch(modules: Mapping[str, Any]) -> None:
    """Put our pieces into verl's modules `glm4v` and `flops_counter`."""
    modules["glm4v"]._get_input_embeds = input_embeds
    modules["flops_counter"].ESTIMATE_FUNC["glm4v"] = estimate_flops


def _patch_installed_verl() -> None:
    try:
        from verl.models.transformers import glm4v
        from verl.utils import flops_counter
    except ImportError:
        return  # the dataset's pieces can be used, and tested, without verl
    patch({"glm4v": glm4v, "flops_counter": flops_counter})


_patch_installed_verl()
