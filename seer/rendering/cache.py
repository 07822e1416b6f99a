"""A cache of page images on disk, keyed by content hash.

    cache = PageCache.default()
    png = cache.png(page)             # from disk, or drawn, encoded and kept

The hash covers everything that the pixels depend on: text, style, fonts and renderer version, or the PDF, page and dpi.

Any number of processes may share a cache. A page is written to a temporary file and renamed, so a reader sees it whole
or not at all. When the size limit is exceeded, the least recently used pages are removed. Drawing a laid-out page takes
no longer than reading it from disk, so the command line caches only pages that are slow to draw, those of PDFs.
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
"""The size limit of a cache if none is set: 2 GB."""
_CHECK_EVERY = 256
"""Number of pages written between two checks of the total size."""
_PNG_END = b"IEND\xaeB`\x82"
"""The last bytes of a complete PNG file."""


@dataclass(frozen=True)
class CacheInfo:
    """The contents of a cache: number of pages, their total size, and the limit."""

    folder: Path
    pages: int
    bytes: int
    max_bytes: int


class PageCache:
    """A folder of PNG files named by content hash.

    Args:
        folder: the folder of the cache; it is created when the first page is written.
        max_bytes: the size limit, at least 1.

    The constructor raises InputError if `max_bytes` is below 1.
    """

    def __init__(self, folder: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        if max_bytes < 1:
            raise InputError(f"max_bytes={max_bytes}: must be at least 1")
        self.folder, self.max_bytes = folder, max_bytes
        self._written = 0

    @classmethod
    def default(cls) -> PageCache:
        """Open the user's cache, configured by environment variables.

        The folder is $SEER_CACHE_DIR, or else seer/pages in the user's cache folder. $SEER_CACHE_MB sets the limit in
        megabytes. Raises InputError if SEER_CACHE_MB is not a whole number of at least 1.
        """
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = Path(os.environ.get("SEER_CACHE_DIR") or home / "seer" / "pages")
        megabytes = os.environ.get("SEER_CACHE_MB", "")
        if megabytes and not megabytes.isdecimal():
            raise InputError(f"SEER_CACHE_MB='{megabytes}': must be a whole number of megabytes")
        return cls(folder, int(megabytes) << 20 if megabytes else DEFAULT_MAX_BYTES)

    def png(self, page: Page) -> bytes:
        """Return the page as PNG, from the cache or else drawn now and added to it."""
        data = self.get(page.content_hash)
        if data is None:
            data = page.png()
            self.put(page.content_hash, data)
        return data

    def get(self, content_hash: str) -> bytes | None:
        """Return the PNG of this hash and mark it as used; None if it is absent or damaged."""
        path = self._path(content_hash)
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        return data if data.endswith(_PNG_END) else None

    def put(self, content_hash: str, data: bytes) -> None:
        """Add a PNG. If several processes write the same page at once, one copy remains."""
        path = self._path(content_hash)
        path.parent.mkdir(parents=True, exist_ok=True)
        # `get` detects a page damaged by a power cut, and it is drawn again. A flush to disk is not worth its time.
        write_bytes(path, data, sync=False)
        self._written += 1
        if self._written % _CHECK_EVERY == 0 or len(data) > self.max_bytes:
            self.trim()

    def trim(self) -> int:
        """Remove the least recently used pages if the limit is exceeded, until a tenth of it is free.

        Returns the number of removed pages.
        """
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
        """Return the number and total size of the pages."""
        sizes = [size for _, size, _ in self._entries()]
        return CacheInfo(self.folder, len(sizes), sum(sizes), self.max_bytes)

    def clear(self) -> int:
        """Remove every page and return their number."""
        paths = [path for _, _, path in self._entries()]
        for path in paths:
            path.unlink(missing_ok=True)
        return len(paths)

    def _path(self, content_hash: str) -> Path:
        """Return the file of a page. The first two digits name its folder, so that no folder grows very large."""
        return self.folder / content_hash[:2] / f"{content_hash}.png"

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """Yield (time of last use, bytes, path) of every page.

        Other processes may remove files at the same time; such files are skipped.
        """
        for path in self.folder.glob("??/*.png"):
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            yield stat.st_mtime, stat.st_size, path
