"""Pages drawn once a conversation, for engines that must send a picture again with every stage."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Picture = TypeVar("Picture")


class DrawnPages(Generic[Picture]):
    """Pictures by conversation. Beyond `max_pages` the conversation that is quiet the longest is drawn again if need be."""

    def __init__(self, max_pages: int = 4096) -> None:
        self.max_pages = max_pages
        self._kept: OrderedDict[str, dict[Hashable, Picture]] = OrderedDict()
        self._count = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._count

    def get(self, conversation: str, key: Hashable, draw: Callable[[], Picture]) -> Picture:
        with self._lock:
            pages = self._kept.setdefault(conversation, {})
            self._kept.move_to_end(conversation)
            if key in pages:
                return pages[key]
        picture = draw()  # outside the lock: drawing takes milliseconds
        with self._lock:
            pages = self._kept.setdefault(conversation, {})
            self._count += key not in pages
            pages[key] = picture
            while self._count > self.max_pages and len(self._kept) > 1:
                self._count -= len(self._kept.popitem(last=False)[1])
        return picture

    def forget(self, conversation: str) -> None:
        with self._lock:
            self._count -= len(self._kept.pop(conversation, {}))
