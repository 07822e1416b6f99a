"""Scripted models for the tests of evidence systems: replies by role, and the requests that asked for them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from seer.engines.base import Request
from seer.engines.scripted import ScriptedEngine
from seer.models.counting import tekken_encoder

Reply = Any
"""A JSON value, or a function of the request that returns one."""


class RoleScript:
    """A script that recognises the role of a call by words of its prompt and replies in turn."""

    def __init__(
        self, marks: Mapping[str, str], replies: Mapping[str, list[Reply] | Callable[[Request], Reply]]
    ) -> None:
        """marks: words of each role's prompt. replies: a role's replies, repeated in order, or a function."""
        self.marks, self.replies = marks, dict(replies)
        self.counts: Counter[str] = Counter()
        self.engine = ScriptedEngine(self, encoder=tekken_encoder())

    def role(self, request: Request) -> str:
        """Return the role of a call."""
        text = request.prompt.messages[-1].text  # type: ignore[union-attr]
        (name,) = [name for name, words in self.marks.items() if words in text]
        return name

    def __call__(self, request: Request) -> str:
        name = self.role(request)
        replies = self.replies[name]
        reply = replies(request) if callable(replies) else replies[self.counts[name] % len(replies)]
        self.counts[name] += 1
        return reply if isinstance(reply, str) else json.dumps(reply)

    def of(self, name: str) -> list[Request]:
        """Return the requests of a role."""
        return [request for request in self.engine.requests if self.role(request) == name]

    def text(self, name: str, number: int = 0) -> str:
        """Return the text of a role's prompt."""
        return str(self.of(name)[number].prompt.messages[-1].text)  # type: ignore[union-attr]

    def order(self) -> list[str]:
        """Return the roles of all requests in order."""
        return [self.role(request) for request in self.engine.requests]
