"""The configuration of a run: one frozen record with all its settings.

    config = load_config(TrainConfig, "configs/seer-9b.toml", ["optimizer.lr=3e-6"])

A configuration file has only what differs from these defaults; the resolved configuration is written into the run folder.
Construction rejects settings that are known to train badly without an error.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from seer.schema import LossClass, Record

Precision = Literal["auto", "float32", "mixed_bf16", "bf16"]


class SetConfig(Record):
    """One data set and how often samples are drawn from it."""

    path: str
    """A folder of trajectory shards, or a .jsonl file with one trajectory per line."""
    share: int = Field(1, ge=1)
    """Number of draws from this set in every sum-of-shares draws, spread evenly."""
    samples_per_step: int | None = Field(None, ge=1)
    """With `mixing = "step"`: samples in a step of this set; the default is the global batch."""
    max_samples: int | None = Field(None, ge=1)
    """Use only the first `max_samples` trajectories."""


class DataConfig(Record):
    """The trajectories that a run reads, and how it mixes and filters them."""

    sets: tuple[SetConfig, ...] = Field(min_length=1)
    mixing: Literal["sample", "step"] = "sample"
    """`sample`: sets are mixed within a step. `step`: each step comes from one set."""
    shuffle: bool = True
    held_out: tuple[SetConfig, ...] = ()
    """Trajectories for evaluation only."""
    over_long: Literal["drop", "refuse"] = "drop"
    """A trajectory above `batching.max_tokens` is left out and counted, or is an error. It is never truncated."""
    drop_turns: tuple[Literal["call", "observation", "think"], ...] = ()
    """Turns removed from every trajectory. Controls and ablations differ from the main run in this field only."""
    prefetch_steps: int = Field(2, ge=0, le=64)
    """Steps prepared ahead by a background thread; 0 prepares in the foreground."""
    cache_mib: int = Field(512, ge=0)
    """Memory for encoded samples, pictures included."""


class ModelConfig(Record):
    """The model to start from, its frozen parts, and how it is computed."""

    path: str
    """A checkpoint folder to start from."""
    from_nothing: bool = False
    """Keep the shape and tokenizer of the folder, and initialise all weights from `seed`."""
    freeze_vision: bool = False
    freeze_merger: bool = False
    """Freeze the part that maps vision features to text embeddings as well."""
    freeze_embeddings: bool = False
    attention: Literal["grouped", "sdpa", "flash_attention_2"] = "grouped"
    """`grouped`: exact and without padding, on any device. `sdpa`: a block mask over the packed row. `flash_attention_2`:
    kernels for segments of variable length, on a GPU."""
    activation_checkpointing: bool = False
    compile: bool = False
    liger: bool = False
    """Liger's fused RMSNorm and SwiGLU, on a CUDA GPU with liger-kernel installed. Liger's loss is never used, because it
    does not support weights per token."""


class OptimizerConfig(Record):
    """The optimiser and the schedule of its learning rate."""

    kind: Literal["adamw", "muon", "adamw_bf16_states", "adamw_8bit", "adamw_stochastic"] = "adamw"
    """`adamw`: fp32 moments. `muon`: orthogonalised momentum for matrices, for small models trained from scratch.
    `adamw_bf16_states`: fp32 weights, bf16 moments. `adamw_8bit` (torchao): 8-bit moments. `adamw_stochastic` (torchao): all
    bf16, with stochastic rounding of weights."""
    lr: float = Field(3e-6, gt=0)
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    """Applies to matrices only, never to norms, biases or embeddings."""
    clip_norm: float = Field(1.0, gt=0)
    warmup_steps: int = Field(0, ge=0)
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    final_lr_share: float = Field(0.0, ge=0, le=1)
    """Final learning rate of a decaying schedule, as a fraction of `lr`."""


class LossWeights(Record):
    """Weight of a token's loss by its class.

    The paper masks tokens that the model does not write and gives the call a higher weight, without numbers, so these
    defaults are ours. The paper also masks special tokens. We train the tags and the stop token, because without them the
    model never ends a turn.
    """

    call: float = Field(1.0, ge=0)
    structure: float = Field(1.0, ge=0)
    observation: float = Field(0.0, ge=0)
    """The tool writes these tokens, not the model, so a weight above 0 is for ablations only."""
    think: float = Field(1.0, ge=0)
    answer: float = Field(1.0, ge=0)
    stop: float = Field(1.0, ge=0)

    def of(self, loss_class: LossClass) -> float:
        """The weight of a class; always 0 for the prompt."""
        return 0.0 if loss_class is LossClass.PROMPT else float(getattr(self, loss_class.value))

    @model_validator(mode="after")
    def _something_is_learned(self) -> LossWeights:
        if not any(self.of(loss_class) for loss_class in LossClass):
            raise ValueError("every loss weight is 0, so nothing would be learned; give at least one class a weight")
        return self


class BatchingConfig(Record):
    """The size of a step and of its micro-batches."""

    global_batch: int = Field(2, ge=1)
    """Trajectories per step, over all ranks. The samples of a step do not depend on the number of ranks."""
    max_tokens: int = Field(16384, ge=16)
    """Maximum length of a trajectory."""
    micro_batch_tokens: int | None = Field(None, ge=16)
    """Tokens packed into one forward pass; the default is `max_tokens`."""
    packing: Literal["packed", "single"] = "packed"
    """`packed`: several trajectories in one row, with attention within each. `single`: one trajectory per forward pass."""

    @property
    def budget_tokens(self) -> int:
        """Maximum number of tokens in a micro-batch."""
        return self.micro_batch_tokens or self.max_tokens

    @model_validator(mode="after")
    def _longest_fits(self) -> BatchingConfig:
        if self.budget_tokens < self.max_tokens:
            raise ValueError(
                f"micro_batch_tokens = {self.micro_batch_tokens}: must be at least max_tokens = {self.max_tokens}, or the "
                "longest trajectory would fit no micro-batch; raise micro_batch_tokens or lower max_tokens"
            )
        return self


class ParallelConfig(Record):
    """Numeric precision, sharding, and the processes of a run."""

    precision: Precision = "auto"
    """`auto`: `mixed_bf16` on a GPU, `float32` on a CPU.
    `mixed_bf16`: fp32 weights, bf16 arithmetic, fp32 gradient reduction. `bf16`: everything in bf16."""
    shard: Literal["auto", "always"] = "auto"
    """`auto` shards with FSDP2 for several ranks, mixed precision or offload; `always` shards on a single rank as well."""
    replicas: int = Field(1, ge=1)
    """HSDP: number of groups that each hold the whole model, sharded within the group. Usually the number of nodes."""
    cpu_offload: bool = False
    """Keep weights, gradients and optimiser state in CPU memory."""
    reshard_after_forward: bool = True
    """Free gathered weights after the forward pass and gather them again for the backward pass."""
    sync_every_micro_batch: bool = True
    """Reduce gradients after each micro-batch, which saves memory. If false, gradients stay unsharded within a step and are
    reduced once at its end."""
    threads: int | None = Field(None, ge=1)
    """CPU threads per process; the default is torch's."""
    timeout_s: int = Field(1800, ge=10)
    """Time limit for a collective."""


