"""The errors Seer raises on purpose.

Each is also a standard error, so that callers may catch either. Each message names the value that arrived, the rule it
broke and the remedy. The command line prints the message and exits with `exit_code`.
"""

from __future__ import annotations

from typing import Literal


class SeerError(Exception):
    """Base class of every error that Seer raises on purpose."""

    exit_code = 2


class InputError(SeerError, ValueError):
    """A document, a question or an argument that cannot be used."""


class DocumentNotFound(InputError, FileNotFoundError):
    """A path without a file."""


class GlyphError(InputError):
    """A character that no font covers, raised only with `strict_glyphs`."""


class ConfigError(SeerError, ValueError):
    """A configuration with an unknown key, a wrong type or a value out of range."""


class ModelError(SeerError, ValueError):
    """A checkpoint folder that lacks a file, a token or a setting that Seer needs."""


class ProtocolError(SeerError, ValueError):
    """Model output that does not follow the protocol, e.g. a malformed select call."""


class EngineError(SeerError, RuntimeError):
    """An engine that failed while generating.

    `retryable`: another attempt may succeed. `retry_after_s`: the wait that the engine asks for, 0 if it names none.
    `public`: the message for clients of a server, without addresses and internals.
    """

    exit_code = 1
    kind: Literal["engine", "busy", "unavailable", "timeout", "too_long", "refused"] = "engine"
    public = "the model engine failed"

    def __init__(self, message: str, *, retryable: bool = False, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class PromptTooLong(EngineError):
    """A request larger than the engine accepts; another attempt cannot succeed."""

    kind = "too_long"
    public = "the documents and the question are longer than the model can read at once"


class RequestRefused(EngineError):
    """A request that the engine's server rejects because of its content; another attempt cannot succeed."""

    kind = "refused"
    public = "the model server refused the request"


class EngineBusy(EngineError):
    """Too many requests are running or waiting."""

    kind = "busy"
    public = "too many requests are running or waiting; try again later"

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message, retryable=True, retry_after_s=retry_after_s)


class EngineUnavailable(EngineError):
    """The engine's process or server is not reachable."""

    kind = "unavailable"
    public = "the model engine is not available; try again later"

    def __init__(self, message: str, *, retryable: bool = True, retry_after_s: float = 0.0) -> None:
        super().__init__(message, retryable=retryable, retry_after_s=retry_after_s)


class EngineTimeout(EngineError, TimeoutError):
    """The engine took longer than a request may take."""

    kind = "timeout"
    public = "the model engine did not answer in time"

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message, retryable=retryable)
