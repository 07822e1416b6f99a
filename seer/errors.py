"""The errors Seer raises on purpose, and its warnings.

Each is also a standard error, so that callers may catch either, and each message says what arrived,
what was required and what to change. The command line prints the message and ends with `exit_code`.
"""

from __future__ import annotations


class SeerError(Exception):
    """Base of every error that Seer raises on purpose."""

    exit_code = 2


class InputError(SeerError, ValueError):
    """A document, a question or an argument that cannot be used."""


class DocumentNotFound(InputError, FileNotFoundError):
    """A path that leads to no file."""


class GlyphError(InputError):
    """A character that no font covers, where the caller asked for none (`strict_glyphs`)."""


class ConfigError(SeerError, ValueError):
    """A configuration with an unknown key, a wrong type or a value out of range."""


class ModelError(SeerError, ValueError):
    """A checkpoint folder that lacks a file, a token or a setting that Seer needs."""


class ProtocolError(SeerError, ValueError):
    """Model output that does not follow the protocol, e.g. a malformed select call."""


class EngineError(SeerError, RuntimeError):
    """An engine that failed while generating. `retryable` says whether trying again can help."""

    exit_code = 1

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class PromptTooLong(EngineError):
    """A request that takes more than the engine can, however often it is asked."""


class DocumentWarning(UserWarning):
    """A document that was read, but perhaps not as its owner expects."""
