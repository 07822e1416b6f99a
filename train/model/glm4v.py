"""The trained model: takes one packed batch, returns the weighted loss sum and figures per supervised token.

Parameters keep the names of transformers with the prefix `model.`, which the export removes.

Shapes: L tokens of the row, X hidden width, N supervised places, V image tokens, P patches.
"""
# ruff: noqa: N803, N815  shape-suffixed names are intended

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
from train.model.attention import NAME, GroupedTextAttention, GroupedVisionAttention, TextRotations
from train.model.layers import LastLayer, RmsNorm, TextMlp, VisionMlp
from train.model.loss import weighted_nll

PREFIX = "model."
REPLACEMENTS = {Glm4vRMSNorm: RmsNorm, Glm4vTextMLP: TextMlp, Glm4VisionMlp: VisionMlp}
"""Classes of transformers, and ours that compute the same."""


class Figures(NamedTuple):
    """The results of a forward pass."""

    total: torch.Tensor
    """Sum of weight · nll; differentiable."""
    nll_N: torch.Tensor
    """Negative log-likelihood of each target in fp32; not differentiable."""
    correct_N: torch.Tensor
    """bool: whether the target is the likeliest token."""


class LossHead(nn.Linear):
    """The language-model head, which returns losses instead of logits.

    The weight is used inside the head's own forward, because FSDP gathers the whole weight only there.
    """

    def forward(  # type: ignore[override]
        self, rows_NX: torch.Tensor, targets_N: torch.Tensor, weights_N: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The values of `Figures` for hidden states `rows_NX`."""
        return weighted_nll(rows_NX, self.weight, targets_N, weights_N)


class Trainee(nn.Module):
    """A Glm4vForConditionalGeneration with the trainer's forward.

    Modules are replaced by assigning their class: parameters stay the same objects under the same names, so checkpoints and
    exports do not change.
    """

    _no_split_modules = ("Glm4vTextDecoderLayer", "LastLayer", "Glm4vVisionBlock")
    """Class names of the units that accelerate shards. Without them it would gather the whole model at once."""

    def __init__(self, model: Any, scaling: PixelScaling, attention: str = "grouped") -> None:
        super().__init__()
        self.model = model
        self.grouped = attention == "grouped"
        self.always_run_vision = False
        """Run the vision tower on batches without pictures as well: all sharded ranks must take part in its collectives."""
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
            text.rotary_emb.__class__ = TextRotations
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
        """Run the model on one micro-batch and compute its loss sum."""
        embeds_LX = self.text.embed_tokens(batch.ids_L)
        if len(batch.grid_n3):
            features_VX = self._run_vision(batch.patches_PX, batch.grid_n3, batch.vision_runs)
            embeds_LX = embeds_LX.index_copy(0, batch.image_places_V, features_VX.to(embeds_LX.dtype))
        elif self.always_run_vision or self.vision_is_trained:
            embeds_LX = embeds_LX + self._run_vision_on_blank(batch.ids_L.device).to(embeds_LX.dtype)
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
        """Whether any parameter of the vision tower or its merger has a gradient."""
        return any(parameter.requires_grad for parameter in self.visual.parameters())

    @property
    def tower_is_trained(self) -> bool:
        """Whether any parameter of the vision tower outside its merger has a gradient."""
        return any(p.requires_grad for name, p in self.visual.named_parameters() if not name.startswith("merger."))

    def _run_vision(self, patches: torch.Tensor, grid: torch.Tensor, runs: Runs) -> torch.Tensor:
        """Image features (V, X) of the pictures with these patches."""
        # Without trained parameters the tower needs no graph, whose activations would fill the memory.
        with contextlib.nullcontext() if self.vision_is_trained else torch.no_grad():
            extra = {"vision_runs": runs} if self.grouped else {}
            return self.visual(patches, grid_thw=grid, **extra).pooler_output

    def _run_vision_on_blank(self, device: torch.device) -> torch.Tensor:
        """Run the vision tower on one blank token and return 0 with its graph.

        The parameters of the tower then have zero gradients instead of none. Every rank takes part in the collectives, and
        the optimiser step does not depend on the number of ranks.
        """
        merge = self.visual.spatial_merge_size
        pixels = self.visual.patch_embed.proj.weight[0, 0, 0].numel()
        patches = torch.zeros((merge**2, pixels), dtype=torch.uint8, device=device)
        grid = torch.tensor([[1, merge, merge]], device=device)
        return self._run_vision(patches, grid, runs_of([merge**2])).sum() * 0.0


def prepare(checkpoint: Checkpoint, config: ModelConfig, seed: int) -> Trainee:
    """Build the trainee from a loaded checkpoint, with the initialisation, frozen parts, kernels, activation checkpointing
    and compilation of the configuration.

    Raises ConfigError if a configured kernel is not available.
    """
    model = checkpoint.model.train()
    if config.from_nothing:
        draw_weights(model, seed)
    if config.liger:
        use_liger(model)
    if config.attention == "flash_attention_2" and not is_flash_attn_2_available():
        raise ConfigError(
            'model.attention = "flash_attention_2" needs a CUDA GPU and its kernels: pip install --no-build-isolation '
            'flash-attn. Or set it to "grouped", which is exact and without padding on any device'
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
    """Replace norms and MLPs by Liger's kernels. Raises ConfigError without a CUDA GPU or without liger-kernel."""
    if not torch.cuda.is_available():
        raise ConfigError("model.liger = true needs a CUDA GPU, and this machine has none; set it to false")
    try:
        from liger_kernel.transformers import apply_liger_kernel_to_glm4v
    except ImportError:
        raise ConfigError("model.liger = true needs Liger's kernels: pip install 'seer-vlm[gpu]'") from None
    ours: dict[str, Any] = dict(rope=False, cross_entropy=False, fused_linear_cross_entropy=False)
    apply_liger_kernel_to_glm4v(model=model, rms_norm=True, swiglu=True, **ours)
    # Liger's norms write the gradient of their input over that of their output. In GLM-4V the output of two norms of each
    # layer is added to the residual stream, which passes on the same gradient tensor, so it would be overwritten.
    for module in model.modules():
        if hasattr(module, "in_place"):
            setattr(module, "in_place", False)  # noqa: B010 - torch types assigned attributes as tensors


def draw_weights(model: nn.Module, seed: int) -> None:
    """Initialise all weights anew: matrices drawn from `seed`, scales 1, biases 0. No learned value remains."""
    # The fork keeps the global random state, which the run seeds itself, unaffected.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        initialise(model)
        for name, parameter in model.named_parameters():
            if parameter.ndim < 2:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)


def freeze(trainee: Trainee, config: ModelConfig) -> None:
    """Disable gradients for the parts that the configuration freezes."""
    if config.freeze_vision:
        for name, parameter in trainee.visual.named_parameters():
            if config.freeze_merger or not name.startswith("merger."):
                parameter.requires_grad_(False)
    elif config.freeze_merger:
        trainee.visual.merger.requires_grad_(False)
    if config.freeze_embeddings:
        trainee.text.embed_tokens.requires_grad_(False)


def checkpoint_layers(trainee: Trainee) -> None:
    """Recompute the activations of each text layer in the backward pass, and of each vision block if any is trained."""
    trainee.model.gradient_checkpointing_enable({"use_reentrant": False})
    if not any(parameter.requires_grad for parameter in trainee.visual.blocks.parameters()):
        # Frozen blocks keep no activations, and recomputing them fails under FSDP.
        for block in trainee.visual.blocks:
            block.gradient_checkpointing = False
