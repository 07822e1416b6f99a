"""The ledger: every finished teacher call, one line each, so that no call is made twice, even after kill -9.

A line is appended with one write as soon as the reply has arrived. Opening the ledger reads the keys and the positions of
their lines; replies stay on disk. A line that a crash cut short is dropped.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

from seer.errors import InputError, SeerError
from seer.storage import lock


class Reply(NamedTuple):
    """A teacher's answer, or its refusal of the request, which another attempt would not change."""

    text: str = ""
    """The answer. Quotations of control tokens are neutralised with `CHAT_LITERALS`; `restore` inverts it."""
    think: str = ""
    """The thinking before the answer. Thinking that was cut off is in `text`, after its <think>."""
    finish: str = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    """Time of the call, waits and retries included."""
    error: str = ""
    """The reason of a refusal; "" for an answer."""
    error_kind: str = ""
    """`kind` of the engine's error; "" in ledgers of earlier versions."""


@dataclass
class Spending:
    """Calls, tokens and money spent, over all runs that share a ledger."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    """Summed over calls, so concurrent calls add up to more than the elapsed time."""

    def add(self, reply: Reply, usd: float) -> None:
        """Count a finished call and its price in US dollars."""
        self.calls += 1
        self.prompt_tokens += reply.prompt_tokens
        self.completion_tokens += reply.completion_tokens
        self.seconds += reply.seconds
        self.usd += usd

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Budget:
    """Limits of the spending; 0 means no limit. Running calls finish, so tokens and money may end slightly above."""

    max_calls: int = 0
    max_tokens: int = 0
    max_usd: float = 0.0

    def exceeded_by(self, spent: Spending, calls_under_way: int) -> str:
        """The limit that forbids one more call, in words; "" if none does."""
        if self.max_calls and spent.calls + calls_under_way >= self.max_calls:
            return f"{spent.calls} of {self.max_calls} calls"
        if self.max_tokens and spent.tokens >= self.max_tokens:
            return f"{spent.tokens:,} of {self.max_tokens:,} tokens"
        if self.max_usd and spent.usd >= self.max_usd:
            return f"${spent.usd:.2f} of ${self.max_usd:.2f}"
        return ""


class BudgetReached(SeerError, RuntimeError):
    """The budget forbids another call."""


class Ledger:
    """Finished calls by key, in a file with one writer."""

    def __init__(self, path: str | Path, *, shared: bool = False) -> None:
        """Open or create the file.

        shared: True for workers of one run, which append to the same file while the run itself holds the lock.

        Raises InputError if another process holds the lock.
        """
        self.path = Path(path)
        self.spent = Spending()
        self.calls_under_way = 0
        """Calls of all teachers that share the ledger, from the budget's permission to the reply."""
        self._places: dict[bytes, tuple[int, int]] = {}
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        if not shared:
            try:
                lock(self._descriptor, self.path.parent)
            except InputError:
                os.close(self._descriptor)
                self._descriptor = -1
                raise
        self._read(repair=not shared)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._places)

    def get(self, key: str) -> Reply | None:
        """The reply of a finished call, or None. `key`: hexadecimal digits."""
        place = self._places.get(bytes.fromhex(key))
        if place is None:
            return None
        return _reply(json.loads(os.pread(self._descriptor, place[1], place[0])))

    def put(self, key: str, reply: Reply, *, model: str, role: str, usd: float = 0.0) -> None:
        """Append a finished call with one write. Raises OSError if the disk is full."""
        values = {"key": key, "role": role, "model": model, "usd": usd, **reply._asdict()}
        line = json.dumps(values, ensure_ascii=True).encode() + b"\n"
        if os.write(self._descriptor, line) < len(line):  # the partial line is dropped when the ledger is opened again
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        # after an append the offset is at the end of our line, even if other workers append too
        end = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        self._places[bytes.fromhex(key)] = (end - len(line), len(line))
        self.spent.add(reply, usd)

    def close(self) -> None:
        """Flush to the disk and close the file. May be called twice."""
        if self._descriptor >= 0:
            os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self, *, repair: bool) -> None:
        end = 0
        with self.path.open("rb") as file:
            for start, line in _whole_lines(file):
                end = start + len(line)
                values = _parse(line)
                if values is None:
                    continue  # the call is made again
                self._places[bytes.fromhex(values["key"])] = (start, len(line))
                self.spent.add(_reply(values), float(values.get("usd", 0.0)))
        if repair and end < self.path.stat().st_size:
            os.ftruncate(self._descriptor, end)


def _whole_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    start = 0
    for line in file:
        if not line.endswith(b"\n"):
            return
        yield start, line
        start += len(line)


def _parse(line: bytes) -> dict[str, Any] | None:
    """The values of a line; None for a damaged one."""
    try:
        values = json.loads(line)
        bytes.fromhex(values["key"])
        float(values.get("usd", 0.0))
        _reply(values)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return values


def _reply(values: dict[str, Any]) -> Reply:
    """Raises TypeError if a value has another type than it was written with."""
    known = {name: values[name] for name in Reply._fields if name in values}
    for name, value in known.items():
        usual = type(Reply._field_defaults[name])
        if not isinstance(value, (int, float) if usual is float else usual):
            raise TypeError(f"{name} is {value!r:.80}")
    return Reply(**known)
