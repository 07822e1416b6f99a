"""Answers: what a system returns for a question, with its citations, token counts and trace."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, JsonValue, model_validator

from seer.errors import EngineError, ProtocolError, SeerError
from seer.schema.base import Record
from seer.schema.conversations import Excerpt
from seer.schema.documents import Region


class Status(StrEnum):
    """The outcome of one question."""

    ANSWERED = "answered"
    NOT_ANSWERABLE = "not_answerable"
    FAILED = "failed"


class Citation(Record):
    """A place in the document that supports the answer."""

    page: int
    """The page that the quote starts on."""
    label: str | None = None
    start: int
    end: int
    quote: str
    verified: bool
    """True if the quote was found in the retrieved text at [start, end)."""
    regions: tuple[Region, ...] = ()
    """Where the quote is on its pages, one region for each page; empty if it is not verified."""


class Usage(Record):
    """Tokens. `prompt` counts the prompt of the last stage: text, vision and retrieved tokens together."""

    vision: int = 0
    retrieved: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    """Prompt tokens that a key-value cache supplied."""
    full_text: int = 0
    """Length of the prompt that holds the whole document as text."""

    @property
    def compression(self) -> float:
        """Full-text prompt over actual prompt; above 1 means saved."""
        return self.full_text / self.prompt if self.prompt else 0.0


class StepUsage(Record):
    """Tokens that the model calls of one step took; all zero for a step without one."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    """Prompt tokens that a key-value cache supplied."""


class Step(Record):
    """One step of a trace: what a system did, with what, and what it cost.

    Every system names its own steps. Code that shows traces also shows steps with unknown names. Seer writes these:

    | name     | inputs                                      | outputs                                | pages    |
    |----------|---------------------------------------------|----------------------------------------|----------|
    | look     | `question`; `text`, if no pages are shown   |                                        | shown    |
    | select   | `allowed`: pages that the model may select  | `raw`; `added`: pages a selector added | selected |
    | retrieve |                                             | `excerpts`, or `text` (the paper's A.4) | retrieved |
    | reason   |                                             | `text`, `raw`                          |          |
    | answer   |                                             | `text`, `raw`                          |          |

    Three outputs have a fixed form in every system's steps: `text`, the result in words; `raw`, the model's unparsed
    output; `excerpts`, a list of `Excerpt` records.
    """

    name: str = Field(min_length=1, max_length=100)
    inputs: dict[str, JsonValue] = {}
    outputs: dict[str, JsonValue] = {}
    pages: tuple[int, ...] = ()
    """Numbers of the pages that the step concerns."""
    regions: tuple[Region, ...] = ()
    """Spans of source text that the step found, read or returned."""
    usage: StepUsage = StepUsage()
    seconds: float = 0.0
    finish: str = ""
    """How the step's model call ended, e.g. "stop" or "length"; empty for a step without one."""
    deviations: tuple[str, ...] = ()
    """Names of the rules of the protocol that the model's output breaks."""

    @model_validator(mode="before")
    @classmethod
    def _reject_former_steps(cls, data: Any) -> Any:
        if isinstance(data, dict) and "turn" in data:
            raise ValueError("this step holds a 'turn', as an older version of Seer wrote it; predict again")
        return data

    @model_validator(mode="after")
    def _outputs_have_their_form(self) -> Step:
        for name in ("text", "raw"):
            value = self.outputs.get(name, "")
            if not isinstance(value, str):
                raise ValueError(f"output '{name}' of step '{self.name}' is {value!r}: must be a string")
        excerpts = self.outputs.get("excerpts", [])
        if not isinstance(excerpts, list):
            raise ValueError(f"output 'excerpts' of step '{self.name}' is {excerpts!r}: must be a list of excerpts")
        for excerpt in excerpts:
            Excerpt.model_validate(excerpt)
        return self

    @property
    def text(self) -> str:
        """The step's result in words: its output `text`, empty if there is none."""
        return str(self.outputs.get("text", ""))

    @property
    def excerpts(self) -> tuple[Excerpt, ...]:
        """The exact source text that the step returned: its output `excerpts`, empty if there is none."""
        excerpts = self.outputs.get("excerpts", [])
        assert isinstance(excerpts, list)
        return tuple(map(Excerpt.model_validate, excerpts))


class Failure(Record):
    """The cause of a failed reading, for the code that handles it: a retry policy, a server, a report."""

    kind: Literal["engine", "busy", "unavailable", "timeout", "too_long", "refused", "protocol", "input"]
    """The class of the error, see `seer.errors`."""
    public: str
    """The message for clients of a server: without addresses and internals."""
    retryable: bool = False
    retry_after_s: float = Field(0.0, ge=0)
    """Seconds that the engine asks to wait before another attempt; 0 if it names none."""

    @classmethod
    def of(cls, error: SeerError) -> Failure:
        """The record of an error."""
        if isinstance(error, EngineError):
            return cls(
                kind=error.kind, public=error.public, retryable=error.retryable, retry_after_s=error.retry_after_s
            )
        return cls(kind="protocol" if isinstance(error, ProtocolError) else "input", public=str(error))


class Answer(Record):
    """What a system returns for one question, failures included."""

    text: str
    status: Status
    cause: str = ""
    """The reason, if the status is `failed`."""
    failure: Failure | None = None
    """The error behind a `failed` status, if one was raised; None if the model merely gave no answer."""
    selected_pages: tuple[int, ...] = ()
    citations: tuple[Citation, ...] = ()
    usage: Usage = Usage()
    trace: tuple[Step, ...] = ()
    seconds: float = 0.0


class Prediction(Record):
    """The answer to one input of an evaluation; every input has one, failures included."""

    id: str
    task: str
    pred: str
    answers: tuple[str, ...]
    all_classes: tuple[str, ...] | None = None
    length: int | None = None
    status: Status
    cause: str = ""
    failure: Failure | None = None
    """The error behind a `failed` status, as in `Answer`; None in runs that older versions recorded."""
    pages: int = 0
    selected_pages: tuple[int, ...] = ()
    usage: Usage = Usage()
    seconds: float = 0.0
    system: str = "seer"
    trace: tuple[Step, ...] = ()
