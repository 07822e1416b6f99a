"""Plan the memory of a run: bytes by part for a model shape, a configuration and a number of GPUs. No weights, no GPU.

    plan = plan_memory(glm_config, config, gpus=2)
    plan.peak_bytes, plan.parts

Weights, gradients and moments follow from the shape by arithmetic. Activations that the forward pass keeps for the backward
pass are counted: one text layer and one vision block run on the meta device while the saved tensors of autograd are summed.

Memory can peak at four moments of a step. The plan lists the parts that are held at each and takes the largest sum:
    loss       all kept activations, the slice of logits, the gradient of the head
    backward   all kept activations, one recomputed layer, the first gradient during its reduction
    last       all sharded gradients, one recomputed layer, the last gradient during its reduction
    update     gradients and moments
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from train.config import ModelConfig, OptimizerConfig, ParallelConfig, TrainConfig
from train.model import loss
from train.model.layers import LastLayer
from train.parallel import needs_sharding

GIB = 2**30
AGAIN = "kept: one layer again"
_ATTENTION = "seer_planned"


@dataclass(frozen=True)
class Shape:
    """Numbers of parameters of a model, by the units in which they are sharded."""

    text_layer: int
    text_layers: int
    vision_block: int
    vision_blocks: int
    embedding: int
    """Of the input embedding; the head has the same number."""
    root: int
    """Norms, and the parts of the vision tower outside its blocks."""
    frozen: int = 0

    @property
    def total(self) -> int:
        return self.text_layer * self.text_layers + self.vision_block * self.vision_blocks + self.ends

    @property
    def ends(self) -> int:
        """Parameters outside layers and blocks."""
        return 2 * self.embedding + self.root

    @property
    def trained(self) -> int:
        return self.total - self.frozen


@dataclass(frozen=True)
class Workload:
    """The largest micro-batch of a step, and the number of micro-batches."""

    tokens: int
    vision_tokens: int
    supervised_tokens: int
    micro_batches: int = 1


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes on one GPU, and in host memory if the model is offloaded."""

    parts: dict[str, int]
    """Bytes of every part, by name."""
    moments: dict[str, tuple[str, ...]]
    """Names of the parts that are held together, by moment."""
    host_bytes: int
    shape: Shape

    def at(self, moment: str) -> int:
        """Bytes held at a moment."""
        return sum(self.parts[name] for name in self.moments[moment])

    @property
    def peak_moment(self) -> str:
        return max(self.moments, key=self.at)

    @property
    def peak_bytes(self) -> int:
        return self.at(self.peak_moment)


def bytes_per_parameter(optimizer: OptimizerConfig, parallel: ParallelConfig) -> tuple[float, float, float]:
    """Bytes of (weight, gradient, moments) per trained parameter between steps."""
    weight = 2 if parallel.precision == "bf16" else 4
    moments = {"adamw": 2 * weight, "muon": weight, "adamw_bf16_states": 4, "adamw_8bit": 2, "adamw_stochastic": 4}[
        optimizer.kind
    ]
    return weight, weight, moments


