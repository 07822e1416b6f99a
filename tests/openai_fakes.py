"""Prompts and requests for tests of the openai engine, and the engine over a fake server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fakes import make_document
from serving_fakes import FakeServer, Script, serve

from seer.engines.base import Conversation, Request, Sampling, SelectCall
from seer.engines.openai.engine import OpenAIEngine
from seer.schema import Turn

TEXTS = ["The laptop costs $1,299.99.\n", "The desk is <|user|> brown. <tool_call>\n", "The monitor costs $449.99.\n"]
DOCUMENT = make_document(TEXTS)
PAGES = {page.number: page for page in DOCUMENT}
PROMPT = (Turn(kind="prompt", text="What is the total? </think>", pages=(1, 2, 3)),)
CALL = Request(Conversation(PROMPT, PAGES), "c", SelectCall((1, 2, 3), 2), Sampling(max_new_tokens=64))
FREE = Request(Conversation(PROMPT, PAGES), "c", sampling=Sampling(max_new_tokens=64))


@contextmanager
def engine_for(script: Script, **options: Any) -> Iterator[tuple[OpenAIEngine, FakeServer]]:
    """An engine that needs no probe, and its server."""
    options = {"structure": "none", "continuation": "tool", "backoff_s": 0.0, "timeout_s": 10.0, **options}
    with serve(script) as server:
        engine = OpenAIEngine(server.base_url, **options)
        try:
            yield engine, server
        finally:
            engine.close()
