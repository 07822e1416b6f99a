"""The configuration of a build: one TOML file, everything else at its default. `seer-data build CONFIG`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from data_pipeline.records import Kind
from seer.schema import Record
from seer.teaching.settings import TeacherSpec


class SourceSpec(Record):
    """One question set."""

    kind: str = "table"
    """A known source (`seer-data sources`), or `table`: any JSONL or Parquet with named columns."""
    path: str
    """A .jsonl, .json or .parquet file, a folder of them (files whose names say another split are left out), a dataset saved
    by `datasets`, or hub:owner/name."""
    name: str = ""
    """What records and reports call it; the kind, where empty."""
    split: str = ""
    """Which split this is. Must come to `train`; read from the file's name where empty."""
    allow_other_splits: bool = False
    """For trials only: what comes out must never be trained on, and its card says so."""
    hub_config: str = ""
    map: dict[str, str] = {}
    """For tables: question, context, answers, id, evidence, document → the column's name."""
    answers_are: Kind = "extractive"
    """For tables: how answers compare."""
    answer_in_context: bool = False
    """Refuse records whose gold answer does not stand in the context."""
    texts: str = ""
    """The folder with the texts that rows name by file: TriviaQA's evidence, NarrativeQA's stories."""
    limit: int | None = Field(None, ge=1)
    """At most this many samples."""

    @property
    def label(self) -> str:
        return self.name or self.kind


class GuardSpec(Record):
    """Refuses records that overlap a benchmark."""

    benchmark: str = ""
    """A folder of LongBench JSONL files, or an index from `seer-data guard`. Empty: no guard, and the card says so."""
    max_question_overlap: float = Field(0.8, ge=0, le=1)
    """Share of a question's n-grams that may stand in the benchmark's questions."""
    max_context_overlap: float = Field(0.5, ge=0, le=1)
    """Share of a context's n-grams that may stand in the benchmark's contexts. Wikipedia passages recur honestly."""


class JudgeSpec(Record):
    """Phase 1: which pages are necessary."""

    kind: Literal["gold", "answer", "teacher"] = "gold"
    """`gold`: the source's own evidence. `answer`: pages on which an answer stands. `teacher`: a model, per page."""
    teacher: TeacherSpec | None = None
    reasks: int = Field(2, ge=0)
    """How often an unclear reply is asked for again before the record is given up."""
    max_relevant_pages: int = Field(0, ge=0)
    """0: no limit."""

    @model_validator(mode="after")
    def _teacher_is_named(self) -> JudgeSpec:
        if self.kind == "teacher" and self.teacher is None:
            raise ValueError("judge.kind is 'teacher'; name one in [judge.teacher]")
        return self


class ReasonSpec(Record):
    """Phase 2: the reasoning between the retrieved text and the answer."""

    kind: Literal["template", "teacher"] = "template"
    """`template`: quotes the evidence, no model needed. `teacher`: a model that never sees the answer."""
    teacher: TeacherSpec | None = None
    samples: int = Field(1, ge=1)
    """Replies drawn for a record until one is right."""
    use_answer_judge: bool = False
    """Ask the teacher whether an answer that differs in words means the same."""
    min_rouge_l: float = Field(0.3, ge=0, le=1)
    """Summaries count as right from this ROUGE-L F1."""
    min_token_f1: float = Field(0.6, ge=0, le=1)
    """Free answers count as right from this token F1."""

    @model_validator(mode="after")
    def _teacher_is_named(self) -> ReasonSpec:
        if self.kind == "teacher" and self.teacher is None:
            raise ValueError("reason.kind is 'teacher'; name one in [reason.teacher]")
        return self


class AssembleSpec(Record):
    """How samples become conversations."""

    forms: tuple[Literal["select", "iso_control", "without_retrieve"], ...] = ("select",)
    """`select`: the whole protocol. `iso_control`: neither call nor observation. `without_retrieve`: no text."""
    multi_round_share: float = Field(0.0, ge=0, le=1)
    """Share of records with several relevant pages that fetch them hop by hop, in several calls."""
    distributed_pages: int = Field(4, ge=2)
    """Evidence counts as distributed from this many pages."""
    distributed_share: float = Field(0.0, ge=0, lt=1)
    """Keep at least this share of records with distributed evidence: where the teacher fails on them, the template
    tells them from gold evidence, up to this share of what was written before."""


class VariantSpec(Record):
    """Further samples made from those that were read."""

    shuffle_share: float = Field(0.0, ge=0, le=1)
    """Share of samples that also come with their passages in another order."""
    hard_negatives: int = Field(0, ge=0, le=64)
    """Passages of other documents, close to the question, put into each sample of several passages."""
    unanswerable_share: float = Field(0.0, ge=0, le=1)
    """Share of samples whose question also comes with another document, which does not answer it."""


class BudgetSpec(Record):
    """Where to stop spending. 0: no limit."""

    max_calls: int = Field(0, ge=0)
    max_tokens: int = Field(0, ge=0)
    max_usd: float = Field(0.0, ge=0)
    then: Literal["stop", "finish"] = "stop"
    """`stop`: end without a set; run again with more. `finish`: write what is complete, reject the rest as `budget`."""


class BuildConfig(Record):
    """A build."""

    out: str
    """The folder that receives the set."""
    sources: tuple[SourceSpec, ...] = Field(min_length=1)
    seed: int = 0
    style: str = "seer"
    """The page style, by name."""
    max_pages: int = Field(64, ge=1)
    validation_share: float = Field(0.0, ge=0, lt=1)
    """Share of documents set apart. Every question of a document falls on the same side."""
    embed_pages: bool = False
    """Store pages as PNG; else they are drawn from the text when read."""
    rows_per_shard: int = Field(10_000, ge=1)
    max_record_mb: float = Field(32.0, gt=0)
    """Of JSON lines, longer ones are skipped without being held. Other files are parsed as they come."""
    max_fault_share: float = Field(0.2, ge=0, le=1)
    """More faults than this share of the records stop the build, from the 50th record on."""
    count_tokens_of: int = Field(500, ge=0)
    """How many written records the token histograms count, from the first on; counting takes time."""
    guard: GuardSpec = GuardSpec()
    variants: VariantSpec = VariantSpec()
    judge: JudgeSpec = JudgeSpec()
    reason: ReasonSpec = ReasonSpec()
    assemble: AssembleSpec = AssembleSpec()
    budget: BudgetSpec = BudgetSpec()

    @model_validator(mode="after")
    def _labels_differ(self) -> BuildConfig:
        labels = [source.label for source in self.sources]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"two sources are called '{label}'; give each its own name")
        return self