class CheckpointConfig(Record):
    """How often a run is saved, and what it leaves behind."""

    every_steps: int = Field(500, ge=1)
    keep: int = Field(2, ge=1)
    """Number of checkpoints to keep."""
    background: bool = True
    """Write checkpoints while training continues."""
    resume: bool = True
    """Resume from the newest sound checkpoint of the run folder, if there is one. If false, start over."""
    export: bool = True
    """At the end, write a checkpoint folder for inference: `<run>/model`."""


class EvaluationConfig(Record):
    """Evaluation on held-out trajectories."""

    every_steps: int | None = Field(None, ge=1)
    """Evaluate every so many steps, in addition to the evaluation after the last step."""
    max_samples: int = Field(64, ge=1)
    """Samples of each held-out set that are evaluated."""
    generate_samples: int = Field(0, ge=0)
    """Held-out questions that the exported model answers by generation at the end of the run."""


class StopConfig(Record):
    """Conditions that end a run before its last step."""

    metric: str | None = None
    """Name of a figure in the evaluation's record, e.g. `exact/call`."""
    at_least: float = 1.0
    """End the run when `metric` reaches this value."""
    max_seconds: float | None = Field(None, gt=0)
    """Save and end the run after this time. It is checked between steps."""


class LogConfig(Record):
    """Where figures are written, and how often."""

    every_steps: int = Field(1, ge=1)
    wandb: bool = False
    """Also send figures to Weights & Biases; without a network, its files stay on disk."""
    project: str = "seer"


