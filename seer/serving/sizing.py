"""Memory that serving needs: cache bytes per token, page and conversation, and how many of them fit on the GPUs.

sizing = size_serving(shape_of("path/to/checkpoint"), ServingLoad(gpus=1, gpu_memory_gib=80))
print("\n".join(sizing_lines(sizing)))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seer.errors import InputError, ModelError
from seer.models.checkpoint import check_folder, read_json
from seer.protocol.geometry import GLM_41V, VisionGeometry

PAGE_MARKERS = 2 + 6
"""Tokens around each image: its two markers and the label [Image n]."""


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model that determine its memory. Raises InputError for a size below 1."""

    layers: int
    kv_heads: int
    head_size: int
    weight_bytes: int

    def __post_init__(self) -> None:
        if min(self.layers, self.kv_heads, self.head_size, self.weight_bytes) < 1:
            raise InputError(f"{self} has a size below 1; use the sizes in a model's config.json")


@dataclass(frozen=True)
class ServingLoad:
    """The conversations to serve and the GPUs that serve them. Raises InputError for a value out of range."""

    gpus: int = 1
    gpu_memory_gib: float = 80.0
    memory_share: float = 0.9
    """Fraction of a GPU's memory, vLLM's gpu_memory_utilization."""
    reserve_gib: float = 4.0
    """Memory of each GPU for activations and the vision tower."""
    bytes_per_value: float = 2.0
    """Bytes of a value in the key-value cache: 2 for bfloat16, 1 for fp8."""
    page_width_px: int = 595
    page_height_px: int = 842
    pages: int = 30
    """Pages of one conversation."""
    text_tokens: int = 3_000
    """Text tokens of one conversation: question, retrieved text, thinking and answer."""

    def __post_init__(self) -> None:
        if min(self.gpus, self.pages, self.page_width_px, self.page_height_px) < 1 or self.text_tokens < 0:
            raise InputError(f"{self}: gpus, pages and page sizes must be at least 1, text_tokens at least 0")
        if (
            self.gpu_memory_gib <= 0
            or self.reserve_gib < 0
            or self.bytes_per_value <= 0
            or not 0 < self.memory_share <= 1
        ):
            raise InputError(f"{self}: memory must be above 0, and memory_share above 0 and at most 1")


@dataclass(frozen=True)
class Sizing:
    """The result of `size_serving`."""

    kv_bytes_per_token: float
    page_tokens: int
    kv_bytes_per_page: float
    conversation_tokens: int
    cache_bytes: float
    """Memory for the cache on all GPUs together; below 0 if the weights alone do not fit."""
    pages_cached: int
    conversations: int
    """Conversations that can run at once without waiting for room in the cache."""


def size_serving(shape: ModelShape, load: ServingLoad, geometry: VisionGeometry = GLM_41V) -> Sizing:
    """Compute the memory of a model under a load; `geometry` determines the tokens of a page."""
    # With tensor parallelism over more GPUs than key-value heads, each GPU keeps a copy of its head.
    copies = max(1.0, load.gpus / shape.kv_heads)
    # One key and one value per layer, head and dimension.
    per_token = 2 * shape.layers * shape.kv_heads * shape.head_size * load.bytes_per_value * copies
    page_tokens = geometry.tokens(load.page_width_px, load.page_height_px) + PAGE_MARKERS
    conversation = load.pages * page_tokens + load.text_tokens
    usable = load.gpus * (load.gpu_memory_gib * load.memory_share - load.reserve_gib) * 2**30
    cache = usable - shape.weight_bytes
    return Sizing(
        kv_bytes_per_token=per_token,
        page_tokens=page_tokens,
        kv_bytes_per_page=per_token * page_tokens,
        conversation_tokens=conversation,
        cache_bytes=cache,
        pages_cached=max(0, int(cache / (per_token * page_tokens))),
        conversations=max(0, int(cache / (per_token * conversation))),
    )


def shape_of(checkpoint: str | Path) -> ModelShape:
    """The shape of a checkpoint, from its config.json and the size of its weights. Raises ModelError if one is missing."""
    folder = check_folder(checkpoint)
    config = read_json(folder / "config.json")
    weights = sum(path.stat().st_size for path in [*folder.glob("*.safetensors"), *folder.glob("*.bin")])
    return shape_of_config(config, weights)


def shape_of_config(config: Mapping[str, Any], weight_bytes: int) -> ModelShape:
    """The shape of a model with this config.json. Raises ModelError if a number is missing."""
    text = config.get("text_config", config)
    try:
        heads = int(text["num_attention_heads"])
        return ModelShape(
            layers=int(text["num_hidden_layers"]),
            kv_heads=int(text.get("num_key_value_heads") or heads),
            head_size=int(text.get("head_dim") or text["hidden_size"] // heads),
            weight_bytes=weight_bytes,
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ModelError(
            f"config.json lacks a size of the text model ({error}); use a GLM-4V-family checkpoint"
        ) from None


def sizing_lines(sizing: Sizing) -> list[str]:
    """The sizing as lines of text."""
    lines = [
        f"key-value cache per token: {sizing.kv_bytes_per_token / 1e3:.1f} kB",
        f"a page: {sizing.page_tokens} tokens, {sizing.kv_bytes_per_page / 1e6:.1f} MB",
        f"a conversation: {sizing.conversation_tokens:,} tokens, "
        f"{sizing.kv_bytes_per_token * sizing.conversation_tokens / 1e9:.2f} GB",
    ]
    if sizing.cache_bytes <= 0:
        return [
            *lines,
            f"the weights do not fit: {-sizing.cache_bytes / 1e9:.1f} GB are missing; use more or larger GPUs",
        ]
    return [
        *lines,
        f"room for the cache: {sizing.cache_bytes / 1e9:.1f} GB = {sizing.pages_cached:,} pages "
        f"or {sizing.conversations:,} conversations at once",
    ]
