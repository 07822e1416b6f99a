"""A reading as server-sent events: selections as they are made, thinking and answer as they are generated.

Text that the engine does not stream, such as thinking before a further call, is sent when its step ends. The deltas
joined equal the text of a reply that is not streamed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from seer.protocol.control import CONTROL
from seer.schema import Answer, Document, Step
from seer.serving import reply
from seer.serving.errors import error_response
from seer.serving.reading import Listener

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

KEEP_ALIVE_S = 15.0
HOLD_S = 5.0
"""How long a stream waits for the model before it begins, so that an early failure can still have its own status."""
Reading = asyncio.Task[tuple[Document, Answer]]


class Stream:
    """One streamed reply. The engine's thread reports to its listener; the event loop sends the events."""

    def __init__(self, reply_id: str, created: int, model: str, include_usage: bool) -> None:
        self._head = (reply_id, created, model)
        self._include_usage = include_usage
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        """Events to send; None after the last one."""
        self._may_begin = asyncio.Event()
        self._reading: Reading | None = None
        self._thinking = False
        self._num_thoughts = 0
        """Thinking steps that were sent completely."""
        self._thought = self._answered = ""
        """Text of the present steps that was sent."""
        self._newlines = ""
        """Newlines that are held back, because those at the end of an answer are not part of it."""

    def listener(self) -> Listener:
        """The callbacks for the reading. They may be called from any thread."""
        return Listener(self._step, self._text, self._control)

    def follow(self, reading: Reading) -> None:
        """Stream this reading; its end is the end of the stream."""

        def end(_: Reading) -> None:
            self._queue.put_nowait(None)
            self._may_begin.set()

        self._reading = reading
        reading.add_done_callback(end)

    async def begun(self) -> None:
        """Wait until the model has generated something, the reading has ended, or `HOLD_S` seconds have passed.

        Raises what the reading raises until then: nothing has been sent, so it can be an ordinary error.
        """
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._may_begin.wait(), HOLD_S)
        assert self._reading is not None
        if self._reading.done():
            self._reading.result()

    def response(self) -> Response:
        """A response that sends every event. It cancels the reading when the client disconnects, at any time."""
        from starlette.responses import StreamingResponse

        assert self._reading is not None
        reading: Reading = self._reading

        class Reply(StreamingResponse):
            async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
                try:
                    await super().__call__(scope, receive, send)
                finally:
                    reading.cancel()

        # nginx would otherwise hold the events back.
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        return Reply(self.events(), media_type="text/event-stream", headers=headers)

    async def events(self) -> AsyncIterator[str]:
        """Every event as text, ending with [DONE]."""
        yield reply.event(reply.chunk(*self._head, {"role": "assistant", "content": ""}))
        while True:
            try:
                item = await asyncio.wait_for(self._queue.get(), KEEP_ALIVE_S)
            except TimeoutError:
                yield ": still reading\n\n"  # A comment, so that proxies keep the connection open.
                continue
            if item is None:
                break
            yield reply.event(item)
        for item in self._ending():
            yield reply.event(item)
        yield "data: [DONE]\n\n"

    def _ending(self) -> list[dict[str, Any]]:
        """The last events: the outcome and the usage, or the error that ended the reading."""
        assert self._reading is not None
        if self._reading.cancelled():
            return [error_response(TimeoutError())[1]]
        if (error := self._reading.exception()) is not None:
            return [error_response(error)[1]]
        document, answer = self._reading.result()
        more: dict[str, Any] = {"seer": reply.seer_field(document, answer)}
        chunks = [reply.chunk(*self._head, {}, reply.finish_reason(answer), **more)]
        if self._include_usage:
            chunks.append({**reply.chunk(*self._head, {}), "choices": [], "usage": reply.usage(answer)})
        return chunks

    # ── Called in the engine's thread ────────────────────────────────────────────────────────────

    def _step(self, step: Step) -> None:
        self._loop.call_soon_threadsafe(self._take, step)

    def _control(self, name: str) -> None:
        self._loop.call_soon_threadsafe(self._switch, name)

    def _text(self, text: str) -> None:
        self._loop.call_soon_threadsafe(self._take_text, text)

    # ── Called in the event loop ─────────────────────────────────────────────────────────────────

    def _take(self, step: Step) -> None:
        """Send the part of a finished step that was not streamed."""
        if step.name == "reason":
            self._think(_rest(step.text, self._thought))
            self._num_thoughts += bool(step.text)
            self._thought = ""
        elif step.name == "answer":
            self._answer(_rest(step.text, self._answered))
        elif (progress := reply.step_field(step)) is not None:
            # Looking precedes the first request to the engine, so it does not show that the engine works.
            self._send({}, begins=step.name != "look", seer=progress)

    def _switch(self, name: str) -> None:
        if name in (CONTROL.open_think, CONTROL.close_think):
            self._thinking = name == CONTROL.open_think

    def _take_text(self, text: str) -> None:
        if self._thinking:
            self._think(text)
            return
        text = self._newlines + text
        if not self._answered:
            # After thinking, an answer begins on a new line, which is not part of it.
            text = text.lstrip("\n")
        kept = text.rstrip("\n")
        self._newlines = text[len(kept) :]
        self._answer(kept)

    def _think(self, text: str) -> None:
        if text:
            between = "\n" if self._num_thoughts and not self._thought else ""
            self._thought += text
            self._send({"reasoning_content": between + text})

    def _answer(self, text: str) -> None:
        if text:
            self._answered += text
            self._send({"content": text})

    def _send(self, delta: dict[str, Any], *, begins: bool = True, **more: Any) -> None:
        """Queue a chunk. `begins` False: the stream need not begin for it."""
        self._queue.put_nowait(reply.chunk(*self._head, delta, **more))
        if begins:
            self._may_begin.set()


def _rest(whole: str, sent: str) -> str:
    """The part of a step's text that was not sent; empty if other text was sent, which cannot be taken back."""
    return whole[len(sent) :] if whole.startswith(sent) else ""
