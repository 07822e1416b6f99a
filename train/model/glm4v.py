"""The model as the trainer sees it: one packed batch in, the weighted loss sum and per-token figures out.

Parameters keep transformers' names behind one prefix, `model.`, which the export takes off.

Shapes: L tokens of the row, X hidden width, N supervised places, V image tokens.
"""
# ruff: noqa: N803, N815  shape-suffixed names are meant

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers.models.glm4v.modeling_glm4v import Glm4VisionMlp, Glm4vRMSNorm, Glm4vTextMLP
from transformers.utils.import_utils import is_flash_attn_2_available

from seer.errors import ConfigError
from seer.models.checkpoint import Checkpoint, PixelScaling
from seer.models.small import initialise
from train.config import ModelConfig
from train.data.collate import Batch
from train.data.packing import Runs, runs_of
from train.data.pixels import BytePatchEmbed, LinearDownsample, SharedPositions
from train.model.attention import NAME, GroupedTextAttention, GroupedVisionAttention, TextTurns
from train.model.layers import LastLayer, RmsNorm, TextMlp, VisionMlp
from train.model.loss import weighted_nll

PREFIX = "model."
REPLACEMENTS = {Glm4vRMSNorm: RmsNorm, Glm4vTextMLP: TextMlp, Glm4VisionMlp: VisionMlp}
"""transformers' classes and ours, which compute the same."""


class Figures(NamedTuple):
    """What a forward pass yields."""

    total: torch.Tensor
    """Sum of weight · nll; differentiable."""
    nll_N: torch.Tensor
    correct_N: torch.Tensor


