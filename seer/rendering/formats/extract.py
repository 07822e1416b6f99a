"""What a reader of a format returns: the text of a file, and notices about what the text could not keep."""

from __future__ import annotations

from dataclasses import dataclass

_MAX_CAUSE = 120


@dataclass(frozen=True)
class Notice:
    """A remark about one place of the text. It becomes a `DocumentWarning` of the page that holds the place."""

    kind: str
    """The kind of the warning, such as "formula"."""
    message: str
    """One sentence that names the thing; it may quote the document."""
    offset: int | None = None
    """The place in the text, in characters; None for the whole document."""


@dataclass(frozen=True)
class Extract:
    """The text of a file in reading order, and what it could not keep."""

    text: str
    notices: tuple[Notice, ...] = ()


def cause_of(error: Exception) -> str:
    """Return the message of a library's error as a part of one line; such messages may quote the damaged file at length."""
    message = " ".join(str(error).split())
    return message if len(message) <= _MAX_CAUSE else message[:_MAX_CAUSE] + "…"
