"""Load and save GLM-4V-family checkpoints.

    checkpoint = load("path/to/checkpoint")          # model, encoder, pixel scaling

A checkpoint is a folder with config.json, model.safetensors, tokenizer files, preprocessor settings, a chat template and
a generation config. transformers and vLLM load what `save` writes, and `load` reads what they write.

Shapes: P patches before merging.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.errors import ConfigError, ModelError
from seer.protocol.control import CONTROL
from seer.protocol.encoding import Encoder, ImageSlot
from seer.protocol.geometry import VisionGeometry

if TYPE_CHECKING:
    import torch
    from transformers import Glm4vForConditionalGeneration

CHAT_TEMPLATE_PATH = Path(__file__).parents[1] / "data" / "chat_template.jinja"
REQUIRED_FILES = ("config.json", "tokenizer.json", "preprocessor_config.json")


@dataclass(frozen=True)
class PixelScaling:
    """The normalisation of pixel values for the vision tower: (x / 255 - mean) / std, per channel."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    resample: int = 3
    """Pillow's number of the resize filter; 3 is bicubic."""


@dataclass
class Checkpoint:
    """A loaded model with its encoder, tokenizer and pixel scaling."""

    path: str
    model: Glm4vForConditionalGeneration
    encoder: Encoder
    tokenizer: Any
    scaling: PixelScaling
    max_positions: int

    def pixels(self, images: Sequence[np.ndarray], slots: Sequence[ImageSlot]) -> torch.Tensor:
        """Return the patches of page images: float32 (P, 3 · frames · patch · patch), in the order of `slots`.

        images: uint8 (height, width) or (height, width, 3), one for each slot.
        """
        import torch

        geometry = self.encoder.geometry
        patches = [patchify(image, slot, geometry, self.scaling) for image, slot in zip(images, slots, strict=True)]
        return torch.from_numpy(np.concatenate(patches))


def patchify(image: np.ndarray, slot: ImageSlot, geometry: VisionGeometry, scaling: PixelScaling) -> np.ndarray:
    """Convert one page image into float32 patches (rows · columns, 3 · frames · patch · patch).

    image: uint8 (height, width) or (height, width, 3); resized if it does not have the size of `slot`.

    The result equals the output of the GLM-4V image processor: the merge x merge patches of a token are adjacent. A
    greyscale page is broadcast to three channels.
    """
    patch, merge, frames = geometry.patch_px, geometry.merge, geometry.frames
    height, width = slot.rows * patch, slot.columns * patch
    if image.shape[:2] != (height, width):
        image = _resize(image, width, height, scaling.resample)
    channels = image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
    mean, std = (np.array(values, np.float32)[:, None, None] for values in (scaling.mean, scaling.std))
    scaled = (channels.astype(np.float32) / 255 - mean) / std  # (3, height, width)
    blocks = scaled.reshape(3, slot.rows // merge, merge, patch, slot.columns // merge, merge, patch)
    ordered = blocks.transpose(1, 4, 2, 5, 0, 3, 6)  # token row, token column, merge, merge, channel, patch, patch
    # A still image fills all frames of a temporal patch.
    repeated = np.broadcast_to(ordered[:, :, :, :, :, None], (*ordered.shape[:5], frames, patch, patch))
    return repeated.reshape(slot.rows * slot.columns, 3 * frames * patch * patch)


def _resize(image: np.ndarray, width: int, height: int, resample: int) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling(resample)))


# ── Loading ──────────────────────────────────────────────────────────────────────────────────────


def load(path: str | Path, *, device: str = "auto", dtype: str = "auto", attention: str = "sdpa") -> Checkpoint:
    """Load a checkpoint folder for inference.

    device: a torch device; "auto" selects CUDA if it is available.
    dtype: a torch dtype by name; "auto" is bfloat16 on CUDA and float32 on a CPU.
    attention: the attention implementation, by its name in transformers.

    Raises ModelError if the folder lacks something that Seer needs or does not load, and ConfigError if the device or
    dtype is not available.
    """
    folder = check_folder(path)  # before the slow imports, so that a wrong path fails at once
    import torch
    from transformers import AutoModelForImageTextToText

    _no_progress_bars()
    device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    wanted = ("bfloat16" if device.startswith("cuda") else "float32") if dtype == "auto" else dtype
    # Try the device and dtype on an empty tensor before loading weights, which can take minutes.
    try:
        torch.empty(0, dtype=getattr(torch, wanted), device=device)
    except (
        AttributeError,
        TypeError,
        RuntimeError,
        AssertionError,
    ) as error:  # found before the weights load, which can take minutes
        raise ConfigError(
            f"device '{device}' with dtype '{wanted}' is not available ({first_line(error)}); give a device such as cpu, "
            "cuda or cuda:1 and a dtype such as float32 or bfloat16, or auto"
        ) from None
    try:
        model = AutoModelForImageTextToText.from_pretrained(
            folder, dtype=getattr(torch, wanted), attn_implementation=attention, local_files_only=True
        )
    except Exception as error:  # transformers raises errors of many libraries for a faulty folder
        raise ModelError(
            f"'{path}' does not load as a GLM-4V-family model: {first_line(error)}; use a complete checkpoint"
        ) from error
    model = model.to(device).eval()  # type: ignore[arg-type]
    encoder, tokenizer, scaling = load_encoder(folder)
    text_config = model.config.get_text_config()
    return Checkpoint(str(path), model, encoder, tokenizer, scaling, text_config.max_position_embeddings)


