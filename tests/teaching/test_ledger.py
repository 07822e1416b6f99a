"""The ledger of finished calls: torn and damaged lines, locks, and workers that share a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.teaching.ledger import Ledger, Reply


def keys(count: int) -> list[str]:
    return [f"{n:032x}" for n in range(count)]


@settings(deadline=None)
@given(cut=st.integers(0, 400))
def test_ledger_drops_a_torn_last_line_and_keeps_the_rest(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    with Ledger(path) as ledger:
        for key in keys(4):
            ledger.put(key, Reply(text=f"text {key}", prompt_tokens=1), model="m", role="judge")
    data = path.read_bytes()
    kept = data[: max(0, len(data) - cut)]
    path.write_bytes(kept)
    whole = kept.count(b"\n")
    with Ledger(path) as ledger:
        assert len(ledger) == whole == ledger.spent.calls
        ledger.put("f" * 32, Reply(text="new"), model="m", role="judge")
    with Ledger(path) as ledger:
        assert len(ledger) == whole + 1
        reply = ledger.get("f" * 32)
        assert reply is not None
        assert reply.text == "new"
        assert ledger.get("e" * 32) is None


def test_ledger_skips_a_damaged_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        for key in keys(3):
            ledger.put(key, Reply(text=key), model="m", role="judge")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b'{"broken": \n' + lines[2])
    with Ledger(path) as ledger:
        assert [ledger.get(key) is not None for key in keys(3)] == [True, False, True]


def test_ledger_rejects_a_second_process_unless_shared(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l"):
        with pytest.raises(InputError, match="another process"):
            Ledger(tmp_path / "l")
        with Ledger(tmp_path / "l", shared=True) as worker:
            worker.put("a" * 32, Reply(text="x"), model="m", role="judge")
    with Ledger(tmp_path / "l") as ledger:
        assert len(ledger) == 1


def test_shared_ledger_keeps_lines_of_workers_whole(tmp_path: Path) -> None:
    workers = [Ledger(tmp_path / "l", shared=True) for _ in range(3)]
    for n in range(60):
        workers[n % 3].put(f"{n:032x}", Reply(text=f"text {n} " * n), model="m", role="judge")
    for n in range(60):
        reply = workers[n % 3].get(f"{n:032x}")
        assert reply is not None
        assert reply.text == f"text {n} " * n
    for worker in workers:
        worker.close()
    with Ledger(tmp_path / "l") as ledger:
        assert len(ledger) == 60


def test_ledger_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(
        '{"key": "00", "role": "judge", "model": "m", "usd": 0.5, "text": "YES", "think": "So.", "finish": "stop", '
        '"prompt_tokens": 3, "completion_tokens": 1, "seconds": 0.1, "error": ""}\n'
    )
    with Ledger(path) as ledger:
        assert ledger.get("00") == Reply("YES", "So.", "stop", 3, 1, 0.1)
        assert (ledger.spent.calls, ledger.spent.tokens, ledger.spent.usd) == (1, 4, 0.5)


def test_full_disk_raises_and_the_partial_line_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.jsonl"
    write = os.write
    with Ledger(path) as ledger:
        ledger.put("00", Reply(text="whole"), model="m", role="judge")
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:10]))
            with pytest.raises(OSError, match="No space left"):
                ledger.put("11", Reply(text="cut"), model="m", role="judge")
    with Ledger(path) as ledger:
        assert (len(ledger), ledger.get("11")) == (1, None)
