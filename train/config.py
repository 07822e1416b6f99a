"""Everything a run can be told, in one frozen record.

    config = load_config(TrainConfig, "configs/seer-9b.toml", ["optimizer.lr=3e-6"])

A configuration file holds only what differs from the defaults here; the resolved whole is written into the run folder.
Settings that are known to train badly without saying so are refused at construction.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from seer.schema import LossClass, Record

Precision = Literal["float32", "mixed_bf16", "bf16"]


class SetConfig(Record):
    """One data set and how often it is drawn from."""

    path: str
    """A folder of trajectory shards, or a .jsonl file with one trajectory a line."""
    share: int = Field(1, ge=1)
    """Of every sum-of-shares draws, this many come from here, spread evenly."""
    samples_per_step: int | None = Field(None, ge=1)
    """With `mixing = "step"`: how many samples a step of this set takes, where it differs from the global batch."""
    max_samples: int | None = Field(None, ge=1)
    """Use only the first so many trajectories."""


class DataConfig(Record):
    sets: tuple[SetConfig, ...] = Field(min_length=1)
    mixing: Literal["sample", "step"] = "sample"
    """`sample`: sets are mixed within a step. `step`: each step is drawn from one set."""
    shuffle: bool = True
    held_out: tuple[SetConfig, ...] = ()
    """Trajectories for evaluation only."""
    over_long: Literal["drop", "refuse"] = "drop"
    """What happens to a trajectory above `batching.max_tokens`: left out and counted, or an error. Never cut."""
    drop_turns: tuple[Literal["call", "observation", "think"], ...] = ()
    """Turns taken out of every trajectory: the controls and ablations differ from the main run in this one field."""
    prefetch_steps: int = Field(2, ge=0, le=64)
    """Steps prepared ahead by a background thread; 0 prepares in the foreground."""
    cache_mib: int = Field(512, ge=0)
    """Encoded samples kept in memory, pictures included."""


class ModelConfig(Record):
    path: str
    """A checkpoint folder to start from."""
    from_nothing: bool = False
    """Keep the folder's shape and tokenizer, draw its weights anew from `seed`."""
    freeze_vision: bool = False
    freeze_merger: bool = False
    """Freeze the part that maps vision features to text embeddings as well."""
    freeze_embeddings: bool = False
    attention: Literal["grouped", "sdpa", "flash_attention_2"] = "grouped"
    """`grouped`: exact and without padding, on any device. `sdpa`: a block mask over the packed row.
    `flash_attention_2`: variable-length kernels, on a GPU."""
    activation_checkpointing: bool = False
    compile: bool = False
    liger: bool = False
    """Liger's fused RMSNorm and SwiGLU, on a CUDA GPU with liger-kernel installed. The loss is ours either way: it has
    weights, and makes no logits of the whole vocabulary."""


class OptimizerConfig(Record):
    kind: Literal["adamw", "muon", "adamw_bf16_states", "adamw_8bit", "adamw_stochastic"] = "adamw"
    """`adamw`: fp32 moments. `muon`: orthogonalised momentum for matrices, for small models that learn from nothing.
    `adamw_bf16_states`: fp32 weights, bf16 moments. `adamw_8bit` (torchao): 8-bit moments. `adamw_stochastic` (torchao): all
    bf16, weights rounded stochastically."""
    lr: float = Field(3e-6, gt=0)
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    """On matrices alone; norms, biases and embeddings are never decayed."""
    clip_norm: float = Field(1.0, gt=0)
    warmup_steps: int = Field(0, ge=0)
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    final_lr_share: float = Field(0.0, ge=0, le=1)
    """Where a decaying schedule ends, as a share of `lr`."""