class LossHead(nn.Linear):
    """The language-model head, asked for losses instead of logits: the weight is used inside its own forward, which is
    where FSDP has it whole."""

    def forward(  # type: ignore[override]
        self, rows_NX: torch.Tensor, targets_N: torch.Tensor, weights_N: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return weighted_nll(rows_NX, self.weight, targets_N, weights_N)


class Trainee(nn.Module):
    """A Glm4vForConditionalGeneration with the trainer's forward."""

    def __init__(self, model: Any, scaling: PixelScaling, attention: str = "grouped") -> None:
        super().__init__()
        self.model = model
        self.grouped = attention == "grouped"
        self.always_see = False
        """Run the vision tower even on batches without pictures: sharded ranks must all take part in its collectives."""
        visual, text = self.visual, self.text
        model.lm_head.__class__ = LossHead
        visual.patch_embed = BytePatchEmbed(visual.patch_embed.proj, scaling)
        visual.downsample.__class__ = LinearDownsample
        visual.embeddings.__class__ = SharedPositions
        text.config._attn_implementation = NAME if self.grouped else attention
        visual.config._attn_implementation = "sdpa" if self.grouped else attention
        for module in model.modules():
            if replacement := REPLACEMENTS.get(type(module)):
                module.__class__ = replacement
        text.layers[-1].__class__ = LastLayer
        if self.grouped:
            text.rotary_emb.__class__ = TextTurns
            for block in visual.blocks:
                block.attn.__class__ = GroupedVisionAttention
            for layer in text.layers:
                layer.self_attn.__class__ = GroupedTextAttention

    @property
    def visual(self) -> Any:
        return self.model.model.visual

    @property
    def text(self) -> Any:
        return self.model.model.language_model

    def forward(self, batch: Batch) -> Figures:
        embeds_LX = self.text.embed_tokens(batch.ids_L)
        if len(batch.grid_n3):
            seen_VX = self._see(batch.patches_PX, batch.grid_n3, batch.vision_runs)
            embeds_LX = embeds_LX.index_copy(0, batch.image_places_V, seen_VX.to(embeds_LX.dtype))
        elif self.always_see or self.vision_is_trained:
            embeds_LX = embeds_LX + self._see_nothing(batch.ids_L.device).to(embeds_LX.dtype)
        rows_NX = self.text(
            inputs_embeds=embeds_LX[None],
            position_ids=batch.positions_4L[:, None],
            use_cache=False,
            wanted_N=batch.predictors_N,
            **({"text_runs": batch.text_runs} if self.grouped else {}),
        ).last_hidden_state[0]
        return Figures(*self.model.lm_head(rows_NX, batch.targets_N, batch.weights_N))

    @property
    def vision_is_trained(self) -> bool:
        return any(parameter.requires_grad for parameter in self.visual.parameters())

    def _see(self, patches: torch.Tensor, grid: torch.Tensor, runs: Runs) -> torch.Tensor:
        # a wholly frozen tower keeps no graph
        with contextlib.nullcontext() if self.vision_is_trained else torch.no_grad():
            extra = {"vision_runs": runs} if self.grouped else {}
            return self.visual(patches, grid_thw=grid, **extra).pooler_output

    def _see_nothing(self, device: torch.device) -> torch.Tensor:
        """A look at one blank token, weighted with 0: the tower's parameters get zero gradients instead of none, so that
        every rank joins the collectives and every number of ranks takes the same optimiser step."""
        merge = self.visual.spatial_merge_size
        pixels = self.visual.patch_embed.proj.weight[0, 0, 0].numel()
        patches = torch.zeros((merge**2, pixels), dtype=torch.uint8, device=device)
        grid = torch.tensor([[1, merge, merge]], device=device)
        return self._see(patches, grid, runs_of([merge**2])).sum() * 0.0


def prepare(checkpoint: Checkpoint, config: ModelConfig, seed: int) -> Trainee:
    """The trainee: weights drawn anew where asked, parts frozen by switch, checkpointing and compilation applied.

    Raises ConfigError for kernels that are not here.
    """
    model = checkpoint.model.train()
    if config.from_nothing:
        draw_weights(model, seed)
    if config.liger:
        use_liger(model)
    if config.attention == "flash_attention_2" and not is_flash_attn_2_available():
        raise ConfigError(
            'model.attention = "flash_attention_2" needs a CUDA GPU and its kernels: pip install --no-build-isolation '
            'flash-attn; "grouped" is exact and without padding on any device'
        )
    trainee = Trainee(model, checkpoint.scaling, config.attention)
    freeze(trainee, config)
    if config.activation_checkpointing:
        checkpoint_layers(trainee)
    if config.compile:
        for layer in (*trainee.visual.blocks, *trainee.text.layers):
            layer.compile(dynamic=True)
    return trainee


def use_liger(model: nn.Module) -> None:
    """Put Liger's kernels in the place of norms and MLPs. Raises ConfigError where they cannot run."""
    if not torch.cuda.is_available():
        raise ConfigError("model.liger = true needs a CUDA GPU, and none is here; set it to false")
    try:
        from liger_kernel.transformers import apply_liger_kernel_to_glm4v
    except ImportError:
        raise ConfigError("model.liger = true needs Liger's kernels: pip install 'seer-vlm[gpu]'") from None
    ours: dict[str, Any] = dict(rope=False, cross_entropy=False, fused_linear_cross_entropy=False)
    apply_liger_kernel_to_glm4v(model=model, rms_norm=True, swiglu=True, **ours)


def draw_weights(model: nn.Module, seed: int) -> None:
    """New weights, the same for a seed: matrices drawn, scales 1, biases 0. Nothing that was learned stays."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        initialise(model)
        for name, parameter in model.named_parameters():
            if parameter.ndim < 2:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)


def freeze(trainee: Trainee, config: ModelConfig) -> None:
    """Switch gradients off for the parts named in the configuration."""
    if config.freeze_vision:
        for name, parameter in trainee.visual.named_parameters():
            if config.freeze_merger or not name.startswith("merger."):
                parameter.requires_grad_(False)
    elif config.freeze_merger:
        trainee.visual.merger.requires_grad_(False)
    if config.freeze_embeddings:
        trainee.text.embed_tokens.requires_grad_(False)


def checkpoint_layers(trainee: Trainee) -> None:
    """Recompute each text layer in the backward pass; vision blocks too, where they are trained."""
    trainee.model.gradient_checkpointing_enable({"use_reentrant": False})
    if not any(parameter.requires_grad for parameter in trainee.visual.blocks.parameters()):
        for block in trainee.visual.blocks:  # nothing to recompute, and recomputing frozen blocks trips up sharding
            block.gradient_checkpointing = False
