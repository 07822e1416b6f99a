"""Configuration of a build: the TOML file that `seer-data build CONFIG` reads. Every key but `out` and `sources` has a
default."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from data_pipeline.records import Kind
from seer.errors import ConfigError
from seer.schema import Record
from seer.teaching.settings import TeacherSpec


class SourceSpec(Record):
    """One question set."""

    kind: str = "table"
    """A known source (`seer-data sources`), or `table`: any JSONL or Parquet with named columns."""
    path: str
    """A .jsonl, .json or .parquet file, a folder of such files, a dataset saved by `datasets`, or hub:owner/name. In a
    folder, files whose names state another split are skipped."""
    name: str = ""
    """The name in records and reports. Defaults to `kind`."""
    split: str = ""
    """The split of the data, which must be `train`. If empty, it is read from the file name."""
    allow_other_splits: bool = False
    """Accept other splits, for trials only: never train on the resulting set. Its card carries a warning."""
    hub_config: str = ""
    """Configuration name of a hub dataset."""
    map: dict[str, str] = {}
    """For tables: column names by field (question, context, answers, id, evidence, document)."""
    answers_are: Kind = "extractive"
    """For tables: how answers are compared."""
    answer_in_context: bool = False
    """Reject records whose gold answer does not occur in the context."""
    texts: str = ""
    """Folder of the text files that rows refer to: TriviaQA's evidence, NarrativeQA's stories."""
    task: str = ""
    """The benchmark task that poses the question: its instruction precedes the question, exactly as in evaluation.
    Defaults to the task of a known source; `none` gives the bare question, which is the default of a table."""
    order: Literal["file", "random"] = "file"
    """`random` reads the rows in an order that depends on `seed`, so that `limit` and `target` draw a random sample. The
    rows are spooled to a temporary file first."""
    limit: int | None = Field(None, ge=1)
    """Maximum number of samples that are read."""
    include: bool = True
    """False counts the source's records in the statistics and writes none of them."""
    target: int | None = Field(None, ge=1)
    """Number of records to keep. Once there are that many, the rest of the source is neither read nor judged."""

    @property
    def label(self) -> str:
        return self.name or self.kind


class GuardSpec(Record):
    """The leakage guard, which rejects records that overlap a benchmark."""

    benchmark: str = ""
    """A folder of LongBench JSONL files, or an index from `seer-data guard`. If empty, there is no guard, and the card
    carries a warning."""
    max_question_overlap: float = Field(0.8, ge=0, le=1)
    """Largest allowed fraction of a question's n-grams that occur in the benchmark's questions."""
    max_context_overlap: float = Field(0.5, ge=0, le=1)
    """Largest allowed fraction of a context's n-grams that occur in the benchmark's contexts. Some overlap is legitimate:
    unrelated questions share Wikipedia passages."""


class JudgeSpec(Record):
    """Phase 1: finds the pages that the answer needs."""

    kind: Literal["gold", "answer", "teacher"] = "gold"
    """`gold` uses the source's evidence, `answer` the pages that contain an answer, `teacher` a model for each page."""
    teacher: TeacherSpec | None = None
    reasks: int = Field(2, ge=0)
    """Number of retries after an unclear reply before the record is rejected."""
    max_relevant_pages: int = Field(0, ge=0)
    """Reject records with more necessary pages. 0: no limit."""
    keep_unanswerable: bool = True
    """Keep records that the document does not answer, with an empty selection. The paper keeps a record only if at least
    one page is necessary."""

    @model_validator(mode="after")
    def _teacher_is_named(self) -> JudgeSpec:
        if self.kind == "teacher" and self.teacher is None:
            raise ValueError("judge.kind is 'teacher': describe the teacher in [judge.teacher]")
        return self


class ReasonSpec(Record):
    """Phase 2: writes the reasoning between the retrieved text and the answer."""

    kind: Literal["template", "teacher"] = "template"
    """`template` quotes the evidence and needs no model; `teacher` uses a model that never sees the gold answer."""
    teacher: TeacherSpec | None = None
    samples: int = Field(1, ge=1)
    """Maximum number of replies drawn for a record until one is correct."""
    target: Literal["teacher", "gold"] = "teacher"
    """The answer that the model learns: the teacher's own, which its reasoning leads to, or the gold answer that it
    equals."""
    correct_by: Literal["answer_type", "official"] = "answer_type"
    """What decides whether an answer is correct: rules for its type, or the official metric of the source's task."""
    hop_thoughts: bool = True
    """For records with several rounds (`assemble.multi_round_share`): let the teacher write a thought after each round but
    the last, from the pages retrieved so far alone. A record without usable thoughts has one round."""
    use_answer_judge: bool = False
    """Let the teacher decide whether an answer in other words has the same meaning."""
    min_rouge_l: float = Field(0.3, ge=0, le=1)
    """Minimum ROUGE-L F1 of a correct summary, computed as LongBench does."""
    min_token_f1: float = Field(0.6, ge=0, le=1)
    """Minimum token F1 of a correct free answer."""

    @model_validator(mode="after")
    def _teacher_is_named(self) -> ReasonSpec:
        if self.kind == "teacher" and self.teacher is None:
            raise ValueError("reason.kind is 'teacher': describe the teacher in [reason.teacher]")
        return self


