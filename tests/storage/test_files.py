"""A file is whole or absent, whoever is killed and however many write at once."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from storage_fakes import names, process

from seer import storage
from seer.errors import InputError

# ── Files ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda path: storage.write_bytes(path, b"\x00\r\n\xff"), b"\x00\r\n\xff"),
        (lambda path: storage.write_text(path, "é\r\n"), b"\xc3\xa9\r\n"),
        (lambda path: storage.write_text(path, "a\ud800b"), b"a?b"),
        (lambda path: storage.write_json(path, {"b": "é", "a": [1]}, indent=None), '{"b": "é", "a": [1]}\n'.encode()),
        (
            lambda path: storage.write_manifest(path, {"b": "é", "a": 1}, ensure_ascii=True, sort_keys=True, end=""),
            b'{\n  "a": 1,\n  "b": "\\u00e9"\n}',
        ),
    ],
    ids=["bytes", "text", "surrogate", "json", "manifest"],
)
def test_write_replaces_the_file_and_leaves_no_temporary(
    tmp_path: Path, write: Callable[[Path], None], expected: bytes
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"an older and longer content " * 9)
    write(path)
    assert path.read_bytes() == expected
    assert names(tmp_path) == ["file"]


def test_atomic_file_shows_the_old_content_until_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with storage.atomic_file(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


def test_atomic_file_keeps_the_old_file_if_the_block_raises(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write() -> None:
        with storage.atomic_file(path) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_written_file_has_the_permissions_of_an_ordinary_file(tmp_path: Path) -> None:
    storage.write_text(tmp_path / "atomic", "x")
    (tmp_path / "ordinary").write_text("x")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_killed_writer_leaves_a_whole_file_and_the_next_writer_removes_its_temporary(tmp_path: Path) -> None:
    path = tmp_path / "file"
    code = """
storage.write_bytes(sys.argv[1], b"0" * 1_000_000)
print("ready", flush=True)
for n in range(1, 10**9):
    storage.write_bytes(sys.argv[1], b"%d" % (n % 10) * 1_000_000, sync=False)
"""
    for delay_s in (0.0, 0.011, 0.023, 0.037):
        with process(code, path) as writer:
            time.sleep(delay_s)
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        content = path.read_bytes()
        assert len(content) == 1_000_000
        assert len(set(content)) == 1
    storage.write_bytes(path, b"mended")
    assert names(tmp_path) == ["file"]


def test_killed_writer_in_the_middle_of_a_file_leaves_the_former_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    code = """
with storage.atomic_file(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("ready", flush=True)
    time.sleep(600)
"""
    with process(code, path) as writer:
        assert names(tmp_path) == [".file.partial", "file"]
        # The writer is alive and its temporary is locked, so that another one takes a name of its own.
        storage.write_bytes(path, b"from another process")
        assert (tmp_path / ".file.partial").read_bytes() == b"half"
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert path.read_bytes() == b"from another process"
    storage.write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["file"]


def test_concurrent_writers_of_one_file_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([65 + n]) * 300_000 for n in range(4)]
    storage.write_bytes(path, contents[0])
    seen: set[bytes] = set()
    failures: list[BaseException] = []

    def write(content: bytes) -> None:
        try:
            for _ in range(40):
                storage.write_bytes(path, content, sync=False)
                seen.add(path.read_bytes())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert seen <= set(contents)
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("leftover", ["file", "folder", "link"])
def test_write_replaces_whatever_has_the_temporary_name(tmp_path: Path, leftover: str) -> None:
    elsewhere, temporary = tmp_path / "elsewhere", tmp_path / ".file.partial"
    elsewhere.write_bytes(b"of somebody else")
    if leftover == "file":
        temporary.write_bytes(b"a longer leftover")
    elif leftover == "folder":
        (temporary / "inner").mkdir(parents=True)
    else:
        temporary.symlink_to(elsewhere)
    storage.write_bytes(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert elsewhere.read_bytes() == b"of somebody else"
    assert names(tmp_path) == ["elsewhere", "file"]


def test_write_leaves_the_temporary_of_another_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that both users may write, the temporary of the other cannot be opened."""
    path = tmp_path / "file"
    foreign = tmp_path / ".file.partial"
    foreign.write_bytes(b"theirs")
    real = os.open

    def open_as_another_user(name: Path, *arguments: int) -> int:
        if name == foreign:
            raise PermissionError(13, "Permission denied")
        return real(name, *arguments)

    monkeypatch.setattr(storage.os, "open", open_as_another_user)
    storage.write_bytes(path, b"mine")
    assert (path.read_bytes(), foreign.read_bytes()) == (b"mine", b"theirs")
    assert names(tmp_path) == [".file.partial", "file"]


def test_publish_renames_a_finished_file(tmp_path: Path) -> None:
    (tmp_path / "part.tmp").write_bytes(b"rows")
    storage.publish(tmp_path / "part.tmp", tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == b"rows"
    assert names(tmp_path) == ["part"]


# ── Manifests, lines, text ───────────────────────────────────────────────────────────────────────


def test_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    values = {"name": "ä\u2028", "pages": [1, 2], "inner": {"none": None}}
    storage.write_manifest(tmp_path / "manifest.json", values)
    assert storage.read_manifest(tmp_path / "manifest.json") == values


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is missing: the folder was not finished; build it again"),
        (b'{"a": 1', "cannot be read: .*; build it again"),
        (b"\xff\xfe\xff", "cannot be read: .*; build it again"),
        (b"[" * 200_000, "cannot be read: .*; build it again"),
        (b"[1, 2]", r"must hold a JSON object, not '\[1, 2\]'; build it again"),
    ],
    ids=["missing", "truncated", "binary", "nested", "list"],
)
def test_read_manifest_rejects_a_damaged_file(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "manifest.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        storage.read_manifest(path, remedy="build it again")
    assert str(path) in str(caught.value)


def test_append_lines_appends_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    storage.append_lines(path, ["one", "zwölf"])
    storage.append_lines(path, [])
    storage.append_lines(path, ["three"])
    assert path.read_bytes() == "one\nzwölf\nthree\n".encode()


def test_append_lines_of_a_killed_writer_are_whole_up_to_the_last(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    code = """
print("ready", flush=True)
for n in range(10**9):
    storage.append_lines(sys.argv[1], ['{"n": %d}' % n])
"""
    with process(code, path) as writer:
        time.sleep(0.05)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    assert [json.loads(line)["n"] for line in lines] == list(range(len(lines)))


@pytest.mark.parametrize("text", ["", "plain", "ä", "\ud800", "a\udfffb\ud83d\ude00c", "\U0001f600"], ids=ascii)
def test_replace_surrogates_keeps_offsets_and_everything_else(text: str) -> None:
    assert storage.replace_surrogates(text).encode() == text.encode("utf-8", "replace")
    marked = storage.replace_surrogates(text, "\ufffd")
    assert len(marked) == len(text)
    assert all(
        new == old or (new == "\ufffd" and "\ud800" <= old <= "\udfff") for new, old in zip(marked, text, strict=True)
    )
    marked.encode()
