"""Pages kept on disk by the hash of what they show: text, style, fonts and renderer version, or PDF, page and dpi.

    cache = PageCache.default()
    png = cache.png(page)             # from disk, or drawn, encoded and kept

Safe for any number of processes: a page is written under a temporary name and renamed, a reader sees all of it or none.
When the limit is passed, the pages unused for longest go. Drawing a laid-out page takes no longer than reading it back,
so the command line keeps only what is slow to draw: pages of PDFs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seer.errors import InputError
from seer.schema import Page
from seer.storage import write_bytes

DEFAULT_MAX_BYTES = 2 << 30
_CHECK_EVERY = 256
"""Pages written between two looks at the total size."""
_PNG_END = b"IEND\xaeB`\x82"


@dataclass(frozen=True)
class CacheInfo:
    folder: Path
    pages: int
    bytes: int
    max_bytes: int


class PageCache:
    """A folder of PNG files named by content hash."""

    def __init__(self, folder: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        if max_bytes < 1:
            raise InputError(f"a cache of {max_bytes} bytes holds nothing; give at least 1")
        self.folder, self.max_bytes = folder, max_bytes
        self._written = 0

    @classmethod
    def default(cls) -> PageCache:
        """The user's own: $SEER_CACHE_DIR, else seer/pages in the user's cache folder; $SEER_CACHE_MB limits it."""
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = Path(os.environ.get("SEER_CACHE_DIR") or home / "seer" / "pages")
        megabytes = os.environ.get("SEER_CACHE_MB", "")
        if megabytes and not megabytes.isdecimal():
            raise InputError(f"SEER_CACHE_MB is '{megabytes}'; give a whole number of megabytes")
        return cls(folder, int(megabytes) << 20 if megabytes else DEFAULT_MAX_BYTES)

    def png(self, page: Page) -> bytes:
        """The page as PNG: from the cache, or drawn now and kept."""
        data = self.get(page.content_hash)
        if data is None:
            data = page.png()
            self.put(page.content_hash, data)
        return data

    def get(self, content_hash: str) -> bytes | None:
        """The PNG kept under this hash, marked as used; None where there is none, or a damaged one."""
        path = self._path(content_hash)
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        return data if data.endswith(_PNG_END) else None

    def put(self, content_hash: str, data: bytes) -> None:
        """Keep a PNG. Writing the same page twice, also at once, leaves one."""
        path = self._path(content_hash)
        path.parent.mkdir(parents=True, exist_ok=True)
        # A page that a power cut damages is found by `get` and drawn again, so that no flush to the disk is worth its time.
        write_bytes(path, data, sync=False)
        self._written += 1
        if self._written % _CHECK_EVERY == 0 or len(data) > self.max_bytes:
            self.trim()

    def trim(self) -> int:
        """Remove the pages unused for longest until the limit is kept, with a tenth to spare. Returns how many."""
        entries = sorted(self._entries())
        total, removed = sum(size for _, size, _ in entries), 0
        if total <= self.max_bytes:
            return 0
        for _, size, path in entries:
            if total <= self.max_bytes * 0.9:
                break
            path.unlink(missing_ok=True)
            total -= size
            removed += 1
        return removed

    def info(self) -> CacheInfo:
        sizes = [size for _, size, _ in self._entries()]
        return CacheInfo(self.folder, len(sizes), sum(sizes), self.max_bytes)

    def clear(self) -> int:
        """Remove every page. Returns how many there were."""
        paths = [path for _, _, path in self._entries()]
        for path in paths:
            path.unlink(missing_ok=True)
        return len(paths)

    def _path(self, content_hash: str) -> Path:
        return self.folder / content_hash[:2] / f"{content_hash}.png"

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """(time of last use, bytes, path); other processes may remove files meanwhile."""
        for path in self.folder.glob("??/*.png"):
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            yield stat.st_mtime, stat.st_size, path
