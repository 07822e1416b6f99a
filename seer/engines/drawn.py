"""Pages drawn once a conversation, for engines that must send a picture again with every stage."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Picture = TypeVar("Picture")
MAX_BYTES = 2 << 30


class DrawnPages(Generic[Picture]):
    """Pictures by conversation. Beyond `max_bytes` the conversation that is quiet the longest is drawn again if need be."""

    def __init__(self, size: Callable[[Picture], int], max_bytes: int = MAX_BYTES) -> None:
        """`size`: the bytes that a picture takes."""
        self.max_bytes = max_bytes
        self._size = size
        self._kept: OrderedDict[str, dict[Hashable, Picture]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._kept.values()))

    def get(self, conversation: str, key: Hashable, draw: Callable[[], Picture]) -> Picture:
        with self._lock:
            pages = self._kept.setdefault(conversation, {})
            self._kept.move_to_end(conversation)
            if key in pages:
                return pages[key]
        picture = draw()  # outside the lock: drawing takes milliseconds
        with self._lock:
            pages = self._kept.setdefault(conversation, {})
            if key not in pages:
                pages[key] = picture
                self._bytes += self._size(picture)
            while self._bytes > self.max_bytes and len(self._kept) > 1:
                self._bytes -= self._taken(self._kept.popitem(last=False)[1])
        return picture

    def forget(self, conversation: str) -> None:
        with self._lock:
            self._bytes -= self._taken(self._kept.pop(conversation, {}))

    def _taken(self, pages: dict[Hashable, Picture]) -> int:
        return sum(map(self._size, pages.values()))
