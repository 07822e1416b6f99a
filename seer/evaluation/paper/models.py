"""The file models.toml: the checkpoints, addresses, judge and foreign predictions of a reproduction.

    style = "paper"                        # page style of every run
    prompts = "dataset2prompt.json"        # the benchmark's prompts, for text models
    reference = "glm-4-9b"                 # the text model whose prompts are the full text of tables 2, 11 and 12

    [seer]
    model = "checkpoints/seer"             # a folder, or the model's name at base_url
    base_url = "http://127.0.0.1:8000/v1"
    [glyph]
    model = "checkpoints/glyph"
    [iso]
    model = "checkpoints/iso"

    [text.qwen3-8b]
    model = "qwen3-8b"
    base_url = "http://127.0.0.1:8001/v1"
    thinks = false
    extra_body = { chat_template_kwargs = { enable_thinking = false } }
    tokenizer = "tokenizers/qwen3/tokenizer.json"
    max_context_tokens = 31500

    [judge]                                # fields of a teacher
    model = "qwen3.5-9b"
    base_url = "http://127.0.0.1:8002/v1"

    [foreign.rlm]
    path = "predictions/rlm"               # <task>.jsonl with pred, answers, all_classes and length

Every part may be missing: the tables that need it are then marked as not run. Paths are relative to the working directory.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from seer.config import load_config
from seer.schema import PageStyle, Record
from seer.teaching.settings import TeacherSpec

THINKING_TOKENS = 8192
"""Tokens to think for every model that thinks: what Glyph's own scripts allow."""


class ServedModel(Record):
    """A model in a folder or at an address, and how requests are sent to it."""

    model: str | None = None
    """A checkpoint folder, or the model's name at `base_url`."""
    base_url: str | None = None
    engine: str | None = None
    """hf, vllm or scripted; an address needs none."""
    engine_args: dict[str, Any] = {}
    """Further arguments of the engine, as `--engine-arg` sets them."""
    batch_size: int = Field(8, ge=1)
    concurrency: int = Field(1, ge=1)
    usd_per_million_prompt_tokens: float = Field(0.0, ge=0)
    usd_per_million_completion_tokens: float = Field(0.0, ge=0)


class PageModel(ServedModel):
    """A GLM-4V-family model that reads pages: Seer, Glyph or the iso-training control."""

    reasoning_tokens: int = Field(THINKING_TOKENS, ge=0)
    """Tokens to think in addition to each task's own limit. Equal defaults keep the comparison fair."""
    policy: dict[str, Any] = {}
    """Changes to the reading policy in every run of this model, e.g. {rounds = 2}."""


class TextModel(ServedModel):
    """A chat model that reads the whole document as text in the benchmark's own prompt."""

    thinks: bool
    """Whether the model thinks before it answers. It has no default, because the token limit depends on it."""
    reasoning_tokens: int | None = Field(None, ge=0)
    """Tokens to think. Default: 8192 if the model thinks, else 0."""
    extra_body: dict[str, Any] = {}
    """Further keys of each request, e.g. {chat_template_kwargs = {enable_thinking = false}}."""
    tokenizer: str | None = None
    """A tokenizer.json or a folder with one, which counts tokens for `max_context_tokens`. Default: tekken."""
    max_context_tokens: int | None = Field(None, ge=2)
    """The middle of longer prompts is cut out, as the benchmark does."""

    @property
    def thinking_tokens(self) -> int:
        """Tokens to think in addition to each task's own limit."""
        if self.reasoning_tokens is not None:
            return self.reasoning_tokens
        return THINKING_TOKENS if self.thinks else 0


class JudgeModel(TeacherSpec):
    """The model that labels relevant pages. It may think, so it gets more tokens than a teacher's default."""

    max_tokens: int = Field(2048, ge=1)
    reasks: int = Field(2, ge=0)
    """Further requests after a reply that is neither YES nor NO."""

    @property
    def teacher(self) -> TeacherSpec:
        """The judge as a teacher."""
        return TeacherSpec.model_validate(self.model_dump(exclude={"reasks"}))


class ForeignRun(Record):
    """Predictions that another program made, in LongBench's form."""

    path: str


class PaperModels(Record):
    """The content of models.toml."""

    style: str | PageStyle = "paper"
    prompts: str | None = None
    """The benchmark's dataset2prompt file. Without it, text models get our own prompts."""
    seed: int = 0
    """Of the random selector, the bootstrap and the permutation tests."""
    reference: str | None = None
    """The text model whose prompts count as the full text of tables 2, 11 and 12."""
    build: str | None = None
    """The folder of a data build, whose stats.json fills tables 7 and 8."""
    labels: str | None = None
    """Page labels that exist (JSONL: id, pages). Without them, the judge makes them."""
    prefill_pages: tuple[int, ...] = (5, 10, 20, 45, 90, 180)
    """Lengths of the documents of table 14, in pages."""
    prefill_repetitions: int = Field(3, ge=1)
    """Distinct documents of each length."""
    seer: PageModel | None = None
    iso: PageModel | None = None
    glyph: PageModel | None = None
    text: dict[str, TextModel] = {}
    judge: JudgeModel | None = None
    foreign: dict[str, ForeignRun] = {}

    @field_validator("text", "foreign")
    @classmethod
    def _names_are_folder_names(cls, named: dict[str, Any]) -> dict[str, Any]:
        # Names become parts of folder names.
        for name in named:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
                raise ValueError(f"'{name}' can't be part of a folder's name; use letters, digits, '-', '_' and '.'")
        return named

    def served(self, key: str) -> ServedModel | None:
        """Return the model with the key `seer`, `iso`, `glyph` or `text.NAME`; None if the file has none."""
        group, _, name = key.partition(".")
        found = self.text.get(name) if group == "text" else getattr(self, group)
        assert found is None or isinstance(found, ServedModel)
        return found


def load_models(path: str | Path) -> PaperModels:
    """Read models.toml. Raises ConfigError for a missing or invalid file."""
    return load_config(PaperModels, path)
