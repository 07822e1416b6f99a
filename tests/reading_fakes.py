"""A small document, and scripts for the reading loop to read it with."""

from __future__ import annotations

from collections.abc import Callable

from fakes import make_document, small_encoder

from seer.engines.base import Request
from seer.engines.scripted import ScriptedEngine
from seer.protocol.call import render_call
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import Reader
from seer.selection.base import ModelPlusLexical, Selector

TEXTS = ["The laptop costs $1,299.99.\n", "The desk is brown.\n", "The monitor costs $449.99.\nIt is curved.\n"]
DOCUMENT = make_document(TEXTS)


Script = Callable[[Request], str]


def reader(script: Script, selector: Selector | ModelPlusLexical | None = None, **policy: object) -> Reader:
    """A reader whose model follows `script`; `policy` holds fields of the ReadingPolicy."""
    return Reader(ScriptedEngine(script, small_encoder()), selector, ReadingPolicy(**policy))


def calls(*bodies: str) -> Script:
    """A script that writes these calls one after the other and then answers."""
    left = iter(bodies)

    def write(request: Request) -> str:
        if request.constraint is not None and (body := next(left, None)) is not None:
            return f"<tool_call>{body}</tool_call>"
        return "<think>so</think>\nforty-two<|user|>"

    return write


def thinks_and_calls(num_pages: int, thought: str = "so far") -> Script:
    """A script that selects pages 1 to `num_pages`, one in each call, and thinks before every call but the first."""

    def write(request: Request) -> str:
        if request.constraint is None or request.constraint.allowed[0] > num_pages:
            return "<think>so</think>\nforty-two<|user|>"
        before = "" if request.constraint.required else f"<think>{thought}</think>"
        return f"{before}<tool_call>{render_call(request.constraint.allowed[:1])}</tool_call>"

    return write
