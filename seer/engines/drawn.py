"""Images drawn once a session, for engines that must send an image again with every stage."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Picture = TypeVar("Picture")
MAX_BYTES = 2 << 30


class DrawnPages(Generic[Picture]):
    """Images by session. Beyond `max_bytes`, the images of the least recently used session are dropped."""

    def __init__(self, size: Callable[[Picture], int], max_bytes: int = MAX_BYTES) -> None:
        """`size`: returns the bytes that an image takes in memory."""
        self.max_bytes = max_bytes
        self._size = size
        self._kept: OrderedDict[str, dict[Hashable, Picture]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._kept.values()))

    def get(self, session: str, key: Hashable, draw: Callable[[], Picture]) -> Picture:
        """The image under `key`, drawn by `draw` if the session does not hold it."""
        with self._lock:
            pages = self._kept.setdefault(session, {})
            self._kept.move_to_end(session)
            if key in pages:
                return pages[key]
        picture = draw()  # outside the lock: drawing takes milliseconds
        with self._lock:
            pages = self._kept.setdefault(session, {})
            if key not in pages:
                pages[key] = picture
                self._bytes += self._size(picture)
            while self._bytes > self.max_bytes and len(self._kept) > 1:
                self._bytes -= self._taken(self._kept.popitem(last=False)[1])
        return picture

    def forget(self, session: str) -> None:
        """Drop the images of a session."""
        with self._lock:
            self._bytes -= self._taken(self._kept.pop(session, {}))

    def _taken(self, pages: dict[Hashable, Picture]) -> int:
        return sum(map(self._size, pages.values()))
