"""The page navigator of DocLens: all pages in, the union of the pages that its samples name out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from seer.engines.base import Chat, ChatImage
from seer.errors import PromptTooLong
from seer.schema import Page
from seer.systems.doclens.config import DocLensConfig
from seer.systems.evidence.calls import Replies, read_pages, run_together
from seer.systems.evidence.images import page_image
from seer.systems.evidence.prompts import fill_prompt
from seer.systems.evidence.system import Question

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"analysis": {"type": "string"}, "pages": {"type": "array", "items": {"type": "integer"}}},
    "required": ["analysis", "pages"],
}
TEXT_DROPPED = "page-text-dropped"
CHUNKED = "pages-in-chunks"


async def navigate(question: Question, config: DocLensConfig, seed: int) -> tuple[int, ...]:
    """Return the pages that at least one sample names, and record the step.

    If all pages exceed the model's window, they are divided into chunks that are asked at the same time. Raises
    PromptTooLong if a single page without its text exceeds the window.
    """
    pages = question.document.pages
    deviations: list[str] = []
    try:
        replies = [await _ask(question, pages, config, seed, with_text=config.text)]
    except PromptTooLong:
        deviations.append(CHUNKED)
        replies = await _ask_in_chunks(question, pages, config.chunk_pages, config, seed, deviations)
    found = sorted({page for reply in replies for sample in reply.values for page in sample})
    question.record("navigate", replies, inputs={"pages": len(pages)}, pages=found, deviations=deviations)
    return tuple(found)


async def _ask_in_chunks(
    question: Question, pages: Sequence[Page], size: int, config: DocLensConfig, seed: int, deviations: list[str]
) -> list[Replies[tuple[int, ...]]]:
    """Ask about chunks of at most `size` pages at the same time, and return their replies."""

    async def one(chunk: Sequence[Page]) -> list[Replies[tuple[int, ...]]]:
        try:
            return [await _ask(question, chunk, config, seed, with_text=config.text)]
        except PromptTooLong:
            # A chunk that is still too long is halved; a page that is too long by itself loses its text.
            if len(chunk) > 1:
                return await _ask_in_chunks(question, chunk, -(-len(chunk) // 2), config, seed, deviations)
            if not config.text:
                raise
        deviations.append(TEXT_DROPPED)
        return [await _ask(question, chunk, config, seed, with_text=False)]

    # With one chunk of all pages, the request that has just failed would be repeated.
    size = min(size, max(1, len(pages) - 1))
    chunks = [pages[start : start + size] for start in range(0, len(pages), size)]
    return list(itertools.chain.from_iterable(await run_together(map(one, chunks))))


async def _ask(
    question: Question, pages: Sequence[Page], config: DocLensConfig, seed: int, *, with_text: bool
) -> Replies[tuple[int, ...]]:
    """Ask for the relevant pages among `pages`."""
    shown = {page.number for page in pages}
    prompt = fill_prompt("doclens-navigator.v1", pages=len(pages), question=question.text)
    chat = Chat.of(*pages_with_text(pages, config, with_text=with_text), prompt)

    def read(reply: dict[str, Any]) -> tuple[int, ...]:
        named = read_pages(reply["pages"], len(question.document.pages))
        return tuple(page for page in named if page in shown)

    return await question.caller("navigator").ask(
        chat,
        SCHEMA,
        read,
        n=config.navigator_samples,
        temperature=config.temperature if config.navigator_samples > 1 else 0.0,
        seed=seed,
        max_new_tokens=config.max_new_tokens,
    )


def pages_with_text(pages: Sequence[Page], config: DocLensConfig, *, with_text: bool) -> list[str | ChatImage]:
    """Return the pages as alternating labels, images and texts."""
    parts: list[str | ChatImage] = []
    for page in pages:
        printed = f' (printed "{page.label}")' if page.label else ""
        parts += [f"Page {page.number}{printed}\n", page_image(page, config.max_side_px)]
        if with_text and page.text.strip():
            parts.append(f"\nText of page {page.number}:\n{page.text.rstrip()}\n\n")
        else:
            parts.append("\n\n")
    return parts
