"""A reading as server-sent events: selections as soon as they are made, thinking and answer as they are written.

What no engine streamed, such as the thinking before a further call, is sent when its turn is whole: the deltas join to
what a reply in one piece holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from seer.protocol.control import CONTROL
from seer.schema import Answer, Document, Step
from seer.serving import reply
from seer.serving.reading import Listener

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

KEEP_ALIVE_S = 15.0
Reading = asyncio.Task[tuple[Document, Answer]]
DescribeError = Callable[[BaseException], tuple[int, dict[str, Any]]]


class Stream:
    """One streamed reply. The engine's thread speaks into it, the event loop sends what it hears."""

    def __init__(self, reply_id: str, created: int, model: str, include_usage: bool) -> None:
        self._head = (reply_id, created, model)
        self._include_usage = include_usage
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._reading: Reading | None = None
        self._thinking = False
        self._thoughts = 0
        """Turns of thinking that were sent whole."""
        self._thought = self._answered = ""
        """What was sent of the present turns."""
        self._newlines = ""
        """Kept back: at the end of an answer they are not part of it."""

    def listener(self) -> Listener:
        return Listener(self._step, self._text, self._control)

    def follow(self, reading: Reading) -> None:
        self._reading = reading
        reading.add_done_callback(lambda _: self._queue.put_nowait(None))

    async def begun(self) -> None:
        """Wait for the first event. Raises what the reading raised before it said anything."""
        first = await self._queue.get()
        assert self._reading is not None
        if first is None and self._reading.done() and self._reading.exception() is not None:
            self._reading.result()
        self._queue = _with_first(first, self._queue)

    def response(self, describe_error: DescribeError) -> Response:
        """Sends every event. When nobody listens any more, be it before the first, the reading is cancelled."""
        from starlette.responses import StreamingResponse

        assert self._reading is not None
        reading: Reading = self._reading

        class Reply(StreamingResponse):
            async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
                try:
                    await super().__call__(scope, receive, send)
                finally:
                    reading.cancel()

        headers = {"Cache-Control": "no-cache"}
        return Reply(self.events(describe_error), media_type="text/event-stream", headers=headers)

    async def events(self, describe_error: DescribeError) -> AsyncIterator[str]:
        """Every event as text, ending with [DONE]."""
        yield reply.event(reply.chunk(*self._head, {"role": "assistant", "content": ""}))
        while True:
            try:
                item = await asyncio.wait_for(self._queue.get(), KEEP_ALIVE_S)
            except TimeoutError:
                yield ": still reading\n\n"  # a comment: it keeps proxies from hanging up
                continue
            if item is None:
                break
            yield reply.event(item)
        for item in self._ending(describe_error):
            yield reply.event(item)
        yield "data: [DONE]\n\n"

    def _ending(self, describe_error: DescribeError) -> list[dict[str, Any]]:
        assert self._reading is not None
        if self._reading.cancelled():
            return [describe_error(TimeoutError())[1]]
        if (error := self._reading.exception()) is not None:
            return [describe_error(error)[1]]
        document, answer = self._reading.result()
        more: dict[str, Any] = {"seer": reply.seer_field(document, answer)}
        chunks = [reply.chunk(*self._head, {}, reply.finish_reason(answer), **more)]
        if self._include_usage:
            chunks.append({**reply.chunk(*self._head, {}), "choices": [], "usage": reply.usage(answer)})
        return chunks

    # ── Heard from the engine, in its thread ─────────────────────────────────────────────────────

    def _step(self, step: Step) -> None:
        self._loop.call_soon_threadsafe(self._take, step)

    def _control(self, name: str) -> None:
        self._loop.call_soon_threadsafe(self._switch, name)

    def _text(self, text: str) -> None:
        self._loop.call_soon_threadsafe(self._say, text)

    # ── In the event loop ────────────────────────────────────────────────────────────────────────

    def _take(self, step: Step) -> None:
        """Send the part of a finished step that was not streamed."""
        if step.name == "reason":
            self._think(_rest(step.text, self._thought))
            self._thoughts += bool(step.text)
            self._thought = ""
        elif step.name == "answer":
            self._answer(_rest(step.text, self._answered))
        elif (said := reply.step_field(step)) is not None:
            self._queue.put_nowait(reply.chunk(*self._head, {}, seer=said))

    def _switch(self, name: str) -> None:
        if name in (CONTROL.open_think, CONTROL.close_think):
            self._thinking = name == CONTROL.open_think

    def _say(self, text: str) -> None:
        if self._thinking:
            self._think(text)
            return
        text = self._newlines + text
        if not self._answered:
            # an answer behind thinking begins on a new line, which is not part of it
            text = text.lstrip("\n")
        kept = text.rstrip("\n")
        self._newlines = text[len(kept) :]
        self._answer(kept)

    def _think(self, text: str) -> None:
        if text:
            between = "\n" if self._thoughts and not self._thought else ""
            self._thought += text
            self._queue.put_nowait(reply.chunk(*self._head, {"reasoning_content": between + text}))

    def _answer(self, text: str) -> None:
        if text:
            self._answered += text
            self._queue.put_nowait(reply.chunk(*self._head, {"content": text}))


def _rest(whole: str, sent: str) -> str:
    """What is left of a turn. Nothing, where something else was sent: that cannot be taken back."""
    return whole[len(sent) :] if whole.startswith(sent) else ""


def _with_first(
    first: dict[str, Any] | None, rest: asyncio.Queue[dict[str, Any] | None]
) -> asyncio.Queue[dict[str, Any] | None]:
    """A queue with `first` before the others."""
    queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    queue.put_nowait(first)
    while not rest.empty():
        queue.put_nowait(rest.get_nowait())
    return queue
