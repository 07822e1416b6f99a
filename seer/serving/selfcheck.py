"""Check an engine on a fixed prompt of three images: its tokens against transformers, and its prefix cache.

    for check in check_engine(engine, "path/to/checkpoint"):
        print(check.ok, check.name, check.detail)

Greedy tokens: a small model must agree in all 32. A large one, in half precision, may differ from transformers where two
tokens are nearly equal: the first token that differs must be within `TOLERANCE` of the best, in log-probability.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from seer.engines.base import Conversation, Engine, Request, Sampling, SelectCall
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
MIN_CACHED = 0.9
"""Least fraction of the first stage's tokens that the cache must supply."""
LARGE_PARAMETERS = 100_000_000
QUESTION = "What is on page 2?"


@runtime_checkable
class BlockCachingEngine(Protocol):
    """An engine whose prefix cache must work, because it runs in this process. The cache holds whole blocks."""

    block_tokens: int
    """Tokens of one block."""


def check_engine(engine: Engine, model: str | None) -> Iterator[Check]:
    """Yield the result of each check. `model`: a local checkpoint to compare tokens with; None skips that check."""
    pages = _pages()
    prompt = Turn(kind="prompt", text=QUESTION, pages=tuple(pages))
    if model is not None and engine.encoder is not None:
        yield _agreement(engine, model, prompt, pages)
    yield from _stages(engine, prompt, pages)


def print_checks(engine: Engine, model: str | None) -> None:
    """Print each check to standard error. Raises EngineError if one fails, so that a wrong server does not start."""
    import typer

    failed = []
    for check in check_engine(engine, model):
        typer.echo(f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.detail}", err=True)
        failed += [] if check.ok else [check.name]
    if failed:
        raise EngineError(f"the self-check failed: {', '.join(failed)}")


def _agreement(engine: Engine, model: str, prompt: Turn, pages: dict[int, Page]) -> Check:
    import torch

    from seer.engines.hf.engine import HFEngine
    from seer.models.checkpoint import load

    # On the CPU, because the engine that is checked occupies the GPU's memory.
    checkpoint = load(model, device="cpu", dtype="bfloat16" if torch.cuda.is_available() else "float32")
    reference = HFEngine(checkpoint)
    request = Request(Conversation((prompt,), pages), "check", sampling=Sampling(max_new_tokens=TOKENS))
    (expected,), (generated,) = reference.generate([request]), engine.generate([request])
    assert expected.ids is not None
    if generated.ids is None:
        return Check("greedy tokens", False, "the engine returns no token ids to compare")
    same = _num_equal(expected.ids, generated.ids)
    if same == len(expected.ids) == len(generated.ids):
        return Check("greedy tokens", True, f"all {same} equal to transformers'")
    detail = f"{same} of {len(expected.ids)} equal to transformers', then {generated.ids[same : same + 1]}"
    if sum(parameter.numel() for parameter in checkpoint.model.parameters()) < LARGE_PARAMETERS:
        return Check("greedy tokens", False, f"{detail}; a small model must agree in all")
    if same >= min(len(expected.ids), len(generated.ids)):
        return Check("greedy tokens", False, f"{detail}; one of them stopped early")
    gap = _gap(reference, request, expected.ids, same, generated.ids[same])
    return Check("greedy tokens", gap <= TOLERANCE, f"{detail}, {gap:.3f} below the best in log-probability")


def _gap(reference: HFEngine, request: Request, ids: tuple[int, ...], at: int, other: int) -> float:
    """Log-probability of transformers' token minus that of `other`, both after the first `at` tokens of `ids`."""
    import torch

    checkpoint = reference.checkpoint
    prompt = encode_prompt(reference.encoder, request.prompt)
    encoded = prompt.encoded
    # Generated tokens follow the prompt at the same position in all three dimensions of M-RoPE.
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
    log_probabilities = logits.float().log_softmax(-1)
    return float(log_probabilities[ids[at]] - log_probabilities[other])


def _stages(engine: Engine, prompt: Turn, pages: dict[int, Page]) -> Iterator[Check]:
    """Check a select call over the pages, and the fraction of the second prompt that the cache supplies."""
    constraint = SelectCall(tuple(pages), 2)
    call = Request(Conversation((prompt,), pages), "check/stages", constraint, Sampling(max_new_tokens=64))
    (selected,) = engine.generate([call])
    parsed = parse_call_text(selected.raw, tuple(pages), 2)
    problem = str(selected.error or "") or ", ".join(parsed.deviations)
    # An engine that does not constrain may write an invalid call; its deviations are only reported.
    required = engine.constrains or selected.error is not None
    yield Check("select call", not (problem and required), problem or f"valid: pages {list(parsed.pages)}")
    shown = observation([Excerpt(page=2, start=pages[2].start, text=pages[2].text)])
    turns = (prompt, Turn(kind="call", pages=parsed.pages), shown)
    written = {1: selected.ids} if selected.ids else {}
    second = Request(Conversation(turns, pages, written), "check/stages", sampling=Sampling(max_new_tokens=4))
    (answer,) = engine.generate([second])
    engine.forget("check/stages")
    # A remote server may not report its cached tokens, so only an engine of this process is held to a rate.
    block = engine.block_tokens if isinstance(engine, BlockCachingEngine) else None
    # The last token of the call has never been an input, so its keys and values are not in the cache.
    shared = selected.prompt_tokens + max(0, selected.completion_tokens - 1)
    if block is not None:
        shared = shared // block * block
    rate = answer.cached_tokens / shared if shared else 0.0
    if answer.error is not None:
        yield Check("second stage", False, str(answer.error))
        return
    detail = f"{answer.cached_tokens} of {shared} tokens of the first stage came from the cache ({rate:.0%})"
    yield Check("second stage", block is None or rate >= MIN_CACHED, detail)


def _num_equal(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """The length of the common prefix."""
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