def plan_memory(
    glm: Any, config: TrainConfig, *, gpus: int, vision_tokens: int | None = None, supervised_tokens: int = 1024
) -> MemoryPlan:
    """Plan the largest micro-batch of a configuration.

    `glm` is a Glm4vConfig. Without `vision_tokens` every token is a vision token, which takes most memory.
    `supervised_tokens` is the number of supervised tokens in one micro-batch.
    """
    tokens = config.batching.budget_tokens
    per_rank = math.ceil(config.batching.global_batch / gpus)
    # At least this many trajectories fit in a packed micro-batch, even if all of them have the maximum length.
    per_micro_batch = max(1, tokens // config.batching.max_tokens) if config.batching.packing == "packed" else 1
    workload = Workload(
        tokens=tokens,
        vision_tokens=min(tokens, tokens if vision_tokens is None else vision_tokens),
        supervised_tokens=supervised_tokens,
        micro_batches=math.ceil(per_rank / per_micro_batch),
    )
    return plan_workload(glm, config, workload, gpus=gpus)


def plan_workload(glm: Any, config: TrainConfig, workload: Workload, *, gpus: int) -> MemoryPlan:
    """Plan one workload for `gpus` GPUs over all nodes."""
    config = config.resolved(cuda=True)
    parallel, model = config.parallel, config.model
    skeleton = build_skeleton(glm)
    shape = measure_shape(skeleton, model)
    weight, gradient, moments = bytes_per_parameter(config.optimizer, parallel)
    shards = max(1, gpus // parallel.replicas)
    compute = 4 if parallel.precision == "float32" else 2
    at_rest = {
        "weights": shape.total * weight / shards,
        "gradients": shape.trained * gradient / shards,
        "moments": shape.trained * moments / shards,
    }
    # With offload the state at rest is in host memory; parts are streamed to the GPU as they are gathered.
    parts = dict.fromkeys(at_rest, 0.0) if parallel.cpu_offload else dict(at_rest)
    kept = activations(skeleton, model, workload, compute)
    parts |= {f"kept: {name}": size for name, size in kept.items()}
    parts |= loss_parts(glm, workload, compute)
    parts |= gathered(shape, parallel, compute) if needs_sharding(parallel, gpus) else {}
    again = tuple(name for name in parts if name == AGAIN)
    kept_names = tuple(name for name in parts if name.startswith("kept: ") and name != AGAIN)
    whole = tuple(name for name in parts if name.startswith("gathered: "))
    reduced = tuple(name for name in parts if name.startswith("reduced: "))
    losses = tuple(name for name in parts if name.startswith("loss: "))
    resting = ("weights", "moments")
    # From the second micro-batch on, the gradients of earlier ones are held during the forward pass.
    earlier = ("gradients",) if workload.micro_batches > 1 else ()
    return MemoryPlan(
        parts={name: int(size) for name, size in parts.items()},
        moments={
            "loss": (*resting, *earlier, *whole, *kept_names, *losses),
            "backward": (*resting, *earlier, *whole, *kept_names, *again, *reduced, "loss: head gradient"),
            "last": (*resting, "gradients", *whole, *again, *reduced),
            "update": (*resting, "gradients"),
        },
        host_bytes=int(sum(at_rest.values()) * shards) if parallel.cpu_offload else 0,
        shape=shape,
    )


def loss_parts(glm: Any, workload: Workload, compute: int) -> dict[str, float]:
    """Bytes of the loss: logits of one slice with their derived tensors, supervised rows, and the gradient of the head."""
    width, vocabulary = glm.text_config.hidden_size, glm.text_config.vocab_size
    elements = min(workload.supervised_tokens * vocabulary, loss.CHUNK_ELEMENTS)
    copies = 3 if compute == 4 else 2.5  # logits, their gradient or softmax, and a temporary
    return {
        "loss: logits": copies * 4 * elements,
        "loss: rows": 2 * compute * workload.supervised_tokens * width,
        "loss: head gradient": compute * width * vocabulary,
    }


def gathered(shape: Shape, parallel: ParallelConfig, compute: int) -> dict[str, float]:
    """Bytes of unsharded tensors that FSDP holds temporarily.

    Weights: the root and two more units, one in use and one that is prefetched. Gradients: the largest, in the computed and
    in the reduced type.
    """
    largest = max(shape.text_layer, shape.vision_block, shape.embedding)
    held = shape.total if not parallel.reshard_after_forward else shape.root + largest + shape.text_layer
    reduced = 4  # gradients are reduced in fp32
    return {
        "gathered: root and two more": held * compute,
        "reduced: largest gradient": largest * (compute + reduced) + shape.root * compute,
    }


# ── Shapes and saved tensors, on the meta device ─────────────────────────────────────────────────


def build_skeleton(glm: Any) -> Any:
    """The model on the meta device, with an attention that saves the tensors that flash attention saves."""
    from transformers import AttentionInterface, Glm4vForConditionalGeneration

    AttentionInterface.register(_ATTENTION, _planned_attention)
    clean = copy.deepcopy(glm)
    for part in (clean, clean.text_config, clean.vision_config):
        part._attn_implementation = _ATTENTION
    with torch.device("meta"):
        skeleton = Glm4vForConditionalGeneration(clean)
    skeleton.model.language_model.layers[-1].__class__ = LastLayer
    return skeleton


def measure_shape(skeleton: Any, model: ModelConfig) -> Shape:
    """Count the parameters by sharding unit, and those that the configuration freezes."""
    text, visual = skeleton.model.language_model, skeleton.model.visual
    layer, block = _count(text.layers[0]), _count(visual.blocks[0])
    frozen = 0
    if model.freeze_vision:
        frozen += _count(visual) - _count(visual.merger)
    if model.freeze_merger:
        frozen += _count(visual.merger)
    if model.freeze_embeddings:
        frozen += _count(text.embed_tokens)
    layers, blocks = len(text.layers), len(visual.blocks)
    embedding = _count(text.embed_tokens)
    root = _count(skeleton) - layer * layers - block * blocks - 2 * embedding
    return Shape(layer, layers, block, blocks, embedding, root, frozen)


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def activations(skeleton: Any, model: ModelConfig, workload: Workload, compute: int) -> dict[str, float]:
    """Bytes by part that the forward pass keeps for the backward pass. `compute` is the bytes of one activation value."""
    glm = skeleton.config
    dtype = torch.float32 if compute == 4 else torch.bfloat16
    skeleton.to(dtype)
    tokens, width = workload.tokens, glm.text_config.hidden_size
    merge = glm.vision_config.spatial_merge_size**2
    patches = workload.vision_tokens * merge
    layer = saved_by_text_layer(skeleton, tokens, dtype)
    last = saved_by_text_layer(skeleton, tokens, dtype, wanted=workload.supervised_tokens)
    sees = not (model.freeze_vision and model.freeze_merger)
    tower_learns = not model.freeze_vision
    block = saved_by_vision_block(skeleton, patches, dtype) if tower_learns and patches else 0
    ends = saved_by_vision_ends(skeleton, patches, dtype) if tower_learns and patches else 0
    layers, blocks = glm.text_config.num_hidden_layers, glm.vision_config.depth
    around = compute * tokens * width * (2 if sees else 1)  # embeddings, before and after image features are inserted
    around += (compute + 4 * 2) * workload.supervised_tokens * width  # the last norm, which computes in fp32
    if not model.activation_checkpointing:
        text = (layers - 1) * layer + last
        return {"text layers": text, "vision blocks": blocks * block + ends, "around the layers": around}
    # With activation checkpointing only the input of each layer is kept, plus one layer that is recomputed at a time.
    return {
        "layer inputs": layers * compute * tokens * width,
        "vision inputs": (blocks * compute * patches * glm.vision_config.hidden_size if tower_learns else 0) + ends,
        "one layer again": max(layer, block),
        "around the layers": around,
    }


def saved_by_text_layer(skeleton: Any, tokens: int, dtype: torch.dtype, wanted: int | None = None) -> int:
    """Bytes that one text layer keeps; with `wanted`, the last layer, which computes only that many places."""
    text = skeleton.model.language_model
    head = text.layers[0].self_attn.head_dim
    rotary = int(head * text.config.rope_parameters.get("partial_rotary_factor", 1.0))
    angles = torch.empty(1, tokens, rotary, dtype=dtype, device="meta")
    hidden = torch.empty(1, tokens, text.config.hidden_size, dtype=dtype, device="meta", requires_grad=True)
    # The input counts as part of the layer: it is the output of the previous one, which nothing else keeps.
    chosen = {} if wanted is None else {"wanted_N": torch.empty(wanted, dtype=torch.int64, device="meta")}
    layer = text.layers[0 if wanted is None else -1]
    return saved_bytes(lambda: layer(hidden, position_embeddings=(angles, angles), **chosen), shared=(angles,))


def saved_by_vision_block(skeleton: Any, patches: int, dtype: torch.dtype) -> int:
    """Bytes that one vision block keeps."""
    visual = skeleton.model.visual
    angles = torch.empty(patches, visual.blocks[0].attn.head_dim, device="meta")
    hidden = torch.empty(patches, visual.config.hidden_size, dtype=dtype, device="meta", requires_grad=True)
    one_picture = torch.tensor([0, patches])
    return saved_bytes(
        lambda: visual.blocks[0](hidden, cu_seqlens=one_picture, position_embeddings=(angles, angles)), shared=(angles,)
    )


def saved_by_vision_ends(skeleton: Any, patches: int, dtype: torch.dtype) -> int:
    """Bytes that the patch embedding, norms, downsampling and merger keep."""
    visual = skeleton.model.visual
    merge, width = visual.spatial_merge_size, visual.config.hidden_size
    pixels = torch.empty(patches, visual.config.patch_size**2, dtype=dtype, device="meta")
    weight = torch.empty(width, visual.config.patch_size**2, dtype=dtype, device="meta", requires_grad=True)

    def ends() -> torch.Tensor:
        first = visual.post_conv_layernorm(nn.functional.linear(pixels, weight)) + 1
        last = visual.post_layernorm(first).view(-1, merge, merge, width).permute(0, 3, 1, 2)
        return visual.merger(visual.downsample(last).view(-1, visual.config.out_hidden_size))

    return saved_bytes(ends)


def saved_bytes(forward: Callable[[], Any], shared: tuple[torch.Tensor, ...] = ()) -> int:
    """Bytes of the storages that autograd saves in a forward pass, without parameters and the tensors in `shared`.

    Views of one tensor share a storage, which counts once.
    """
    sizes: dict[int, int] = {}
    kept: list[torch.Tensor] = []  # keeps tensors alive, so that no address of a storage is reused while counting
    skip = {tensor.untyped_storage()._cdata for tensor in shared}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        base = tensor if tensor._base is None else tensor._base
        if not isinstance(base, nn.Parameter) and tensor.untyped_storage()._cdata not in skip:
            kept.append(tensor)
            sizes[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        out = forward()
    assert out is not None, "the graph lives while it is counted"
    return sum(sizes.values())


class _FlashLike(torch.autograd.Function):
    """Saves the tensors that flash attention saves: queries, keys, values, output, and one fp32 number per query and head."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(q)
        ctx.save_for_backward(q, k, v, out, torch.empty(q.shape[:-1], device=q.device))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise AssertionError("the planner never runs backward")


def _planned_attention(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, None]:
    return _FlashLike.apply(query, key, value).transpose(1, 2), None
