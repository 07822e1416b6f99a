"""The parameters that a model at an address accepts, learned from its refusals.

Servers differ in the names and the ranges of sampling parameters: some want `max_completion_tokens`, some know no `seed`, some
take one temperature only. A refusal that names such a parameter changes the dialect of the address; the request is then sent
again, and later requests are sent in the new form at once.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any

_LOG = logging.getLogger("seer.engines.openai")
_OPTIONAL = (
    *("top_p", "top_k", "seed", "temperature", "repetition_penalty", "stream_options", "n"),
    *("logit_bias", "stop_token_ids", "return_token_ids", "skip_special_tokens"),
)
"""Parameters that may be left out. Claude takes temperature or top_p, so top_p comes first."""
_LIMIT = re.compile(r"(?:at most|maximum (?:allowed )?(?:value )?(?:is|of)|less than or equal to|<=)\s*:?\s*(\d[\d,]*)")
_TOKENS = "max_tokens"
_COMPLETION_TOKENS = "max_completion_tokens"


class Dialect:
    """What one model at one address accepts. Empty until the server refuses a parameter."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        """Parameters that the server does not accept."""
        self.token_name = _TOKENS
        self.token_limit: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether requests are sent as they are."""
        return not self.left_out and self.token_name == _TOKENS and self.token_limit is None

    def apply(self, body: Mapping[str, Any] | bytes) -> Mapping[str, Any] | bytes:
        """Return a body in this dialect; bytes are the JSON of one."""
        if self.is_plain:
            return body
        return self._translated(json.loads(body) if isinstance(body, bytes) else body)

    def _translated(self, body: Mapping[str, Any]) -> dict[str, Any]:
        changed = {name: value for name, value in body.items() if name not in self.left_out}
        if _TOKENS in changed:
            tokens = changed.pop(_TOKENS)
            changed[self.token_name] = tokens if self.token_limit is None else min(tokens, self.token_limit)
        return changed

    def learn(self, refusal: str, body: Mapping[str, Any] | bytes) -> bool:
        """Change the dialect by a refusal of a body that was sent in it.

        Returns whether something was learned, so that another attempt may succeed. Each lesson is learned once, so attempts
        end.
        """
        sent = json.loads(body) if isinstance(body, bytes) else body
        lesson = self._token_lesson(refusal, sent) or self._optional_lesson(refusal, sent)
        if lesson:
            _LOG.warning("%s", lesson)
        return bool(lesson)

    def _token_lesson(self, refusal: str, sent: Mapping[str, Any]) -> str:
        if _TOKENS in sent and _COMPLETION_TOKENS in refusal:
            self.token_name = _COMPLETION_TOKENS
            return f"the server wants {_COMPLETION_TOKENS} in place of {_TOKENS}: it is sent so from now on"
        if (
            _COMPLETION_TOKENS in sent
            and _TOKENS in refusal.replace(_COMPLETION_TOKENS, "")
            and self.token_limit is None
        ):
            refusal = refusal.replace(_TOKENS, _COMPLETION_TOKENS)
        found = _LIMIT.search(refusal.lower())
        if self.token_name in sent and self.token_name in refusal and found and self.token_limit is None:
            limit = int(found[1].replace(",", ""))
            if 0 < limit < sent[self.token_name]:
                self.token_limit = limit
                return f"the server writes at most {limit:,} tokens: longer answers are cut there"
        return ""

    def _optional_lesson(self, refusal: str, sent: Mapping[str, Any]) -> str:
        for name in _OPTIONAL:
            # "n" is a word of many messages, so it counts only in quotation marks.
            pattern = rf"['\"`]{name}['\"`]" if len(name) == 1 else rf"(?<![a-z_]){name}(?![a-z_])"
            if name in sent and name not in self.left_out and re.search(pattern, refusal):
                self.left_out.append(name)
                return f"the server does not accept {name}={sent[name]!r:.60}: it is left out from now on"
        return ""