class TrainConfig(Record):
    """One run of `seer-train run`."""

    out: str
    """The run folder: config.toml, metrics.jsonl, checkpoints/, model/."""
    steps: int = Field(6000, ge=1)
    seed: int = Field(0, ge=0)
    data: DataConfig
    model: ModelConfig
    optimizer: OptimizerConfig = OptimizerConfig()
    loss: LossWeights = LossWeights()
    batching: BatchingConfig = BatchingConfig()
    parallel: ParallelConfig = ParallelConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    stop: StopConfig = StopConfig()
    log: LogConfig = LogConfig()

    @model_validator(mode="after")
    def _learns_at_this_precision(self) -> TrainConfig:
        optimizer, precision = self.optimizer, self.parallel.precision
        if precision == "bf16" and optimizer.kind != "adamw_stochastic" and optimizer.lr < 1e-4:
            raise ValueError(
                f"plain bf16 weights at lr {optimizer.lr:g} hardly change (most updates are less than half a unit in the last "
                'place): use parallel.precision = "mixed_bf16", or optimizer.kind = "adamw_stochastic"'
            )
        bf16_moments = optimizer.kind in ("adamw_bf16_states", "adamw_stochastic") or precision == "bf16"
        if bf16_moments and optimizer.kind != "adamw_8bit" and optimizer.betas[1] > 0.99:
            raise ValueError(
                f"a bf16 second moment with beta2 = {optimizer.betas[1]:g} never decays (1 - beta2 is below bf16's resolution): "
                "set optimizer.betas to (0.9, 0.99) or lower, or keep the moments in fp32"
            )
        if optimizer.kind == "adamw_stochastic" and precision != "bf16":
            raise ValueError(
                f'optimizer.kind = "adamw_stochastic" rounds bf16 weights, but parallel.precision is "{precision}"; '
                'set it to "bf16"'
            )
        return self

    def resolved(self, *, cuda: bool) -> TrainConfig:
        """This configuration with the precision that `auto` means on a machine with (`cuda`) or without a GPU."""
        if self.parallel.precision != "auto":
            return self
        precision: Precision = "mixed_bf16" if cuda else "float32"
        return self.model_copy(update={"parallel": self.parallel.model_copy(update={"precision": precision})})

    @model_validator(mode="after")
    def _kernels_support_the_precision(self) -> TrainConfig:
        if self.model.attention == "flash_attention_2" and self.parallel.precision == "float32":
            raise ValueError(
                'model.attention = "flash_attention_2" has no kernels for parallel.precision = "float32": set the precision '
                'to "mixed_bf16" (or "auto"), or the attention to "grouped"'
            )
        return self

    @model_validator(mode="after")
    def _parts_agree(self) -> TrainConfig:
        if self.evaluation.generate_samples and not (self.data.held_out and self.checkpoint.export):
            raise ValueError("evaluation.generate_samples needs data.held_out and checkpoint.export = true")
        if self.stop.metric and not (self.evaluation.every_steps and self.data.held_out):
            raise ValueError(
                f"stop.metric '{self.stop.metric}' needs figures: set data.held_out and evaluation.every_steps as well"
            )
        if self.data.mixing == "sample" and any(s.samples_per_step for s in self.data.sets):
            raise ValueError(
                'samples_per_step belongs to data.mixing = "step"; set that, or leave samples_per_step out'
            )
        return self
