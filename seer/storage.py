"""Files and folders that are complete or absent: atomic writes, manifests, JSON lines, locks, and text that UTF-8 can hold.

    write_text(path, text)                           # readers see the old file or the new one, never a part
    with atomic_file(path) as file:                  # the same for content that is written piece by piece
        file.write(data)
    with atomic_folder(path) as partial:             # a folder appears under its name when the block ends
        (partial / "page.png").write_bytes(data)
    write_manifest(folder / "manifest.json", values) # last: its presence marks the folder as finished
    with folder_lock(folder): ...                    # one process at a time; released when the process ends

Content is written under a temporary name in the target's own folder (`.NAME.partial`) and renamed. A process that is
killed leaves at most that temporary, and the next writer of the same target replaces it. No other module of the project
renames or locks files.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from seer.errors import InputError

LOCK_NAME = ".lock"
_SURROGATES = re.compile("[\ud800-\udfff]")


# ── Text ─────────────────────────────────────────────────────────────────────────────────────────


def replace_surrogates(text: str, by: str = "?") -> str:
    """Replace each lone surrogate, which UTF-8 cannot encode, by one character, so that offsets stay valid.

    Shards, predictions and reports store "?", as Python's "replace" error handler does. Text that a tokenizer reads uses
    U+FFFD, Unicode's replacement character.
    """
    return text if text.isascii() else _SURROGATES.sub(by, text)


# ── Files ────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def atomic_file(path: str | Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file for binary writing and rename it to `path` when the block ends.

    An exception in the block removes the temporary and leaves `path` as it was. Any number of processes and threads may
    write the same path at once: each writes its own file, and the last rename wins.

    Args:
        path: The file to write; its folder must exist.
        sync: Flush the content to the disk before the rename, so that a power cut cannot leave an empty file. Turn it off
            only for files that are checked when they are read and can be made again, such as a cache.
    """
    path = Path(path)
    descriptor, temporary = _open_temporary(path)
    # The name goes before the file is closed, on both ways out: the lock, which ends with the close, must outlive the name.
    with open(descriptor, "wb") as file:
        try:
            yield file
            file.flush()
            if sync:
                os.fsync(descriptor)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_bytes(path: str | Path, data: bytes | memoryview, *, sync: bool = True) -> None:
    """Write a whole file atomically (see `atomic_file`)."""
    with atomic_file(path, sync=sync) as file:
        file.write(data)


def write_text(path: str | Path, text: str, *, sync: bool = True) -> None:
    r"""Write text atomically as UTF-8, with "\n" line ends. Lone surrogates become question marks."""
    write_bytes(path, text.encode("utf-8", "replace"), sync=sync)


def write_json(path: str | Path, values: Any, *, indent: int | None = 2, end: str = "\n", **options: Any) -> None:
    """Write a JSON value atomically. `options` go to `json.dumps`; text stays readable unless `ensure_ascii` is set."""
    write_text(path, json.dumps(values, indent=indent, **{"ensure_ascii": False, **options}) + end)


def publish(partial: str | Path, path: str | Path) -> None:
    """Give a finished temporary file its final name, after flushing it to the disk.

    For writers that need a path instead of an open file, such as Parquet's. `partial` must be in the folder of `path`.
    """
    with open(partial, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)


def _open_temporary(path: Path) -> tuple[int, Path]:
    """Create the temporary file for `path`: `.NAME.partial`, or a random name while another writer uses that one.

    A lock on the temporary tells a living writer from one that was killed: the system releases the lock of a dead
    process, and its leftover is then reused.
    """
    temporary = path.with_name(f".{path.name}.partial")
    unique = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    if temporary.is_dir() or temporary.is_symlink():
        remove(temporary)
    try:
        descriptor = os.open(temporary, flags, 0o666)
    except PermissionError:  # left by another user, in a folder that both may write
        return os.open(unique, flags | os.O_EXCL, 0o666), unique
    locked = _try_lock(descriptor)
    # Between the open and the lock, the former holder may have renamed the file: it is then the target, not a temporary.
    if locked and _is_open_as(descriptor, temporary):
        os.ftruncate(descriptor, 0)
        return descriptor, temporary
    os.close(descriptor)
    if locked is None:
        temporary.unlink(missing_ok=True)
    return os.open(unique, flags | os.O_EXCL, 0o666), unique


