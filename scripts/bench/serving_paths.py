"""The paths that bench_serving compares, and their documents.

converse_all          conversations through our loop
feed_raw              the same prompts passed to vLLM directly
generate_sequentially conversations through transformers' generate, one request at a time

The first two run in the engine's own event loop (`engine.run`), so no thread is between the conversations and vLLM.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seer.engines.base import Request
    from seer.engines.vllm.engine import VLLMEngine
    from seer.models.checkpoint import Checkpoint
    from seer.schema import Answer, Document

NEW_TOKENS = 16
"""Few, so that prompts, which the caches and our loop affect, take most of the time."""
REASONING_TOKENS = 381
"""The paper's median (A.7). Conversations of this length spend nearly all their time on decoding, as do those over small
pages that are compared with (a)."""
QUESTION = "Which number stands here?"


@dataclass
class Run:
    """One measured run of conversations."""

    seconds: float = 0.0
    answers: list[Answer] = field(default_factory=list)
    requests: list[list[Request]] = field(default_factory=list)
    """The requests of each conversation, in order."""

    @property
    def rate(self) -> float:
        """Conversations per second."""
        return len(self.requests) / self.seconds


# ── Through our loop ─────────────────────────────────────────────────────────────────────────────


async def converse_all(engine: VLLMEngine, asked: Sequence[Document], level: int, new_tokens: int = NEW_TOKENS) -> Run:
    """Read all documents through our loop, `level` at once."""
    from seer.reading.conversation import converse
    from seer.reading.policy import ReadingPolicy
    from seer.reading.reader import read_one

    policy = ReadingPolicy(max_new_tokens=new_tokens, max_pages=2)
    room, run = asyncio.Semaphore(level), Run(requests=[[] for _ in asked])

    async def one(index: int, document: Document) -> Answer:
        async def ask(request: Request) -> Any:
            run.requests[index].append(request)
            return await engine.generate_one(request)

        async with room:
            return await read_one(converse(document, QUESTION, engine, None, policy), ask)

    started = time.perf_counter()
    run.answers = list(await asyncio.gather(*(one(index, document) for index, document in enumerate(asked))))
    run.seconds = time.perf_counter() - started
    return run


# ── vLLM alone ───────────────────────────────────────────────────────────────────────────────────


async def feed_raw(engine: VLLMEngine, conversations: Sequence[Sequence[Request]], level: int) -> float:
    """Return the seconds that vLLM takes for the prompts of these conversations; preparing them does not count."""
    from PIL import Image

    from seer.engines.prompts import encode_prompt
    from seer.engines.vllm.engine import one_placeholder_an_image

    prepared = []
    for requests in conversations:
        stages = []
        for request in requests:
            encoded = encode_prompt(engine.encoder, request.prompt).encoded
            pages = [request.prompt.pages[number] for number in encoded.pages]
            prompt = {
                "prompt_token_ids": one_placeholder_an_image(encoded),
                "multi_modal_data": {"image": [Image.fromarray(page.image()) for page in pages]},
                "multi_modal_uuids": {"image": [page.content_hash for page in pages]},
            }
            sampling = (
                engine._call_sampling(request, request.constraint)
                if request.constraint
                else engine._free_sampling(request)
            )
            stages.append((prompt, sampling))
        prepared.append(stages)
    room = asyncio.Semaphore(level)

    async def one(index: int, stages: Sequence[Any]) -> None:
        async with room:
            for stage, (prompt, sampling) in enumerate(stages):
                async for _ in engine._llm.generate(prompt, sampling, f"raw-{time.monotonic_ns()}-{index}-{stage}"):
                    pass

    started = time.perf_counter()
    await asyncio.gather(*(one(index, stages) for index, stages in enumerate(prepared)))
    return time.perf_counter() - started


def forget_everything(engine: VLLMEngine) -> None:
    """Empty the caches of the engine. Raises EngineError if requests still hold blocks after ten seconds."""
    from seer.errors import EngineError

    deadline = time.monotonic() + 10
    while True:
        try:
            return engine.drop_caches()
        except EngineError:  # A request that has just ended may hold its blocks a moment longer.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


# ── transformers, one request at a time ──────────────────────────────────────────────────────────


def generate_sequentially(checkpoint: Checkpoint, count: int) -> float:
    """Return conversations per second over `count` documents, after one for warming up."""
    import numpy as np
    import torch

    from seer.protocol.turns import observation
    from seer.schema import Excerpt, Turn

    call_tokens = 20
    seconds = 0.0
    for document in documents(count + 1, 600_000, small=True):
        pages = {page.number: page for page in document}
        sizes = {number: (page.width_px, page.height_px) for number, page in pages.items()}
        shown = observation([Excerpt(page=n, start=pages[n].start, text=pages[n].text) for n in (1, 2)])
        turns = (Turn(kind="prompt", text=QUESTION, pages=tuple(pages)), Turn(kind="call", pages=(1, 2)), shown)
        started = time.perf_counter()
        for end, new_tokens in ((1, call_tokens), (3, REASONING_TOKENS)):
            encoded = checkpoint.encoder.encode(turns[:end], sizes)
            images = [pages[number].image() for number in encoded.pages]
            with torch.inference_mode():
                checkpoint.model.generate(
                    input_ids=torch.from_numpy(encoded.ids.astype(np.int64))[None],
                    attention_mask=torch.ones(1, len(encoded), dtype=torch.long),
                    mm_token_type_ids=torch.from_numpy(encoded.mm_token_type_ids().astype(np.int64))[None],
                    pixel_values=checkpoint.pixels(images, encoded.slots),
                    image_grid_thw=torch.from_numpy(encoded.grid_thw()),
                    min_new_tokens=new_tokens,
                    max_new_tokens=new_tokens,
                    do_sample=False,
                )
        if document.name != "document-600000":  # The first document is for warming up.
            seconds += time.perf_counter() - started
    return count / seconds


# ── Documents ────────────────────────────────────────────────────────────────────────────────────


def documents(count: int, seed: int, pages: int = 3, small: bool = False) -> list[Document]:
    """Return documents that no cache contains, with different numbers on every page."""
    from seer.rendering import render_text
    from seer.schema import PageStyle

    width_px, height_px = (196, 140) if small else (392, 560)
    style = PageStyle(name="bench", page_width_px=width_px, page_height_px=height_px, margin_x_px=8, margin_y_px=8)
    lines_a_page = int(style.text_height_px // style.line_height_px)
    made = []
    for number in range(seed, seed + count):
        draw = random.Random(number)
        lines = [f"{number}/{n}: {draw.randrange(10**6)}" for n in range(pages * lines_a_page)]
        made.append(render_text("\n".join(lines), style, f"document-{number}"))
    return made
