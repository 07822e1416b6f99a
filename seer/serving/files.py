"""Uploaded files: kept on disk for a limited time under random names, each visible only with the key that uploaded it."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seer.errors import InputError

BLOCK_BYTES = 4096
"""Least size that is counted for a file, because every file occupies a block of the disk."""


@dataclass(frozen=True)
class StoredFile:
    """The description of an uploaded file."""

    id: str
    filename: str
    """The client's name for the file; never used as a path."""
    size_bytes: int
    created_at: int
    """Unix time in seconds."""
    owner: str
    """Owner id of the key, see `seer.serving.guard.Keys.owner`."""
    purpose: str

    def described(self) -> dict[str, Any]:
        """The file as an object of OpenAI's API."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.size_bytes,
            "created_at": self.created_at,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
        }


class FileStore:
    """Files of all keys, at most `max_bytes` together. Files older than `ttl_s` seconds are deleted."""

    def __init__(self, max_bytes: int, ttl_s: float) -> None:
        self.max_bytes, self.ttl_s = max_bytes, ttl_s
        self._folder = Path(tempfile.mkdtemp(prefix="seer-files-"))
        self._files: dict[str, StoredFile] = {}
        self._lock = threading.Lock()

    def add(self, filename: str, data: bytes, owner: str, purpose: str) -> StoredFile:
        """Store a file. Raises InputError if it is empty or the store is full, OSError if the disk is."""
        if not data:
            raise InputError("the file is empty; upload one with at least one byte")
        # The id is random, so no name that a client chooses becomes a path.
        stored = StoredFile(
            f"file-{secrets.token_hex(16)}", filename[:200], len(data), int(time.time()), owner, purpose[:40]
        )
        with self._lock:
            self._drop_expired()
            held = sum(max(file.size_bytes, BLOCK_BYTES) for file in self._files.values())
            if held + max(len(data), BLOCK_BYTES) > self.max_bytes:
                raise InputError(
                    f"{held / 1e6:.1f} MB are stored and {len(data) / 1e6:.1f} MB arrived; {self.max_bytes / 1e6:g} MB may be "
                    "stored: delete files that are no longer needed"
                )
            path = self._folder / stored.id
            try:
                path.write_bytes(data)
            except OSError:
                # The disk is full. The written part would stay without being counted.
                path.unlink(missing_ok=True)
                raise
            self._files[stored.id] = stored
        return stored

    def find(self, file_id: str, owner: str) -> StoredFile | None:
        """The file with this id, or None if the owner has no such file."""
        with self._lock:
            self._drop_expired()
            stored = self._files.get(file_id)
        return stored if stored is not None and stored.owner == owner else None

    def read(self, stored: StoredFile) -> bytes:
        """The content of a file."""
        return (self._folder / stored.id).read_bytes()

    def owned_by(self, owner: str) -> list[StoredFile]:
        """All files of an owner."""
        with self._lock:
            self._drop_expired()
            return [file for file in self._files.values() if file.owner == owner]

    def delete(self, stored: StoredFile) -> None:
        """Delete a file. A file that was already deleted is ignored."""
        with self._lock:
            self._files.pop(stored.id, None)
            (self._folder / stored.id).unlink(missing_ok=True)

    def close(self) -> None:
        """Delete all files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _drop_expired(self) -> None:
        oldest = time.time() - self.ttl_s
        for stored in [file for file in self._files.values() if file.created_at < oldest]:
            del self._files[stored.id]
            (self._folder / stored.id).unlink(missing_ok=True)
