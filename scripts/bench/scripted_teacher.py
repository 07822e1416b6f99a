"""A scripted teacher for bench_data: a minimal HTTP server that answers chat completions after a fixed latency.

It uses little CPU time, because it runs on the same machine as the measured build.

    python scripts/bench/scripted_teacher.py 0.05      # prints its address; when stdin closes, prints its log and exits
"""

from __future__ import annotations

import json
import re
import select
import socket
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

Log = list[tuple[float, float, str]]
"""Arrival time, reply time (both in seconds of the monotonic clock) and key of each call."""


def serve(latency_s: float) -> Log:
    """Serve until standard input closes and return the log. Each reply is sent `latency_s` after its request or later."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", flush=True)
    log: Log = []
    connections: dict[int, Connection] = {}
    due: deque[tuple[float, Connection, bytes, str]] = deque()
    while True:
        # select has a timeout in microseconds; poll, epoll and uvloop round theirs to milliseconds.
        wait_s = max(0.0, due[0][0] + latency_s - time.monotonic()) if due else None
        ready, _, _ = select.select([sys.stdin, listener, *connections], [], [], wait_s)
        now = time.monotonic()
        while due and due[0][0] + latency_s <= now:
            arrived, connection, reply, key = due.popleft()
            if connection.send(reply):
                log.append((arrived, time.monotonic(), key))
        for place in ready:
            if place is sys.stdin:
                return log
            if place is listener:
                connection = Connection(listener.accept()[0])
                connections[connection.number] = connection
                continue
            call = connections[place].receive()
            if call is None:
                connections.pop(place).close()
            elif call:
                # Create the reply before the wait, so that its cost is part of the latency and does not add to it.
                due.append((now, connections[place], completion(call[1]), call[0]))


class Connection:
    """One connection of a client that waits for each reply before it sends its next request."""

    def __init__(self, opened: socket.socket) -> None:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self._buffer, self.number = opened, b"", opened.fileno()

    def receive(self) -> tuple[str, str] | tuple[()] | None:
        """Return key and body of a complete request, () if more data is to come, or None if the client disconnected."""
        try:
            data = self._socket.recv(1 << 20)
        except OSError:
            return None
        if not data:
            return None
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or (length is not None and len(body) < int(length[1])):
            return ()
        self._buffer = b""
        key = _KEY.search(head)
        return key[1].decode() if key else "", body.decode()

    def send(self, reply: bytes) -> bool:
        """Send a reply and return whether the client was still connected."""
        try:
            self._socket.sendall(reply)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


_LENGTH = re.compile(rb"content-length: *(\d+)", re.I)
_KEY = re.compile(rb"idempotency-key: *(\w+)", re.I)


def completion(body: str) -> bytes:
    """Return the HTTP response to a request body, as sent."""
    choice = {"message": {"content": scripted_reply(body)}, "finish_reason": "stop"}
    usage = {"prompt_tokens": len(body) // 4, "completion_tokens": 8}
    reply = json.dumps({"choices": [choice], "usage": usage}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(reply) + reply


_QUESTION = re.compile(r"gate of number (\d+) open\?")


def scripted_reply(request: str) -> str:
    """Return the reply of a perfect teacher to a JSON request.

    The request is searched without decoding it: the texts of the benchmark contain no character that JSON escapes.
    """
    found = _QUESTION.search(request)
    assert found is not None, request
    number = found[1]
    fact = f"The gate of number {number} opens at {int(number) * 7 % 1440} minutes."
    if "Reply YES or NO" in request:
        return "YES" if fact in request else "NO"
    return f"<think>The text says: {fact}</think>Answer: {int(number) * 7 % 1440} minutes"


class TeacherProcess:
    """The scripted teacher in a separate process."""

    def __init__(self, latency_s: float) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), str(latency_s)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.base_url = self._process.stdout.readline().strip()

    def stop(self) -> Log:
        """Stop the process and return its log."""
        out, _ = self._process.communicate("", timeout=60)
        return [(arrived, answered, key) for arrived, answered, key in json.loads(out)]


if __name__ == "__main__":
    print(json.dumps(serve(float(sys.argv[1]))))
