"""Conversations: turns, the text they carry, and trajectories to train on."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from seer.schema.base import Record
from seer.schema.documents import PageStyle


class LossClass(StrEnum):
    """The role of a token in the loss. The paper's classes, with separate classes for format tags and the stop token."""

    PROMPT = "prompt"
    """Given to the model: role markers, pages, question."""
    CALL = "call"
    """Inside the tool call: the words that name the tool and the selected pages."""
    STRUCTURE = "structure"
    """The format tags that the model writes: <tool_call>, </tool_call>, <think>, </think>."""
    OBSERVATION = "observation"
    """Given to the model after its call: the retrieved text."""
    THINK = "think"
    ANSWER = "answer"
    STOP = "stop"
    """The role marker that ends the model's turn."""


class Excerpt(Record):
    """Exact source text of a page, or of some of its lines, given to the model as text."""

    page: int = Field(ge=0)
    """1-based; 0 means the whole document."""
    start: int = Field(ge=0)
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Turn(Record):
    """One step of a conversation.

    | kind        | role       | contents                                                           |
    |-------------|------------|--------------------------------------------------------------------|
    | prompt      | user       | `pages` shown as images, `excerpts` shown as text, `text`: question |
    | call        | model      | `pages`: the selection                                             |
    | observation | tool       | `excerpts`, or `text` instead of them (the paper's A.4)            |
    | think       | model      | `text`                                                             |
    | answer      | model      | `text`; the turn ends with the stop token                          |
    """

    kind: Literal["prompt", "call", "observation", "think", "answer"]
    text: str = ""
    pages: tuple[int, ...] = ()
    excerpts: tuple[Excerpt, ...] = ()
    chat: bool = True
    """False for a prompt without images: the model continues the bare text, outside any chat template."""


class Trajectory(Record):
    """A whole conversation to train on. The encoder reads `turns`; the other fields record where they come from."""

    id: str
    source: str
    """The document's text, from which `style` draws the pages."""
    style: PageStyle
    turns: tuple[Turn, ...]
    relevant_pages: tuple[int, ...] = ()
    answers: tuple[str, ...] = ()
    provenance: dict[str, str] = {}

    @property
    def question(self) -> str:
        return self.turns[0].text