def load_encoder(path: str | Path) -> tuple[Encoder, Any, PixelScaling]:
    """Load the encoder, the tokenizer and the pixel scaling of a checkpoint, without its weights.

    Raises ModelError if the folder lacks a file, a control token or a usable setting.
    """
    folder = check_folder(path)
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # as in `load`
        raise ModelError(
            f"the tokenizer of '{path}' does not load: {first_line(error)}; copy tokenizer.json again"
        ) from error
    geometry, scaling = read_processor(read_json(folder / "preprocessor_config.json"))
    return Encoder(tokenizer, geometry), tokenizer, scaling


def read_processor(settings: Mapping[str, Any]) -> tuple[VisionGeometry, PixelScaling]:
    """Read the image geometry and pixel scaling from the settings in preprocessor_config.json.

    Missing settings take GLM-4.1V's values. Raises ModelError that names an impossible value.
    """

    def whole(values: Mapping[str, Any], key: str, default: int) -> int:
        value = values.get(key, default)
        if type(value) is not int or value < 1:
            raise ModelError(f"preprocessor_config.json has {key}={value!r}; it must be an integer above 0")
        return value

    def channels(key: str, default: tuple[float, float, float]) -> tuple[float, float, float]:
        value = settings.get(key, default)
        if not isinstance(value, list | tuple) or len(value) != 3 or not all(type(x) in (int, float) for x in value):
            raise ModelError(f"preprocessor_config.json has {key}={value!r}; it must be three numbers, one per channel")
        return float(value[0]), float(value[1]), float(value[2])

    size = settings.get("size") or {}
    if not isinstance(size, Mapping):
        raise ModelError(f"preprocessor_config.json has size={size!r}; it must contain shortest_edge and longest_edge")
    resample = settings.get("resample", 3)
    if type(resample) is not int or resample not in range(6):
        raise ModelError(f"preprocessor_config.json has resample={resample!r}; it must be a Pillow filter, 0 to 5")
    defaults = VisionGeometry()
    geometry = VisionGeometry(
        patch_px=whole(settings, "patch_size", defaults.patch_px),
        merge=whole(settings, "merge_size", defaults.merge),
        frames=whole(settings, "temporal_patch_size", defaults.frames),
        min_pixels=whole(size, "shortest_edge", defaults.min_pixels),
        max_pixels=whole(size, "longest_edge", defaults.max_pixels),
    )
    scaling = PixelScaling(
        mean=channels("image_mean", (0.48145466, 0.4578275, 0.40821073)),
        std=channels("image_std", (0.26862954, 0.26130258, 0.27577711)),
        resample=resample,
    )
    return geometry, scaling


def check_folder(path: str | Path) -> Path:
    """Return the checkpoint folder after checking that its files exist and its JSON files parse.

    Raises ModelError that names the missing or damaged files.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise ModelError(f"no checkpoint folder at '{path}'; give the path of a local GLM-4V-family checkpoint")
    missing = [name for name in REQUIRED_FILES if not (folder / name).is_file()]
    if not (list(folder.glob("*.safetensors")) or list(folder.glob("*.bin"))):
        missing.append("model.safetensors")
    if missing:
        raise ModelError(f"the checkpoint '{path}' lacks {', '.join(missing)}; copy the whole folder")
    for name in REQUIRED_FILES:
        read_json(folder / name)
    return folder


def weights_digest(path: str | Path | None) -> str | None:
    """Return twelve hex digits of SHA-256 over the weights of a checkpoint; None if `path` has no weight files.

    Run folders store the digest to detect that a checkpoint was replaced.
    """
    files = sorted(file for kind in ("*.safetensors", "*.bin") for file in Path(path).glob(kind)) if path else []
    if not files:
        return None
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()[:12]


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises ModelError if the file is unreadable or contains something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"'{path}' is not readable JSON ({first_line(error)}); copy the checkpoint again") from None
    if not isinstance(value, dict):
        raise ModelError(f"'{path}' contains a JSON {type(value).__name__}; it must be a JSON object")
    return value


def _no_progress_bars() -> None:
    """Turn off the progress bars that transformers shows for every file it reads or writes."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def first_line(error: BaseException) -> str:
    """Return the first line of an error message, at most 300 characters."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


# ── Saving ───────────────────────────────────────────────────────────────────────────────────────


def save(
    checkpoint_dir: str | Path, model: Any, tokenizer: Any, scaling: PixelScaling, geometry: VisionGeometry
) -> None:
    """Write a whole checkpoint folder: weights, configuration, tokenizer, processor, template and generation config.

    Raises ModelError if the tokenizer lacks a control token.
    """
    from transformers import GenerationConfig, Glm4vImageProcessor, Glm4vProcessor, Glm4vVideoProcessor

    _no_progress_bars()
    folder = Path(checkpoint_dir)
    folder.mkdir(parents=True, exist_ok=True)
    encoder = Encoder(tokenizer, geometry)
    model.generation_config = GenerationConfig(
        eos_token_id=list(encoder.stop_ids), pad_token_id=encoder.control(CONTROL.end_of_text), do_sample=False
    )
    model.save_pretrained(folder, safe_serialization=True)
    size = {"shortest_edge": geometry.min_pixels, "longest_edge": geometry.max_pixels}
    shared = dict(
        size=size,
        patch_size=geometry.patch_px,
        merge_size=geometry.merge,
        temporal_patch_size=geometry.frames,
        image_mean=list(scaling.mean),
        image_std=list(scaling.std),
        resample=scaling.resample,
    )
    processor = Glm4vProcessor(
        image_processor=Glm4vImageProcessor(**shared),
        tokenizer=tokenizer,
        video_processor=Glm4vVideoProcessor(**shared),
        chat_template=CHAT_TEMPLATE_PATH.read_text(encoding="utf-8"),
    )
    processor.save_pretrained(folder)
    # Older readers, including vLLM, expect the image settings in separate files.
    processor.image_processor.save_pretrained(folder)
    processor.video_processor.save_pretrained(folder)
