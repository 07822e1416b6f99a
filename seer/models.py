"""Load, save, check and build GLM-4V-family checkpoints.

    checkpoint = load("path/to/checkpoint")          # model, encoder, image processor
    build_small("runs/small", seed=0)                # a real Glm4vForConditionalGeneration of a few million parameters

A checkpoint is an ordinary folder: config.json, model.safetensors, tokenizer files, preprocessor settings, chat
template, generation config. transformers and vLLM load what we save, and we load what they do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.encoding import Encoder, ImageSlot
from seer.errors import ModelError
from seer.geometry import VisionGeometry
from seer.protocol import CONTROL

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer
    from transformers import Glm4vForConditionalGeneration

CHAT_TEMPLATE_PATH = Path(__file__).parent / "data" / "chat_template.jinja"
SAMPLE_PATH = CHAT_TEMPLATE_PATH.with_name("sample.txt")
REQUIRED_FILES = ("config.json", "tokenizer.json", "preprocessor_config.json")

_COMMON_TOKENS = (
    *("<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>"),
    *("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    *("<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>"),
)
SPECIAL_TOKENS = {
    # image and video right behind their markers (ids 151343 and 151344 in the large model), Seer's tags last
    "glm-4.1v": (*_COMMON_TOKENS, "<|image|>", "<|video|>", "<think>", "</think>", "<tool_call>", "</tool_call>"),
    # audio, code and tool tags between; <|image|> is 151363, </tool_call> 151353 as in the paper
    "glm-4.5v": (
        *_COMMON_TOKENS,
        *("<|begin_of_audio|>", "<|end_of_audio|>", "<|begin_of_transcription|>", "<|end_of_transcription|>"),
        *(
            "<|code_prefix|>",
            "<|code_middle|>",
            "<|code_suffix|>",
            "<think>",
            "</think>",
            "<tool_call>",
            "</tool_call>",
        ),
        *("<tool_response>", "</tool_response>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "/nothink"),
        *("<|begin_of_box|>", "<|end_of_box|>", "<|image|>", "<|video|>"),
    ),
}
"""GLM's special tokens in the order of their ids, by family. The names agree, the ids do not: nothing may rely on them."""


