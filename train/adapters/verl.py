"""Training in verl 0.9 with our data and loss: a dataset class, a patch for Glm4v, and a FLOPs estimator.

    data.custom_cls.path=pkg://train.adapters.verl  data.custom_cls.name=SeerDataset
    model.external_lib=train.adapters.verl

The loss of verl is the sum of mask · nll over the global sum of the mask. With our weights as a float mask it equals our
loss. verl 0.9.1 by itself does not run Glm4v: its dataset gives positions in one row where the model expects four, and its
forward treats the output object of the vision tower as a tensor. This module fixes both. The patch is applied on import,
which verl does when it reads `model.external_lib`. verl needs a separate environment; see scripts/test_verl.sh.

Shapes: L tokens of a trajectory, P patches, n images.
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
from train.data.admission import admit
from train.data.dataset import Recipe, TrainingSample, TrajectoryDataset
from train.data.sets import open_trajectories
from train.parallel import World
from train.planning.flops import flops_model


class SeerDataset(torch.utils.data.Dataset[dict[str, Any]]):
    """Trajectories for verl's SFT trainer: ids, positions in four rows, float loss mask, patches.

    `parquet_files` are folders of shards or .jsonl files; verl fixes the argument's name. `config.seer` may have `weights`
    (by loss class) and `drop_turns`. Trajectories that are not in the admitted list of their set (`train.data.admission`)
    are left out and counted, and one without a learned token is replaced by the next, because verl expects a sample at every
    index.

    Raises ConfigError for a padding mode other than no_padding, InputError if every trajectory is rejected.
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
            raise ConfigError(
                f"data.pad_mode = {settings.get('pad_mode')}: must be no_padding, since SeerDataset packs samples"
            )
        ours = settings.get("seer") or {}
        self.recipe = Recipe(
            encoder=Encoder(tokenizer, processor_geometry(processor)),
            scaling=processor_scaling(processor),
            weights=LossWeights(**dict(ours.get("weights") or {})),
            max_tokens=int(settings.get("max_length", 16384)),
            drop_turns=tuple(ours.get("drop_turns") or ()),
        )
        paths = [parquet_files] if isinstance(parquet_files, str) else list(parquet_files)
        sets = [open_trajectories(path) for path in paths]
        alone = World(0, 1, torch.device("cpu"), None)  # every process of verl opens the whole set
        admissions = [admit(items, self.recipe, path, alone) for items, path in zip(sets, paths, strict=True)]
        self.datasets = [
            TrajectoryDataset(items, self.recipe, name=path, admitted=admission.usable)
            for items, path, admission in zip(sets, paths, admissions, strict=True)
        ]
        # `max_samples` counts trajectories as they are stored, before any is left out.
        starts = np.cumsum([0, *map(len, sets)])
        end = max_samples if max_samples > 0 else int(starts[-1])
        self.places = [
            (chosen, index)
            for chosen, dataset in enumerate(self.datasets)
            for index, stored in enumerate(dataset.admitted)
            if starts[chosen] + stored < end
        ]
        total = min(end, int(starts[-1]))
        self.rejected = total - len(self.places)
        if not self.places:
            raise InputError(f"all {total} trajectories of {paths} were rejected; raise data.max_length")
        if self.rejected:
            print(f"{self.rejected} of {total} trajectories left out: too long, or not encodable")

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> dict[str, Any]:
        chosen, place = self.places[index]
        sample, _ = self.datasets[chosen].draw(place)
        return as_item(sample, self.recipe)


def as_item(sample: TrainingSample, recipe: Recipe) -> dict[str, Any]:
    """A sample as verl's tensors. Positions are int64 (4, L): row 0 counts tokens, rows 1 to 3 are M-RoPE."""
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
    """Convert byte patches to the input of transformers' vision tower: float32 (P, 3 · frames · patch · patch)."""
    pixels = geometry.patch_px**2
    channels = patches.reshape(len(patches), patches.shape[1] // pixels, pixels)
    mean, std = (np.array(values, np.float32)[:, None] for values in (scaling.mean, scaling.std))
    scaled = (channels.astype(np.float32) / 255 - mean) / std  # broadcasts grey to three channels
    return np.repeat(scaled[:, :, None], geometry.frames, 2).reshape(len(patches), 3 * geometry.frames * pixels)


def processor_geometry(processor: Any) -> VisionGeometry:
    """The vision geometry of a processor of transformers. Raises ConfigError without a processor."""
    if processor is None:
        raise ConfigError(
            "SeerDataset needs the model's processor, got none; use a checkpoint folder with a preprocessor_config.json"
        )
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
    """The pixel scaling of a processor of transformers."""
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
    """Embeddings with image features inserted, for verl's forward. Replaces verl's `_get_input_embeds`.

    Without pictures, the vision tower runs on one blank token with weight 0, so that every rank takes part in its
    collectives. Raises InputError for videos, and if placeholders and image features differ in number.
    """
    if pixel_values_videos is not None or video_grid_thw is not None:
        raise InputError("the batch has videos, which are not supported; give page images")
    embeds = model.get_input_embeddings()(input_ids)
    visual = model.visual
    if pixel_values is None:
        config = visual.config
        width = config.in_channels * config.temporal_patch_size * config.patch_size**2
        merge = config.spatial_merge_size
        blank = torch.zeros((merge**2, width), dtype=visual.dtype, device=embeds.device)
        grid = torch.tensor([[1, merge, merge]], device=embeds.device)
        return embeds + 0.0 * visual(blank, grid_thw=grid).pooler_output.mean(), attention_mask
    features = visual(pixel_values.to(visual.dtype), grid_thw=image_grid_thw).pooler_output
    places = (input_ids == model.config.image_token_id)[..., None].expand_as(embeds)
    if int(places[..., 0].sum()) != len(features):
        raise InputError(
            f"{int(places[..., 0].sum())} image placeholders for {len(features)} image features: must be equal; encode the "
            "text and the pages of a sample together"
        )
    return embeds.masked_scatter(places, features.to(embeds.dtype)), attention_mask


def estimate_flops(
    config: Any, tokens_sum: float, batch_seqlens: Sequence[int], delta_time: float, **more: Any
) -> float:
    """TFLOP per second of a GLM-4V model, for verl's counter. Vision is counted if verl passes `images_seqlens`.

    `tokens_sum` and `batch_seqlens` are the total and the single sequence lengths; `delta_time` is in seconds.
    """
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
    """Install our embeddings and FLOPs estimator in verl's modules `glm4v` and `flops_counter`."""
    modules["glm4v"]._get_input_embeds = input_embeds
    modules["flops_counter"].ESTIMATE_FUNC["glm4v"] = estimate_flops


def _patch_installed_verl() -> None:
    try:
        from verl.models.transformers import glm4v
        from verl.utils import flops_counter
    except ImportError:
        return  # without verl, this module can still be imported and tested
    patch({"glm4v": glm4v, "flops_counter": flops_counter})


_patch_installed_verl()
