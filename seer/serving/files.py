"""Uploaded files: kept on disk for a while under names of our own, each seen only with the key it came with."""

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
"""What a file takes of the disk at least: many tiny ones fill it too."""


@dataclass(frozen=True)
class StoredFile:
    id: str
    filename: str
    size_bytes: int
    created_at: int
    owner: str
    purpose: str

    def described(self) -> dict[str, Any]:
        """As OpenAI's API describes a file."""
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
    """Files of all keys, at most `max_bytes` together. What is older than `ttl_s` goes first."""

    def __init__(self, max_bytes: int, ttl_s: float) -> None:
        self.max_bytes, self.ttl_s = max_bytes, ttl_s
        self._folder = Path(tempfile.mkdtemp(prefix="seer-files-"))
        self._files: dict[str, StoredFile] = {}
        self._lock = threading.Lock()

    def add(self, filename: str, data: bytes, owner: str, purpose: str) -> StoredFile:
        if not data:
            raise InputError("the file is empty; upload one with at least one byte")
        # the id is ours and random: no name that a client chooses becomes a path
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
            except OSError:  # a full disk: what was written of it would stay and count for nobody
                path.unlink(missing_ok=True)
                raise
            self._files[stored.id] = stored
        return stored

    def find(self, file_id: str, owner: str) -> StoredFile | None:
        with self._lock:
            self._drop_expired()
            stored = self._files.get(file_id)
        return stored if stored is not None and stored.owner == owner else None

    def read(self, stored: StoredFile) -> bytes:
        return (self._folder / stored.id).read_bytes()

    def owned_by(self, owner: str) -> list[StoredFile]:
        with self._lock:
            self._drop_expired()
            return [file for file in self._files.values() if file.owner == owner]

    def delete(self, stored: StoredFile) -> None:
        with self._lock:
            self._files.pop(stored.id, None)
            (self._folder / stored.id).unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _drop_expired(self) -> None:
        oldest = time.time() - self.ttl_s
        for stored in [file for file in self._files.values() if file.created_at < oldest]:
            del self._files[stored.id]
            (self._folder / stored.id).unlink(missing_ok=True)