@dataclass(frozen=True)
class PixelScaling:
    """How grey values become what the vision tower expects: (x / 255 - mean) / std, one mean and std a channel."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    resample: int = 3  # bicubic


@dataclass
class Checkpoint:
    """A loaded model with what is needed to speak to it."""

    path: str
    model: Glm4vForConditionalGeneration
    encoder: Encoder
    tokenizer: Any
    scaling: PixelScaling
    max_positions: int

    def pixels(self, images: Sequence[np.ndarray], slots: Sequence[ImageSlot]) -> torch.Tensor:
        """Patches of page images, float32 (P, 3 · frames · patch · patch), in the order of `slots`."""
        import torch

        geometry = self.encoder.geometry
        patches = [patchify(image, slot, geometry, self.scaling) for image, slot in zip(images, slots, strict=True)]
        return torch.from_numpy(np.concatenate(patches))


def patchify(image: np.ndarray, slot: ImageSlot, geometry: VisionGeometry, scaling: PixelScaling) -> np.ndarray:
    """One page image → float32 (rows · columns, 3 · frames · patch · patch), 2x2 patches of a token beside each other.

    Equal to the GLM-4V image processor's output. A grey page (height, width) is scaled once and spread over channels.
    """
    patch, merge, frames = geometry.patch_px, geometry.merge, geometry.frames
    height, width = slot.rows * patch, slot.columns * patch
    if image.shape[:2] != (height, width):
        image = _resize(image, width, height, scaling.resample)
    channels = image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
    mean, std = (np.array(values, np.float32)[:, None, None] for values in (scaling.mean, scaling.std))
    scaled = (channels.astype(np.float32) / 255 - mean) / std  # (3, height, width)
    blocks = scaled.reshape(3, slot.rows // merge, merge, patch, slot.columns // merge, merge, patch)
    ordered = blocks.transpose(1, 4, 2, 5, 0, 3, 6)  # token row, token column, 2, 2, channel, patch, patch
    repeated = np.broadcast_to(ordered[:, :, :, :, :, None], (*ordered.shape[:5], frames, patch, patch))
    return repeated.reshape(slot.rows * slot.columns, 3 * frames * patch * patch)


def _resize(image: np.ndarray, width: int, height: int, resample: int) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling(resample)))


# ── Loading ──────────────────────────────────────────────────────────────────────────────────────


def load(path: str | Path, *, device: str = "auto", dtype: str = "auto", attention: str = "sdpa") -> Checkpoint:
    """Load a checkpoint folder for inference. Raises ModelError where something that Seer needs is missing.

    device: "auto" takes CUDA where there is one. dtype: "auto" is bfloat16 on CUDA, float32 on a CPU.
    """
    folder = check_folder(path)  # before anything slow is imported: a wrong path is said at once
    import torch
    from transformers import AutoModelForImageTextToText

    _no_progress_bars()
    device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    wanted = ("bfloat16" if device.startswith("cuda") else "float32") if dtype == "auto" else dtype
    try:
        model = AutoModelForImageTextToText.from_pretrained(
            folder, dtype=getattr(torch, wanted), attn_implementation=attention, local_files_only=True
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise ModelError(f"'{path}' does not load as a GLM-4V-family model: {_first_line(error)}") from error
    model = model.to(device).eval()  # type: ignore[arg-type]
    encoder, tokenizer, scaling = load_encoder(folder)
    text_config = model.config.get_text_config()
    return Checkpoint(str(path), model, encoder, tokenizer, scaling, text_config.max_position_embeddings)


def load_encoder(path: str | Path) -> tuple[Encoder, Any, PixelScaling]:
    """The encoder, the tokenizer and the pixel scaling of a checkpoint, without its weights."""
    folder = check_folder(path)
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"the tokenizer of '{path}' does not load: {_first_line(error)}") from error
    settings = read_json(folder / "preprocessor_config.json")
    size = settings.get("size", {})
    defaults = VisionGeometry()
    geometry = VisionGeometry(
        patch_px=settings.get("patch_size", defaults.patch_px),
        merge=settings.get("merge_size", defaults.merge),
        frames=settings.get("temporal_patch_size", defaults.frames),
        min_pixels=size.get("shortest_edge", defaults.min_pixels),
        max_pixels=size.get("longest_edge", defaults.max_pixels),
    )
    clip_mean, clip_std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    scaling = PixelScaling(
        mean=tuple(settings.get("image_mean", clip_mean)),
        std=tuple(settings.get("image_std", clip_std)),
        resample=settings.get("resample", 3),
    )
    return Encoder(tokenizer, geometry), tokenizer, scaling


def check_folder(path: str | Path) -> Path:
    """The folder, if it holds what a checkpoint must hold. Raises ModelError naming what is missing."""
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


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"'{path}' is not readable JSON: {_first_line(error)}") from None
    if not isinstance(value, dict):
        raise ModelError(f"'{path}' holds {type(value).__name__}, not a JSON object")
    return value


def _no_progress_bars() -> None:
    """transformers draws a bar for every file it reads or writes; ours take a blink."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


# ── Saving ───────────────────────────────────────────────────────────────────────────────────────


def save(
    checkpoint_dir: str | Path, model: Any, tokenizer: Any, scaling: PixelScaling, geometry: VisionGeometry
) -> None:
    """Write a whole checkpoint folder: weights, configuration, tokenizer, processor, template and generation config."""
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
    )
    processor = Glm4vProcessor(
        image_processor=Glm4vImageProcessor(**shared),
        tokenizer=tokenizer,
        video_processor=Glm4vVideoProcessor(**shared),
        chat_template=CHAT_TEMPLATE_PATH.read_text(encoding="utf-8"),
    )
    processor.save_pretrained(folder)
    # older readers, vLLM among them, look for the image settings in a file of their own
    processor.image_processor.save_pretrained(folder)
    processor.video_processor.save_pretrained(folder)


# ── A small real model ───────────────────────────────────────────────────────────────────────────

INK_SCALING = PixelScaling(mean=(0.92, 0.92, 0.92), std=(0.22, 0.22, 0.22))
"""Normalised to the ink of a text page, which is mostly white: a small model learns nothing from CLIP's scaling."""

PRE_TOKENIZER_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""GLM-4's splits, but each digit alone, so that codes are copied digit by digit."""


@dataclass(frozen=True)
class SmallShape:
    """The size of a small model. Head sizes are multiples of 32, as vLLM's CPU attention wants them."""

    hidden: int = 128
    text_layers: int = 4
    text_heads: int = 4
    text_kv_heads: int = 4
    text_ffn: int = 256
    vision_depth: int = 3
    vision_heads: int = 4
    vision_ffn: int = 256
    image_px: int = 336
    max_positions: int = 131072
    vocabulary: int = 2048


