"""The contract of a system: questions over documents in, one answer for each out, failures included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from seer.schema import Answer, Document, NewlineMode


@dataclass(frozen=True)
class Task:
    """One question over one text, or over a document that has its own pages."""

    id: str
    context: str
    """Laid out in the system's page style; empty if `document` is given."""
    question: str
    max_new_tokens: int | None = None
    gold_pages: tuple[int, ...] = ()
    """For the oracle selector and for scoring; never shown to a model."""
    query: str = ""
    """The bare question for lexical selectors, if `question` also holds instructions."""
    selector_pages: int | None = None
    """Page budget of selectors other than the model, matched per example as in the paper's A.9."""
    newline: NewlineMode | None = None
    """How the pages of `context` show newlines, if the page style leaves that open as `paper` does."""
    chat: bool = True
    """False: where the whole text is read, the model continues it outside the chat template."""
    retrieve: Literal["pages", "passages"] = "passages"
    """What the reading policy `retrieve="task"` retrieves for this task."""
    prompt: str = ""
    """The whole prompt with the document in its place, for `seer.systems.prompted`."""
    document: Document | None = None
    """Read in place of `context`, e.g. a PDF."""


class System(Protocol):
    """A way to answer questions over documents. `name` identifies it in run manifests."""

    name: str

    def answer_batch(self, tasks: Sequence[Task]) -> list[Answer]:
        """Return one answer for every task, in order. A task that fails gets an answer of status failed."""
        ...
