"""A scripted teacher for bench_data: just enough HTTP to answer chat completions after a fixed time, at little cost to
the machine that it shares with what is measured.

    python scripts/bench_data_teacher.py 0.05      # prints its address; ends, and prints its log, with its input
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import uvloop

Log = list[tuple[float, float, str]]
"""When each call arrived, when it was answered, and its key."""


class ScriptedTeacher(asyncio.Protocol):
    """One connection."""

    log: Log = []
    latency_s = 0.05

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.buffer = cast(asyncio.Transport, transport), b""

    def data_received(self, data: bytes) -> None:
        arrived = time.monotonic()
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        headers = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if len(body) < int(headers.get(b"Content-Length", b"0")):
            return
        self.buffer = b""
        key = headers.get(b"Idempotency-Key", b"").decode()
        # made at once, so that what it takes is no part of what comes after the wait
        reply = completion(body)
        asyncio.get_running_loop().call_at(arrived + self.latency_s, self.answer, reply, key, arrived)

    def answer(self, reply: bytes, key: str, arrived: float) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(reply)
        self.log.append((arrived, time.monotonic(), key))


def completion(body: bytes) -> bytes:
    """The response to a request, as it is sent."""
    text = scripted_reply(json.loads(body)["messages"][-1]["content"])
    choice = {"message": {"content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": len(body) // 4, "completion_tokens": 8}
    reply = json.dumps({"choices": [choice], "usage": usage}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(reply) + reply


_ASKED = re.compile(r"gate of number (\d+) open\?")


def scripted_reply(asked: str) -> str:
    """What a perfect teacher would say."""
    found = _ASKED.search(asked)
    assert found is not None, asked
    number = found[1]
    fact = f"The gate of number {number} opens at {int(number) * 7 % 1440} minutes."
    if "Reply YES or NO" in asked:
        return "YES" if fact in asked else "NO"
    return f"<think>The text says: {fact}</think>Answer: {int(number) * 7 % 1440} minutes"


async def serve() -> None:
    """Serve until the standard input closes."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(ScriptedTeacher, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


class TeacherProcess:
    """The scripted teacher in a process of its own."""

    def __init__(self, latency_s: float) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), str(latency_s)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.base_url = self._process.stdout.readline().strip()

    def stop(self) -> Log:
        out, _ = self._process.communicate("", timeout=60)
        return [(arrived, answered, key) for arrived, answered, key in json.loads(out)]


if __name__ == "__main__":
    ScriptedTeacher.latency_s = float(sys.argv[1])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
    print(json.dumps(ScriptedTeacher.log))