class AssembleSpec(Record):
    """How samples become conversations."""

    forms: tuple[Literal["select", "iso_control", "without_retrieve"], ...] = ("select",)
    """`select` is the full protocol, `iso_control` has neither call nor observation, `without_retrieve` has an observation
    without text."""
    multi_round_share: float = Field(0.0, ge=0, le=1)
    """Fraction of the records with several relevant pages that retrieve them hop by hop, in several calls."""
    distributed_pages: int = Field(4, ge=2)
    """Minimum number of necessary pages of distributed evidence."""
    distributed_share: float = Field(0.0, ge=0, lt=1)
    """Maximum fraction of the written records in which the template replaces the reasoning of a teacher that failed on
    distributed evidence. The template quotes the gold evidence."""


class VariantSpec(Record):
    """Augmentation: additional samples derived from the loaded ones."""

    shuffle_share: float = Field(0.0, ge=0, le=1)
    """Fraction of samples that get a copy with reordered passages."""
    hard_negatives: int = Field(0, ge=0, le=64)
    """Passages of other documents that resemble the question, added to each sample of several passages."""
    unanswerable_share: float = Field(0.0, ge=0, le=1)
    """Fraction of samples whose question gets a copy over a document that does not answer it."""


class BudgetSpec(Record):
    """Limits on teacher calls; 0 means no limit."""

    max_calls: int = Field(0, ge=0)
    max_tokens: int = Field(0, ge=0)
    max_usd: float = Field(0.0, ge=0)
    then: Literal["stop", "finish"] = "stop"
    """`stop` ends without a set; run the build again with a larger budget. `finish` writes the complete records and
    rejects the others with the reason `judge_budget` or `budget`."""


class ServerSpec(Record):
    """How `seer-data serve-teachers` starts the server of a teacher. A build does not depend on it."""

    gpus: str = ""
    """The GPUs that the server sees, e.g. `0` or `0,1`. If empty, it sees all."""
    context_tokens: int = Field(0, ge=0)
    """Context length. A longer request is refused, and its record rejected. 0: the model's own."""
    args: tuple[str, ...] = ()
    """Further arguments of `vllm serve`."""


class ServeSpec(Record):
    """The servers of the two teachers."""

    judge: ServerSpec = ServerSpec()
    reason: ServerSpec = ServerSpec()


class BuildConfig(Record):
    """The complete configuration of a build."""

    out: str
    """Output folder."""
    sources: tuple[SourceSpec, ...] = Field(min_length=1)
    seed: int = 0
    style: str = "seer"
    """Name of the page style."""
    max_pages: int = Field(64, ge=1)
    max_tokens: int = Field(0, ge=0)
    """Longest trajectory that training accepts, in tokens. A longer one is rejected as early as its length is known, before
    the next teacher call. 0: no limit."""
    tokenizer: str = ""
    """The checkpoint folder whose tokenizer counts `max_tokens`. If empty, a production tokenizer (tekken) counts."""
    validation_share: float = Field(0.0, ge=0, lt=1)
    """Fraction of documents in the validation split. All questions of a document fall into the same split."""
    embed_pages: bool = False
    """Store pages as PNG. By default they are drawn from the text when a set is read."""
    rows_per_shard: int = Field(10_000, ge=1)
    max_record_mb: float = Field(32.0, gt=0)
    """Skip longer lines of JSON Lines files without loading them. Other formats have no limit."""
    max_fault_share: float = Field(0.2, ge=0, le=1)
    """Largest allowed fraction of faulty records. From the 50th record on, a larger one stops the build."""
    count_tokens_of: int = Field(500, ge=0)
    """Number of written records in the token histograms, counted from the first; counting takes time."""
    guard: GuardSpec = GuardSpec()
    variants: VariantSpec = VariantSpec()
    judge: JudgeSpec = JudgeSpec()
    reason: ReasonSpec = ReasonSpec()
    assemble: AssembleSpec = AssembleSpec()
    budget: BudgetSpec = BudgetSpec()
    serve: ServeSpec = ServeSpec()

    @model_validator(mode="after")
    def _labels_differ(self) -> BuildConfig:
        labels = [source.label for source in self.sources]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"two sources are named '{label}': set a different `name` for each")
        return self


def pilot_of(config: BuildConfig, num_samples: int) -> BuildConfig:
    """Return the configuration of a pilot that reads `num_samples` samples, divided among the sources like their targets.

    A source without a target counts as much as the mean of the targets. Raises ConfigError if there are fewer samples than
    sources.
    """
    sources = config.sources
    if num_samples < len(sources):
        raise ConfigError(f"--limit {num_samples}: must be at least {len(sources)}, one sample for each source")
    targets = [source.target for source in sources if source.target is not None]
    mean = sum(targets) / len(targets) if targets else 1.0
    weights = [mean if source.target is None else float(source.target) for source in sources]
    # Every source gets one sample. The rest is divided in proportion to the targets, by the largest-remainder method.
    exact = [(num_samples - len(sources)) * weight / sum(weights) for weight in weights]
    limits = [1 + int(part) for part in exact]
    by_remainder = sorted(range(len(sources)), key=lambda index: (int(exact[index]) - exact[index], index))
    for index in by_remainder[: num_samples - sum(limits)]:
        limits[index] += 1
    limited = [
        source.model_copy(update={"limit": limit if source.limit is None else min(source.limit, limit)})
        for source, limit in zip(sources, limits, strict=True)
    ]
    return config.model_copy(update={"sources": tuple(limited)})
