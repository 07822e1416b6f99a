"""A folder appears as a whole, and one process at a time writes to it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from storage_fakes import names, process, without_locks

from seer import storage
from seer.errors import InputError

# ── Folders ──────────────────────────────────────────────────────────────────────────────────────


def write_folder(path: Path, content: str) -> None:
    with storage.atomic_folder(path, keep=lambda entry: entry.suffix == ".kept") as partial:
        (partial / "made").write_text(content)


def test_atomic_folder_replaces_the_former_one_and_keeps_what_is_selected(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder"
    write_folder(path, "one")
    (path / "notes.kept").write_text("kept")
    (path / "stale").write_text("stale")
    write_folder(path, "two")
    assert {file.name: file.read_text() for file in path.iterdir()} == {"made": "two", "notes.kept": "kept"}
    assert names(path.parent) == ["folder"]


def test_atomic_folder_keeps_the_former_one_if_the_block_raises(tmp_path: Path) -> None:
    write_folder(tmp_path / "folder", "one")

    def write() -> None:
        with storage.atomic_folder(tmp_path / "folder") as partial:
            (partial / "made").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert (tmp_path / "folder" / "made").read_text() == "one"
    assert names(tmp_path) == ["folder"]


def test_atomic_folder_refuses_a_second_writer_and_replaces_what_a_dead_one_left(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    write_folder(path, "one")
    code = """
with storage.atomic_folder(sys.argv[1]) as partial:
    (partial / "half").write_text("half")
    (partial / "inner").mkdir()
    print("ready", flush=True)
    time.sleep(600)
"""
    with process(code, path) as writer:
        with pytest.raises(
            InputError, match=r"another process is writing '.*\.folder\.partial'; wait for it or choose"
        ):
            write_folder(path, "two")
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert (path / "made").read_text() == "one"
    assert names(tmp_path) == [".folder.partial", "folder"]
    write_folder(path, "two")
    assert [(file.name, file.read_text()) for file in path.iterdir()] == [("made", "two")]
    assert names(tmp_path) == ["folder"]


@pytest.mark.parametrize("killed_before", ["the new folder has its name", "the former one is gone"])
def test_interrupted_replacement_is_completed_by_the_next_writer(tmp_path: Path, killed_before: str) -> None:
    path, retired = tmp_path / "folder", tmp_path / ".folder.replaced"
    write_folder(retired, "one")
    (retired / "notes.kept").write_text("kept")
    if killed_before == "the former one is gone":
        path.mkdir()
        (path / "made").write_text("two")
    with storage.atomic_folder(path, keep=lambda entry: entry.suffix == ".kept"):
        assert (path / "made").read_text() == ("two" if killed_before == "the former one is gone" else "one")
        assert (path / "notes.kept").read_text() == "kept"
        assert names(tmp_path) == [".folder.partial", "folder"]
    assert [(file.name, file.read_text()) for file in path.iterdir()] == [("notes.kept", "kept")]
    assert names(tmp_path) == ["folder"]


def test_recover_folders_restores_a_folder_without_a_successor_and_removes_one_with(tmp_path: Path) -> None:
    write_folder(tmp_path / ".lost.replaced", "lost")
    write_folder(tmp_path / ".done.replaced", "old")
    write_folder(tmp_path / "done", "new")
    storage.recover_folders(tmp_path)
    assert names(tmp_path) == ["done", "lost"]
    assert [(tmp_path / name / "made").read_text() for name in ("done", "lost")] == ["new", "lost"]


@pytest.mark.parametrize("leftover", ["file", "link"])
def test_atomic_folder_replaces_whatever_has_the_temporary_name(tmp_path: Path, leftover: str) -> None:
    elsewhere, partial = tmp_path / "elsewhere", tmp_path / ".folder.partial"
    elsewhere.mkdir()
    (elsewhere / "mine").write_text("mine")
    if leftover == "file":
        partial.write_text("left")
    else:
        partial.symlink_to(elsewhere)
    write_folder(tmp_path / "folder", "new")
    assert (elsewhere / "mine").read_text() == "mine"
    assert names(tmp_path) == ["elsewhere", "folder"]


def test_atomic_folder_refuses_a_file_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file")
    with pytest.raises(InputError, match="folder' is a file where a folder must be written; move it away"):
        write_folder(tmp_path / "folder", "new")
    assert (tmp_path / "folder").read_text() == "a file"


def test_atomic_folder_follows_a_link_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "disk" / "real").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "real")
    write_folder(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk" / "real" / "made").read_text() == "new"


def test_files_and_folders_are_written_where_the_file_system_has_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_locks(monkeypatch)
    storage.write_bytes(tmp_path / "file", b"new")
    with storage.atomic_folder(tmp_path / "folder") as partial:
        (partial / "inner").write_bytes(b"new")
    assert names(tmp_path) == ["file", "folder"]


# ── Locks ────────────────────────────────────────────────────────────────────────────────────────


def test_folder_lock_refuses_a_second_process_by_name_and_ends_with_a_killed_holder(tmp_path: Path) -> None:
    code = """
with storage.folder_lock(sys.argv[1]):
    print("ready", flush=True)
    time.sleep(600)
"""
    with process(code, tmp_path) as holder:
        with pytest.raises(InputError) as caught, storage.folder_lock(tmp_path):
            pass
        assert str(caught.value) == f"another process writes to '{tmp_path}'; wait for it or give another folder"
        with storage.folder_lock(tmp_path, "another.lock"):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    for _ in range(2):
        with storage.folder_lock(tmp_path):
            pass


def test_folder_lock_names_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_locks(monkeypatch)
    with pytest.raises(InputError, match="is on a file system without locks"), storage.folder_lock(tmp_path):
        pass
