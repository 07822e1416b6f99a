"""Servers over real sockets: a scripted OpenAI-compatible one, and one for any ASGI application."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Say:
    """One scripted reply: a text or a fault."""

    text: str = ""
    status: int = 200
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    message: dict[str, Any] = field(default_factory=dict)
    finish: str = "stop"
    hang_up: bool = False
    wait_s: float = 0.0
    break_after: int | None = None
    """Break the stream off after this many pieces."""
    error_after: int | None = None
    """Send an error event after this many pieces of a stream."""
    cut_short: bool = False
    """Break a reply that is not streamed off before its announced end."""
    whole: bool = False
    """Do not stream, even if the request asks for it."""


Script = Callable[[dict[str, Any], int], Say]
Tokenize = Callable[[dict[str, Any]], Say]


@dataclass
class FakeServer:
    base_url: str
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    under_way: int = 0
    most_at_once: int = 0


class Listener(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, script: Script, card: dict[str, Any] | None, tokenize: Tokenize | None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.card = script, card or {"id": "fake", "owned_by": "someone"}
        self.tokenize = tokenize
        self.state = FakeServer(f"http://127.0.0.1:{self.server_address[1]}/v1")
        self._lock = threading.Lock()
        self._connections: list[Any] = []

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        self._connections.append(connection)
        return connection, address

    def server_close(self) -> None:
        """Refuse new connections and end the idle ones, as a process that ends does."""
        super().server_close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def counted(self, body: dict[str, Any], headers: dict[str, str]) -> Iterator[int]:
        """Count a request as running until the block ends; yields its number."""
        with self._lock:
            number = len(self.state.asked)
            self.state.asked.append(body)
            self.state.headers.append(headers)
            self.state.under_way += 1
            self.state.most_at_once = max(self.state.most_at_once, self.state.under_way)
        try:
            yield number
        finally:
            with self._lock:
                self.state.under_way -= 1


class Handler(BaseHTTPRequestHandler):
    server: Listener
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits 40 ms for its headers to be acknowledged

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._send(200, json.dumps({"data": [self.server.card]}).encode(), {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.tokenize is not None and self.path == "/tokenize":
            self._reply({}, self.server.tokenize(body))
            return
        if not self.path.endswith("/v1/completions" if "prompt" in body else "/chat/completions"):
            self._send(404, b"{}", {})
            return
        with self.server.counted(body, dict(self.headers)) as number:
            try:
                self._reply(body, self.server.script(body, number))
            except OSError:  # the client hung up
                self.close_connection = True

    def _reply(self, body: dict[str, Any], say: Say) -> None:
        time.sleep(say.wait_s)
        if say.hang_up:
            self.close_connection = True
            self.connection.close()
            return
        if say.raw is not None or say.status != 200:
            raw = say.raw if say.raw is not None else json.dumps({"error": {"message": "told to fail"}}).encode()
            self._send(say.status, raw, say.headers)
            return
        if body.get("stream") and not say.whole:
            self._stream(say)
            return
        message = {"role": "assistant", "content": say.text, **say.message}
        usage = {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 5}}
        content = {"text": say.text} if "prompt" in body else {"message": message}
        reply = {"choices": [{**content, "finish_reason": say.finish}], "usage": usage}
        self._send(200, json.dumps(reply).encode(), {}, num_missing=10 if say.cut_short else 0)

    def _stream(self, say: Say) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        if say.message:
            self._event({"choices": [{"delta": say.message, "finish_reason": None}]})
        pieces = [say.text[k : k + 3] for k in range(0, len(say.text), 3)]
        for number, piece in enumerate(pieces):
            if number == say.break_after:
                return
            if number == say.error_after:
                self._event({"error": {"message": "told to fail"}})
                return
            self._event({"choices": [{"delta": {"content": piece}, "finish_reason": None}]})
        self._event({"choices": [{"delta": {}, "finish_reason": say.finish}]})
        self._event({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 3}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, value: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()

    def _send(self, status: int, raw: bytes, headers: dict[str, str], num_missing: int = 0) -> None:
        """Send a reply; `num_missing` bytes of it are announced and never sent."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw) + num_missing))
        self.end_headers()
        self.wfile.write(raw)
        self.close_connection |= num_missing > 0


@contextmanager
def serve(script: Script, card: dict[str, Any] | None = None, tokenize: Tokenize | None = None) -> Iterator[FakeServer]:
    """Serve chat and plain completions by `script(body, number of the request)`; `tokenize` answers vLLM's /tokenize."""
    listener = Listener(script, card, tokenize)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield listener.state
    finally:
        listener.shutdown()
        listener.server_close()


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """Run an application on a free port in a thread; yields its address."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=30)