def build_small(
    path: str | Path,
    *,
    seed: int = 0,
    shape: SmallShape | None = None,
    corpus: Sequence[str] | None = None,
    family: str = "glm-4.1v",
    tokenizer: Tokenizer | None = None,
) -> Path:
    """Make a small, untrained, real Glm4vForConditionalGeneration with its own tokenizer; returns its folder.

    The same seed, shape, corpus and family give the same bytes. `corpus` trains the tokenizer's merges, `family` orders
    its special tokens; a `tokenizer` stands in for both.
    """
    import torch
    from transformers import Glm4vForConditionalGeneration

    shape = shape or SmallShape()
    wrapped = wrap_tokenizer(tokenizer or train_tokenizer(corpus or default_corpus(), shape.vocabulary, family))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Glm4vForConditionalGeneration(small_config(wrapped, shape))
        initialise(model)
    save(path, model, wrapped, INK_SCALING, VisionGeometry())
    return Path(path)


def small_config(tokenizer: Any, shape: SmallShape) -> Any:
    """The configuration of a small model. `head_dim` stays unset: transformers ignores it, vLLM does not."""
    from transformers import Glm4vConfig

    encoder = Encoder(tokenizer)
    ids = tokenizer.convert_tokens_to_ids
    head = shape.hidden // shape.text_heads
    # temporal, height and width share the rotary pairs; temporal takes the rounding
    sides = head // 2 * 3 // 8
    rope = dict(
        rope_type="default",
        rope_theta=10000.0,
        mrope_section=[head // 2 - 2 * sides, sides, sides],
        partial_rotary_factor=1.0,
    )
    return Glm4vConfig(
        image_token_id=encoder.control(CONTROL.image),
        image_start_token_id=encoder.control(CONTROL.begin_image),
        image_end_token_id=encoder.control(CONTROL.end_image),
        video_token_id=ids("<|video|>"),
        video_start_token_id=ids("<|begin_of_video|>"),
        video_end_token_id=ids("<|end_of_video|>"),
        text_config=dict(
            vocab_size=len(tokenizer),
            hidden_size=shape.hidden,
            intermediate_size=shape.text_ffn,
            num_hidden_layers=shape.text_layers,
            num_attention_heads=shape.text_heads,
            num_key_value_heads=shape.text_kv_heads,
            max_position_embeddings=shape.max_positions,
            rope_parameters=rope,
            pad_token_id=encoder.control(CONTROL.end_of_text),
        ),
        vision_config=dict(
            depth=shape.vision_depth,
            hidden_size=shape.hidden,
            num_heads=shape.vision_heads,
            intermediate_size=shape.vision_ffn,
            out_hidden_size=shape.hidden,
            image_size=shape.image_px,
        ),
    )


def initialise(model: torch.nn.Module) -> None:
    """Draw every matrix with std = fan_in^-0.5 (embeddings 0.5, position embeddings 0.3).

    transformers' default of 0.02 leaves image features of a narrow model nearly equal between pages, and it never
    learns to read; with fan-in scaling it does.
    """
    import torch

    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            continue
        if "position_embedding" in name:
            std = 0.3
        elif "embed_tokens" in name:
            std = 0.5
        else:
            std = parameter[0].numel() ** -0.5
        torch.nn.init.normal_(parameter, std=std)


DEFAULT_CORPUS = (
    '{"name": "select", "indices": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}',
    "\nText from image 1: the page says what the question asks for.\nText from image 2: and this page says the rest.\n",
    "[Image 1][Image 2][Image 3]\nQuery: What is the total price of the laptop and the monitor?",
    "From the retrieved text, I can see that the answer is on this page. The total is $1,749.98.",
    "You identified images [1, 3] as relevant. Please answer based on the visual content of these images.",
    "You selected no images. Please answer based on the visual content. It is not answerable from the document.",
    "who what when where which why how many is are was were the of and to in for on with from by at as an that this it",
    "问题是什么？根据第一页的内容，答案在这里。我们可以看到总数、名字和日期。",
)


def default_corpus() -> list[str]:
    """What a small model's tokenizer learns from where nothing else is given: the protocol's phrases and the sample text."""
    return [*DEFAULT_CORPUS, SAMPLE_PATH.read_text(encoding="utf-8")]


def train_tokenizer(corpus: Sequence[str], vocabulary: int, family: str = "glm-4.1v") -> Tokenizer:
    """A byte-level BPE tokenizer with GLM's special tokens, its merges learned from `corpus`. Deterministic."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(ignore_merges=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENIZER_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(SPECIAL_TOKENS[family]),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in SPECIAL_TOKENS[family]])
    return tokenizer


def wrap_tokenizer(tokenizer: Tokenizer) -> Any:
    """The tokenizer as transformers and vLLM want it."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=131072,
        extra_special_tokens={"image_token": "<|image|>", "video_token": "<|video|>"},
    )
