"""The errors of an OpenAI-compatible server, as Seer's error classes. Values in, values out.

Statuses                      Error                                      Another attempt
408, 504, 522, 524            EngineTimeout                              yes
429                           EngineBusy                                 yes
502, 503, 520, 521, 523, 529  EngineUnavailable                          yes
409, 425, other 5xx           EngineError                                yes
3xx, 401, 402, 403, 404, 405  EngineUnavailable: wrong key or address    no
413, 400 with a context error PromptTooLong                              no
other 4xx                     RequestRefused                             no
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from seer.errors import EngineBusy, EngineError, EngineTimeout, EngineUnavailable, PromptTooLong, RequestRefused

MAX_RETRY_AFTER_S = 60.0
_TIMED_OUT = frozenset({408, 504, 522, 524})
_UNAVAILABLE = frozenset({502, 503, 520, 521, 523, 529})
_UNUSABLE = frozenset({401, 402, 403, 404, 405})
_CONFLICT = frozenset({409, 425})
_TOO_LONG = re.compile(r"context_length_exceeded|maximum (?:context|model) length", re.IGNORECASE)
"""How the servers of OpenAI, vLLM and Seer report a prompt that is longer than the model's window."""
UNUSABLE_PUBLIC = "the model server cannot be used; its operator must check the key and the address"


def error_of_status(status: int, message: str, *, body: str = "", wait_s: float = 0.0) -> EngineError:
    """The error for a response with this status.

    Args:
        status: HTTP status, 300 or above.
        message: The message of the error, without secrets.
        body: The response's text, in which a context error is recognised.
        wait_s: The wait that the server requests before another attempt.
    """
    if status in _TIMED_OUT:
        error: EngineError = EngineTimeout(message)
        error.retry_after_s = wait_s
        return error
    if status == 429:
        return EngineBusy(message, retry_after_s=wait_s)
    if status in _UNAVAILABLE:
        return EngineUnavailable(message, retry_after_s=wait_s)
    if status in _CONFLICT or status >= 500:
        return EngineError(message, retryable=True, retry_after_s=wait_s)
    if status in _UNUSABLE or status < 400:
        return unusable(message)
    if status == 413:
        return PromptTooLong(f"{message}; use fewer pages, or set max_request_mb to the server's limit")
    if status == 400 and _TOO_LONG.search(body):
        return PromptTooLong(message)
    return RequestRefused(message)


def is_refusal(status: int) -> bool:
    """Whether a status rejects the request itself, whichever server answered."""
    others = _TIMED_OUT | _CONFLICT | _UNUSABLE | {429}
    return 400 <= status < 500 and status not in others


def unusable(message: str) -> EngineUnavailable:
    """The error for a wrong key or address, with which no request can succeed."""
    error = EngineUnavailable(message, retryable=False)
    error.public = UNUSABLE_PUBLIC
    return error


def retry_after(value: str | None) -> float:
    """Seconds of a Retry-After header, at most `MAX_RETRY_AFTER_S`; 0 for a missing header or a date."""
    try:
        seconds = float(value or 0)
    except ValueError:
        return 0.0
    # NaN differs from itself
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S) if seconds == seconds else 0.0


def describe_error(body: Any) -> str:
    """The message in an error body, in any of the shapes that servers use."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if isinstance(error, Mapping):
        error = error.get("message") or error.get("detail") or json.dumps(dict(error))
    return str(error)