def _is_open_as(descriptor: int, path: Path) -> bool:
    """Whether `path` still names the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


# ── Folders ──────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def atomic_folder(path: str | Path, *, keep: Callable[[Path], bool] | None = None) -> Iterator[Path]:
    """Yield the empty folder `.NAME.partial` and rename it to `path` when the block ends.

    An earlier folder at `path` stays readable until then and is replaced as a whole. An exception in the block removes
    the partial folder; one that a killed process left is removed first.

    Args:
        path: The folder to write; missing parents are created.
        keep: Selects entries of the earlier folder that move into the new one unless it has an entry of that name.

    Raises InputError if another process is writing the same folder, or `path` is a file.
    """
    # A link to a folder on another disk stays a link: the folder that it leads to is replaced.
    path = Path(os.path.realpath(path))
    partial = path.with_name(f".{path.name}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    _finish_replacing(path, keep)
    if path.exists() and not path.is_dir():
        raise InputError(f"'{path}' is a file where a folder must be written; move it away or choose another folder")
    descriptor = _hold_folder(partial)
    try:
        try:
            yield partial
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        replace_folder(partial, path, keep=keep)
    finally:
        os.close(descriptor)


def replace_folder(new: str | Path, path: str | Path, *, keep: Callable[[Path], bool] | None = None) -> None:
    """Rename the finished folder `new` to `path`; an earlier folder there is moved aside first and then removed.

    A process killed between the two renames leaves the earlier folder whole as `.NAME.replaced`; the next call of this function
    or of `atomic_folder` for the same path restores it, and so does `recover_folders`. `keep` is that of `atomic_folder`.
    """
    path = Path(path)
    _finish_replacing(path, keep)
    if path.exists():
        os.replace(path, _retired(path))
    os.replace(new, path)
    _finish_replacing(path, keep)


def recover_folders(parent: str | Path) -> None:
    """Complete or undo each replacement of a folder in `parent` that a killed process left half done."""
    for retired in sorted(Path(parent).glob(".*.replaced")):
        _finish_replacing(retired.with_name(retired.name.removeprefix(".").removesuffix(".replaced")), None)


def remove(path: str | Path) -> None:
    """Remove a file, a link or a folder with all it holds. A path that does not exist is not an error."""
    path = Path(path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _retired(path: Path) -> Path:
    return path.with_name(f".{path.name}.replaced")


def _finish_replacing(path: Path, keep: Callable[[Path], bool] | None) -> None:
    """Complete a replacement, or undo one that was interrupted before the new folder had its name."""
    retired = _retired(path)
    if not retired.is_dir() or retired.is_symlink():
        retired.unlink(missing_ok=True)
        return
    if not path.exists():
        os.replace(retired, path)
        return
    for entry in sorted(retired.iterdir()) if keep else ():
        if keep is not None and keep(entry) and not (path / entry.name).exists():
            os.replace(entry, path / entry.name)
    shutil.rmtree(retired)


def _hold_folder(partial: Path) -> int:
    """Create the folder `partial` and lock it; returns the descriptor that holds the lock. Leftovers are removed."""
    if partial.is_symlink() or partial.is_file():
        partial.unlink()
    partial.mkdir(exist_ok=True)
    descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Without locks in the file system, writing continues without protection: a training run must not fail at its last step.
        if _try_lock(descriptor) is False or not _is_open_as(descriptor, partial):
            raise InputError(f"another process is writing '{partial}'; wait for it or choose another folder")
        for entry in partial.iterdir():
            remove(entry)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


# ── Manifests ────────────────────────────────────────────────────────────────────────────────────


def write_manifest(path: str | Path, values: Mapping[str, Any], **options: Any) -> None:
    """Write the manifest of a folder, as the last step of writing the folder: its presence means that all else is there.

    Remove an earlier manifest before the first other write. `options` are those of `write_json`.
    """
    write_json(path, values, **options)


def read_manifest(path: str | Path, *, remedy: str = "write the folder again") -> dict[str, Any]:
    """Read a manifest, a JSON object.

    Raises InputError if the file is missing, cannot be read, or does not hold a JSON object; the message ends with
    `remedy`.
    """
    try:
        values = json.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise InputError(f"'{path}' is missing: the folder was not finished; {remedy}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"'{path}' cannot be read: {error}; {remedy}") from None
    if not isinstance(values, dict):
        raise InputError(f"'{path}' must hold a JSON object, not {str(values)[:40]!r}; {remedy}")
    return values


# ── JSON lines ───────────────────────────────────────────────────────────────────────────────────


def append_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Append lines, each with one write, and flush them to the disk. A kill can only cut the last line short."""
    with open(path, "ab", buffering=0) as file:
        for line in lines:
            data = memoryview(line.encode("utf-8") + b"\n")
            while data:
                data = data[os.write(file.fileno(), data) :]
        os.fsync(file.fileno())


# ── Locks ────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def folder_lock(folder: str | Path, name: str = LOCK_NAME) -> Iterator[None]:
    """Hold the lock file `name` of a folder, so that one process at a time writes there.

    The system releases the lock when the process ends, however it ends; the empty file stays. Raises InputError if another
    process holds the lock.
    """
    descriptor = os.open(Path(folder) / name, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def lock(descriptor: int, folder: str | Path) -> None:
    """Lock an open file until it is closed; `folder` is the name for the message.

    Raises InputError if another process holds the lock, or the file system has no locks.
    """
    held = _try_lock(descriptor)
    if held is False:
        raise InputError(f"another process writes to '{folder}'; wait for it or give another folder")
    if held is None:
        raise InputError(f"'{folder}' is on a file system without locks; give a folder on another")


def _try_lock(descriptor: int) -> bool | None:
    """Lock an open file or folder: False if another writer holds it, None if the file system has no locks."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