class LossWeights(Record):
    """Weight of a token's loss by its class. The paper masks what it did not write and weighs the call above the rest but
    gives no numbers: these defaults are ours. It masks special tokens too, and yet stops on one: we train the tags and the
    stop token, without which the model never ends a turn."""

    call: float = Field(1.0, ge=0)
    structure: float = Field(1.0, ge=0)
    observation: float = Field(0.0, ge=0)
    """Given by the tool, not written by the model: above 0 only for ablations."""
    think: float = Field(1.0, ge=0)
    answer: float = Field(1.0, ge=0)
    stop: float = Field(1.0, ge=0)

    def of(self, loss_class: LossClass) -> float:
        return 0.0 if loss_class is LossClass.PROMPT else float(getattr(self, loss_class.value))

    @model_validator(mode="after")
    def _something_is_learned(self) -> LossWeights:
        if not any(self.of(loss_class) for loss_class in LossClass):
            raise ValueError("every loss weight is 0, so nothing would be learned; give at least one class a weight")
        return self


class BatchingConfig(Record):
    global_batch: int = Field(2, ge=1)
    """Trajectories a step, over all ranks. The sampler draws the same ones whatever the number of ranks."""
    max_tokens: int = Field(16384, ge=16)
    """The longest trajectory that is trained on."""
    micro_batch_tokens: int | None = Field(None, ge=16)
    """Tokens packed into one forward pass; the default is `max_tokens`."""
    packing: Literal["packed", "single"] = "packed"
    """`packed`: several trajectories in one row, none attending to another. `single`: one trajectory a pass."""

    @property
    def budget_tokens(self) -> int:
        return self.micro_batch_tokens or self.max_tokens

    @model_validator(mode="after")
    def _longest_fits(self) -> BatchingConfig:
        if self.budget_tokens < self.max_tokens:
            raise ValueError(
                f"micro_batch_tokens {self.micro_batch_tokens} is below max_tokens {self.max_tokens}: the longest trajectory "
                "would fit no micro-batch; raise the one or lower the other"
            )
        return self


class ParallelConfig(Record):
    precision: Precision = "float32"
    """`mixed_bf16`: fp32 masters, bf16 arithmetic, fp32 gradient reduction. `bf16`: everything bf16."""
    shard: Literal["auto", "always"] = "auto"
    """`auto` shards with FSDP2 where there are several ranks or mixed precision; `always` does it on one rank too."""
    replicas: int = Field(1, ge=1)
    """HSDP: so many groups hold the whole model, each group sharding it. Usually the number of nodes."""
    cpu_offload: bool = False
    reshard_after_forward: bool = True
    sync_every_micro_batch: bool = True
    """Reduce gradients after each micro-batch: frugal. Off: once a step, at the price of unsharded gradients."""
    threads: int | None = Field(None, ge=1)
    """CPU threads of each process; by default torch's own choice."""
    timeout_s: int = Field(1800, ge=10)


class CheckpointConfig(Record):
    every_steps: int = Field(500, ge=1)
    keep: int = Field(2, ge=1)
    background: bool = True
    """Write while training goes on."""
    resume: bool = True
    """Continue from the newest sound checkpoint of the run folder, where there is one."""
    export: bool = True
    """At the end, write a checkpoint folder for inference: `<run>/model`."""


class EvaluationConfig(Record):
    every_steps: int | None = Field(None, ge=1)
    """Held-out trajectories are always looked at after the last step; with this, on the way too."""
    max_samples: int = Field(64, ge=1)
    generate_samples: int = Field(0, ge=0)
    """Held-out questions answered by generation at the end of the run, besides the teacher-forced figures."""


class StopConfig(Record):
    """End the run early, when an evaluated figure is good enough or time is up."""

    metric: str | None = None
    """Name in the evaluation's record, e.g. `exact/call`."""
    at_least: float = 1.0
    max_seconds: float | None = Field(None, gt=0)


class LogConfig(Record):
    every_steps: int = Field(1, ge=1)
    wandb: bool = False
    """Also send figures to Weights & Biases; without a network they are kept on disk."""
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
                f"plain bf16 weights at lr {optimizer.lr:g} hardly change (an update is below half a unit in the last place): "
                'use parallel.precision = "mixed_bf16", or optimizer.kind = "adamw_stochastic"'
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
