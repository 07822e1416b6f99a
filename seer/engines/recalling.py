"""An engine that says again what it has said: runs over the same questions share many of their requests.

A request is the same where its ids, its pages' pictures, its constraint and its sampling are. Drawing is seeded, so the
engine would say the same again; only the time that it takes is not what it was, and such runs must not be timed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence

from seer.engines.base import BoundedEngine, Engine, Generation, Request
from seer.engines.prompts import encode_prompt
from seer.errors import SeerError


class RecallingEngine:
    """Stands in front of an engine with an encoder."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.name, self.encoder = engine.name, engine.encoder
        self.constrains, self.max_positions = engine.constrains, engine.max_positions
        if isinstance(engine, BoundedEngine):  # then this one is too
            self.max_picture_bytes, self.picture_bytes = engine.max_picture_bytes, engine.picture_bytes
        self._said: dict[Hashable, Generation] = {}
        self.num_recalled = 0

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        keys = [self._key(request) for request in requests]
        new = [index for index, key in enumerate(keys) if key not in self._said]
        self.num_recalled += len(requests) - len(new)
        said = dict(zip(new, self.engine.generate([requests[index] for index in new]), strict=True)) if new else {}
        self._said |= {keys[index]: one for index, one in said.items() if one.finish != "error"}
        return [said[index] if index in said else self._said[key] for index, key in enumerate(keys)]

    def forget(self, session: str) -> None:
        self.engine.forget(session)

    def _key(self, request: Request) -> Hashable:
        """What decides the reply. A request that cannot be encoded, or is streamed, is like no other."""
        if self.encoder is None or request.on_text or request.on_control:
            return object()
        try:
            prompt = encode_prompt(self.encoder, request.prompt)
        except SeerError:
            return object()
        pictures = tuple(image.content_hash for image in prompt.images)
        digest = hashlib.sha256(prompt.encoded.ids.tobytes()).digest()
        return digest, pictures, request.constraint, request.sampling, request.n
