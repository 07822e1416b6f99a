"""Answers: what a system returns for a question, with its citations, token counts and trace."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from seer.errors import EngineError, ProtocolError, SeerError
from seer.schema.base import Record
from seer.schema.conversations import Turn
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


class Step(Record):
    """One turn of the trace: what was said, and what it cost."""

    turn: Turn
    raw: str = ""
    """The model's own output, unparsed; empty for turns that the model did not write."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    finish: str = ""
    deviations: tuple[str, ...] = ()
    """How the output departed from the protocol, by name."""


class Failure(Record):
    """The cause of a failed reading, for whoever must act on it: a retry policy, a server, a report."""

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
    pages: int = 0
    selected_pages: tuple[int, ...] = ()
    usage: Usage = Usage()
    seconds: float = 0.0
    system: str = "seer"
    trace: tuple[Step, ...] = ()
