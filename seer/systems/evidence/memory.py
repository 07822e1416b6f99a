"""What a system keeps about a document between questions: JSON values by content, in memory and, if wanted, on disk.

    memory = DocumentMemory("~/.cache/seer/records")
    value = await memory.get_or_make(key_of("record.v1", "glyph", page.content_hash), make)

Several questions that need the same value at the same time make it once.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from seer.storage import write_json

MAX_KEPT = 20_000
"""Values kept in memory; the oldest are dropped first."""


def key_of(*parts: object) -> str:
    """Return the key of a value that depends on `parts`: 64 hex digits."""
    return hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()


class DocumentMemory:
    """Values by key. A file that cannot be read counts as missing and is written again."""

    def __init__(self, folder: str | Path | None = None) -> None:
        """folder: keeps the values across processes; None keeps them in this process."""
        self.folder = None if folder is None else Path(folder).expanduser()
        self._values: dict[str, Any] = {}
        self._making: dict[str, asyncio.Future[Any]] = {}

    async def get_or_make(self, key: str, make: Callable[[], Awaitable[Any]]) -> Any:
        """Return the value of a key; `make` returns it if it is not known. Raises what `make` raises, and keeps nothing then."""
        while True:
            if (value := self._find(key)) is not None:
                return value
            if (running := self._making.get(key)) is None:
                break
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # If its maker was cancelled and not this task, make it here.
                if not running.cancelled():
                    raise
        future = self._making[key] = asyncio.get_running_loop().create_future()
        try:
            value = await make()
        except BaseException as error:
            if isinstance(error, Exception):
                future.set_exception(error)
                future.exception()  # nobody may be waiting
            else:
                future.cancel()
            raise
        else:
            self._keep(key, value)
            future.set_result(value)
            return value
        finally:
            del self._making[key]

    def _find(self, key: str) -> Any:
        if key in self._values:
            return self._values[key]
        if self.folder is None:
            return None
        try:
            value = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        self._values[key] = value
        return value

    def _keep(self, key: str, value: Any) -> None:
        self._values[key] = value
        while len(self._values) > MAX_KEPT:
            del self._values[next(iter(self._values))]
        if self.folder is not None:
            path = self._path(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, value, indent=None)

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / f"{key}.json"
