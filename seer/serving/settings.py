"""The settings of a server, fixed at its start, and the options of one chat."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from seer.errors import InputError
from seer.schema import Record
from seer.systems.build import READING_SYSTEMS, ReadingSystemName, check_system, system_of_mode

KEYS_VARIABLE = "SEER_SERVER_KEYS"


class ServeSettings(Record):
    """The limits of a server and the defaults of its chats."""

    model_name: str = "seer"
    """The name of the model in requests."""
    style: str = "seer"
    max_body_mb: float = Field(64.0, gt=0)
    max_pages: int = Field(512, ge=1)
    max_question_chars: int = Field(8_000, ge=16)
    min_document_chars: int = Field(1_500, ge=1)
    """A text of at least this length is a document; a shorter one belongs to the question."""
    talks: bool = True
    """Answer a chat without a document, such as a request for a title, by the model alone. False refuses it."""
    allow_origins: tuple[str, ...] = ()
    """Web pages that may call this server from a browser: their origins, such as http://localhost:3000, or "*" for all."""
    max_new_tokens: int = Field(4_096, ge=1)
    max_concurrent: int = Field(64, ge=1)
    max_waiting: int = Field(128, ge=0)
    timeout_s: float = Field(600.0, gt=0)
    """Seconds for one chat, from rendering to the answer."""
    drain_s: int = Field(60, ge=0)
    """How long a shutdown waits for running requests."""
    max_stored_mb: float = Field(1_024.0, gt=0)
    """Limit of all uploaded files together."""
    file_ttl_s: float = Field(24 * 3600.0, gt=0)


ServedSelector = Literal["model", "bm25", "first", "all", "passages"]
"""Selectors that a server offers. The others need gold pages or models that it does not load."""


class ChatOptions(Record):
    """The `seer` field of a chat: how its documents are read. Omitted fields take the server's settings."""

    style: str | None = None
    system: ReadingSystemName | None = None
    """How the documents are read: seer, seer-k0, visual, text or auto."""
    rounds: int | None = Field(None, ge=1, le=8)
    max_pages: int | None = Field(None, ge=1)
    max_retrieved_tokens: int | None = Field(None, ge=1)
    retrieve: Literal["pages", "passages"] | None = None
    """Text of whole pages, or only the passages that match the question."""
    selector: ServedSelector | None = None
    """How pages are selected."""
    encoding: str | None = None
    """Character encoding of text and HTML files, e.g. windows-1252."""
    pages: str | None = None
    """Only these pages of the documents, e.g. 10-40."""
    reflow: bool = False
    ocr: Literal["auto", "always", "never"] = "auto"

    @model_validator(mode="before")
    @classmethod
    def _refuse_mode(cls, values: Any) -> Any:
        if isinstance(values, dict) and "mode" in values:
            raise ValueError(f"'mode' was replaced; use 'system': {system_of_mode(str(values['mode'])[:20])!r}")
        return values


def check_served(system: str, selector: str) -> None:
    """Check the system and the selector that a server uses where a chat names none.

    Raises InputError if one is unknown, if they do not go together, or if a server does not offer the selector.
    """
    check_system(system, selector)
    if system not in READING_SYSTEMS:
        raise InputError(
            f"--system {system}: a server offers {', '.join(READING_SYSTEMS)}; use seer ask for the others"
        )
    offered = get_args(ServedSelector)
    if selector not in offered:
        raise InputError(f"--selector {selector}: a server offers {', '.join(offered)}")


def read_keys(path: Path | None = None) -> tuple[str, ...]:
    """API keys from a file (one per line) or the environment (comma-separated); empty if every request is accepted.

    Raises InputError if the file cannot be read or holds no key, or if a key is weak.
    """
    if path is None:
        keys = os.environ.get(KEYS_VARIABLE, "").split(",")
    else:
        try:
            keys = path.read_text(encoding="utf-8-sig").splitlines()  # Some editors write a byte order mark.
        except UnicodeDecodeError:
            raise InputError(f"the key file '{path}' is not text; write one key per line, in ASCII") from None
        except OSError as error:
            raise InputError(
                f"the key file '{path}' cannot be read: {error.strerror}; write one key per line"
            ) from None
    found = tuple(key.strip() for key in keys if key.strip())
    if path is not None and not found:
        raise InputError(f"the key file '{path}' holds no key; write one per line")
    if any(len(key) < 16 or not key.isascii() for key in found):
        raise InputError("an API key has fewer than 16 characters, or some beyond ASCII; use long random ones")
    return found
