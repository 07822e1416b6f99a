"""A cache of replies: several runs over the same questions share many of their requests.

Two requests are equal if their token ids, images, constraint and sampling are equal. Sampling is seeded, so the engine
would return the same reply again. Only the time differs, so cached runs must not be used for timing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence

from seer.engines.base import BoundedEngine, Engine, Generation, Request
from seer.engines.prompts import encode_prompt
from seer.errors import SeerError


class RecallingEngine:
    """Wraps an engine that has an encoder."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.name, self.encoder = engine.name, engine.encoder
        self.constrains, self.max_positions = engine.constrains, engine.max_positions
        if isinstance(engine, BoundedEngine):  # then the wrapper is one as well
            self.max_picture_bytes, self.picture_bytes = engine.max_picture_bytes, engine.picture_bytes
        self._replies: dict[Hashable, Generation] = {}
        self.num_recalled = 0

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        keys = [self._key(request) for request in requests]
        new = [index for index, key in enumerate(keys) if key not in self._replies]
        self.num_recalled += len(requests) - len(new)
        fresh = dict(zip(new, self.engine.generate([requests[index] for index in new]), strict=True)) if new else {}
        self._replies |= {keys[index]: one for index, one in fresh.items() if one.finish != "error"}
        return [fresh[index] if index in fresh else self._replies[key] for index, key in enumerate(keys)]

    def forget(self, session: str) -> None:
        self.engine.forget(session)

    def _key(self, request: Request) -> Hashable:
        """Everything that decides the reply. A request that cannot be encoded, or is streamed, equals no other."""
        if self.encoder is None or request.on_text or request.on_control:
            return object()
        try:
            prompt = encode_prompt(self.encoder, request.prompt)
        except SeerError:
            return object()
        pictures = tuple(image.content_hash for image in prompt.images)
        digest = hashlib.sha256(prompt.encoded.ids.tobytes()).digest()
        return digest, pictures, request.constraint, request.sampling, request.n
