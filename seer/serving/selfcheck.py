"""Is this engine right? Compared with transformers on a fixed three-image prompt, and with its own cache.

    for check in check_engine(engine, "path/to/checkpoint"):
        print(check.ok, check.name, check.detail)

Greedy tokens: a small model must agree in all 32. A large one, in half precision, may part from transformers where two
tokens are nearly equal: the first token that differs must be within `TOLERANCE` of the best, in log-probability.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from seer.engines.base import Conversation, Generation, Request, Sampling, SelectCall
from seer.engines.prompts import encode_prompt
from seer.errors import EngineError
from seer.models.checks import Check
from seer.protocol.call import parse_call_text
from seer.protocol.turns import observation
from seer.schema import Document, Excerpt, Page, Turn

if TYPE_CHECKING:
    from seer.engines.hf.engine import HFEngine

TOKENS = 32
TOLERANCE = 0.25
LARGE_PARAMETERS = 100_000_000
QUESTION = "What is on page 2?"


def check_engine(engine: Any, model: str | None) -> Iterator[Check]:
    """`model`: a local checkpoint to compare with; without it only the conversation is checked."""
    pages = _pages()
    prompt = Turn(kind="prompt", text=QUESTION, pages=tuple(pages))
    if model is not None and engine.encoder is not None:
        yield _agreement(engine, model, prompt, pages)
    yield from _stages(engine, prompt, pages)


def print_checks(engine: Any, model: str | None) -> None:
    """Raises EngineError where a check fails: a server that reads wrongly should not start."""
    import typer

    failed = []
    for check in check_engine(engine, model):
        typer.echo(f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.detail}", err=True)
        failed += [] if check.ok else [check.name]
    if failed:
        raise EngineError(f"the self-check failed: {', '.join(failed)}")


def _agreement(engine: Any, model: str, prompt: Turn, pages: dict[int, Page]) -> Check:
    import torch

    from seer.engines.hf.engine import HFEngine
    from seer.models.checkpoint import load

    # on the CPU: the engine that is checked has taken the GPU's memory
    checkpoint = load(model, device="cpu", dtype="bfloat16" if torch.cuda.is_available() else "float32")
    reference = HFEngine(checkpoint)
    asked = Request(Conversation((prompt,), pages), "check", sampling=Sampling(max_new_tokens=TOKENS))
    (expected,), (said,) = reference.generate([asked]), _ask(engine, asked)
    assert expected.ids is not None
    if said.ids is None:
        return Check("greedy tokens", False, "the engine returns no token ids to compare")
    same = _agreeing(expected.ids, said.ids)
    if same == len(expected.ids) == len(said.ids):
        return Check("greedy tokens", True, f"all {same} equal to transformers'")
    detail = f"{same} of {len(expected.ids)} equal to transformers', then {said.ids[same : same + 1]}"
    if sum(parameter.numel() for parameter in checkpoint.model.parameters()) < LARGE_PARAMETERS:
        return Check("greedy tokens", False, f"{detail}; a small model must agree in all")
    if same >= min(len(expected.ids), len(said.ids)):
        return Check("greedy tokens", False, f"{detail}; one of them stopped early")
    gap = _gap(reference, asked, expected.ids, same, said.ids[same])
    return Check("greedy tokens", gap <= TOLERANCE, f"{detail}, {gap:.3f} below the best in log-probability")


def _gap(reference: HFEngine, asked: Request, ids: tuple[int, ...], at: int, other: int) -> float:
    """How much less likely `other` is than transformers' own token, after the first `at` tokens."""
    import torch

    checkpoint = reference.checkpoint
    prompt = encode_prompt(reference.encoder, asked.prompt)
    encoded = prompt.encoded
    following = encoded.next_position + np.arange(at)
    positions = np.concatenate([encoded.positions(), np.broadcast_to(following, (3, at))], axis=1)
    tokens = np.concatenate([encoded.ids, np.array(ids[:at], np.int32)]).astype(np.int64)
    types = np.concatenate([encoded.mm_token_type_ids(), np.zeros(at, np.int32)])
    device = checkpoint.model.device
    images = [image.draw() for image in prompt.images]
    with torch.inference_mode():
        logits = checkpoint.model(
            input_ids=torch.from_numpy(tokens)[None].to(device),
            mm_token_type_ids=torch.from_numpy(types)[None].to(device),
            position_ids=torch.from_numpy(positions.astype(np.int64))[:, None].to(device),
            pixel_values=checkpoint.pixels(images, encoded.slots).to(device),
            image_grid_thw=torch.from_numpy(encoded.grid_thw()).to(device),
            logits_to_keep=1,
        ).logits[0, -1]
    chances = logits.float().log_softmax(-1)
    return float(chances[ids[at]] - chances[other])


def _stages(engine: Any, prompt: Turn, pages: dict[int, Page]) -> Iterator[Check]:
    """A call over the pages, its observation, and how much of the second prompt the cache gave."""
    constraint = SelectCall(tuple(pages), 2)
    call = Request(Conversation((prompt,), pages), "check/stages", constraint, Sampling(max_new_tokens=64))
    (said,) = _ask(engine, call)
    parsed = parse_call_text(said.raw, tuple(pages), 2)
    problem = (str(said.error) if said.error else "") or ", ".join(parsed.deviations)
    required = engine.constrains or bool(said.error)
    yield Check("select call", not (problem and required), problem or f"valid: pages {list(parsed.pages)}")
    shown = observation([Excerpt(page=2, start=pages[2].start, text=pages[2].text)])
    turns = (prompt, Turn(kind="call", pages=parsed.pages), shown)
    written = {1: said.ids} if said.ids else {}
    (answer,) = _ask(
        engine, Request(Conversation(turns, pages, written), "check/stages", sampling=Sampling(max_new_tokens=4))
    )
    engine.forget("check/stages")
    block = getattr(engine, "block_tokens", 1)
    shared = (said.prompt_tokens + max(0, said.completion_tokens - 1)) // block * block
    rate = answer.cached_tokens / shared if shared else 0.0
    detail = (
        str(answer.error or "")
        or f"{answer.cached_tokens} of {shared} tokens of the first stage came from the cache ({rate:.0%})"
    )
    # a remote server may keep its counts to itself; in this process the cache must work
    yield Check("second stage", not answer.error and (rate >= 0.9 or not hasattr(engine, "block_tokens")), detail)


def _ask(engine: Any, request: Request) -> list[Generation]:
    return engine.generate([request])


def _agreeing(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _pages() -> dict[int, Page]:
    """Three rendered pages of different sizes."""
    from seer.rendering import render_text

    texts = [f"Page {n}. " + f"Line {n} of the self-check. " * (12 * n) for n in (1, 2, 3)]
    documents: list[Document] = [render_text(text, "seer", f"check-{n}") for n, text in enumerate(texts, 1)]
    pages = {}
    for number, document in enumerate(documents, 1):
        page = document.page(1)
        digest = hashlib.sha256(f"check {page.content_hash}".encode()).hexdigest()[:32]
        moved = page.model_copy(update={"number": number, "content_hash": digest})
        pages[number] = moved.attach(_drawer(page))
    return pages


def _drawer(page: Page) -> Callable[[Page], np.ndarray]:
    return lambda _: page.image()
