"""How fast serving is, what its caches save, and whether it stays right under load. Real vLLM, a small untrained model.

    python scripts/bench_serving.py [--quick] [--server]

1. Conversations a second through our loop at rising concurrency, latencies, share of second stages served from the cache.
   Beside it (c) the same prompts fed to vLLM with no loop around it.
   Conversations that reason at length at 16 against (a) transformers' generate, one request at a time.
2. Time to the first token of a second stage with the caches warm, and (b) with them emptied, as independent requests.
3. A soak: every conversation checks that it was given its own pages; memory before and after.
4. --server (and always without --quick): the openai engine against `vllm serve`.

Works without a GPU (scripts/install_vllm_cpu.sh). Prints tables and, last, one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

if TYPE_CHECKING:
    from seer.engines.base import Request
    from seer.engines.vllm import VLLMEngine
    from seer.models import Checkpoint
    from seer.schema import Answer, Document

COMPARED = 16
"""The concurrency at which the roads are compared."""
NEW_TOKENS = 16
"""Few, so that what is measured is the prompts, which the caches and our loop are about."""
REASONING_TOKENS = 381
"""The paper's median (A.7), by which its conversations spend nearly all their time on decoding. So do those over small pages
that are compared with (a)."""
STAGE2_PAGES = 10
"""Few for a real document, whose second stage gains more."""
QUESTION = "Which number stands here?"


@dataclass(frozen=True)
class Size:
    concurrency: dict[int, int]
    """Conversations at each level."""
    repeats: int
    compared: int
    """Conversations of each run that is compared with another."""
    reasoned: int
    """Conversations that reason at length, through our loop, and"""
    sequential: int
    """one at a time through transformers."""
    stage2: int
    soak: int


QUICK = Size({1: 3, 4: 8, 16: 24}, repeats=2, compared=16, reasoned=32, sequential=2, stage2=4, soak=150)
FULL = Size({1: 16, 4: 48, 16: 128, 64: 256}, repeats=5, compared=64, reasoned=96, sequential=12, stage2=24, soak=2000)


@dataclass
class Run:
    seconds: float = 0.0
    answers: list[Answer] = field(default_factory=list)
    requests: list[list[Request]] = field(default_factory=list)
    """Of each conversation, in order."""

    @property
    def rate(self) -> float:
        return len(self.requests) / self.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the same keys in under 4 minutes")
    parser.add_argument("--server", action="store_true", help="also start `vllm serve` and read through it")
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    from seer.small_models import build_small

    with tempfile.TemporaryDirectory() as folder:
        model = str(build_small(f"{folder}/model"))
        result: dict[str, Any] = {"bench": "serving"}
        result |= bench_in_process(model, size)
        if options.server or not options.quick:
            bench_server(model, size)
    print(json.dumps(result))


def bench_in_process(model: str, size: Size) -> dict[str, Any]:
    from seer.engines.vllm import VLLMEngine

    sequential = bench_sequential(model, size.sequential)
    started = time.perf_counter()
    # a small cache of prepared pages fills up soon, so that the soak sees growth that is not the cache's
    engine = VLLMEngine(model, max_model_len=8192, mm_processor_cache_gb=0.1)
    print(
        f"vLLM {engine.version} started in {time.perf_counter() - started:.0f} s; cache blocks of {engine.block_tokens} tokens"
    )
    try:
        runs, overhead = bench_loop(engine, size)
        reasoned = documents(size.reasoned, 650_000, small=True)
        reasoning = asyncio_run(engine, converse_all(engine, reasoned, COMPARED, REASONING_TOKENS))
        speedup = bench_stage2(engine, size.stage2)
        soak = bench_soak(engine, size.soak)
    finally:
        engine.close()
    # an untrained model may stop early: what counts is what was written, in conversations of full length
    written = sum(answer.trace[-1].completion_tokens for answer in reasoning.answers)
    rate = written / REASONING_TOKENS / reasoning.seconds
    against = rate / sequential
    print(f"\nOurs at {COMPARED}, reasoning: {rate:.2f} conversations/s; against (a): {against:.1f}x")
    answers = [answer for run in runs.values() for answer in run.answers]
    hit = hit_rate(answers, engine.block_tokens)
    invalid = sum(bool(step.deviations) for answer in answers for step in answer.trace) + soak.pop("invalid")
    return {
        "stage2_hit_rate": round(hit, 4),
        "loop_overhead": round(overhead, 4),
        "stage2_speedup_vs_uncached": round(speedup, 2),
        "throughput_vs_sequential_hf": round(against, 2),
        "invalid_selections": invalid,
        **soak,
    }


# ── 1. The loop ──────────────────────────────────────────────────────────────────────────────────


def bench_loop(engine: VLLMEngine, size: Size) -> tuple[dict[int, Run], float]:
    """A run at each concurrency, and how much slower than vLLM alone our loop is at `COMPARED`."""
    asyncio_run(engine, converse_all(engine, documents(2, 900_000), 2))  # what is compiled or allocated once
    print("\n  at once  conversations/s   p50 s   p95 s   second stage from cache")
    runs = {}
    for level, count in size.concurrency.items():
        runs[level] = run = asyncio_run(engine, converse_all(engine, documents(count, level * 1000), level))
        p50, p95 = percentiles([answer.seconds for answer in run.answers])
        hit = hit_rate(run.answers, engine.block_tokens)
        print(f"  {level:7d}  {run.rate:15.2f}  {p50:6.2f}  {p95:6.2f}   {hit:.1%}")
    asked = documents(size.compared, 500_000)
    ours, alone = [], []
    for _ in range(size.repeats):  # in turns, so that a busy machine slows both
        forget_everything(engine)
        run = asyncio_run(engine, converse_all(engine, asked, COMPARED))
        ours.append(run.seconds)
        forget_everything(engine)
        alone.append(asyncio_run(engine, feed_raw(engine, run.requests, COMPARED)))
    overhead = min(ours) / min(alone) - 1
    rate = len(asked) / min(alone)
    print(f"\n(c) vLLM alone, the same prompts at {COMPARED}: {rate:.2f} conversations/s; our loop {overhead:+.1%}")
    return runs, overhead


async def converse_all(engine: VLLMEngine, asked: Sequence[Document], level: int, new_tokens: int = NEW_TOKENS) -> Run:
    from seer.conversation import converse
    from seer.policy import ReadingPolicy
    from seer.reading import read_one

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


async def feed_raw(engine: VLLMEngine, conversations: Sequence[Sequence[Request]], level: int) -> float:
    """Seconds that vLLM takes for the prompts of these conversations, each prepared beforehand."""
    from PIL import Image

    from seer.engines.vllm import one_placeholder_an_image

    prepared = []
    for requests in conversations:
        stages = []
        for request in requests:
            encoded = engine.encoder.encode(request.turns, request.page_sizes, request.written)
            pages = [request.pages[number] for number in encoded.pages]
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


def hit_rate(answers: Sequence[Answer], block_tokens: int) -> float:
    """Of the second stages' tokens that the first stages computed and that fill whole blocks: the share that was cached."""
    cached = possible = 0
    for answer in answers:
        call = next((step for step in answer.trace if step.turn.kind == "call"), None)
        later = [step for step in answer.trace if step.turn.kind in ("think", "answer") and step.prompt_tokens]
        if call is None or not later:
            continue
        # the stop token behind the call is drawn but never fed
        shared = (call.prompt_tokens + call.completion_tokens - 2) // block_tokens * block_tokens
        possible += shared
        cached += min(later[0].cached_tokens, shared)
    return cached / possible if possible else 0.0


# ── 2. The second stage alone ────────────────────────────────────────────────────────────────────


def bench_stage2(engine: VLLMEngine, count: int) -> float:
    """Median time to the first token of a second stage over `STAGE2_PAGES` pages, caches emptied over caches warm."""
    from dataclasses import replace

    run = asyncio_run(engine, converse_all(engine, documents(count, 700_000, pages=STAGE2_PAGES), 1))
    seconds: dict[str, list[float]] = {"warm": [], "emptied": []}
    for requests in run.requests:
        first, second = requests[0], requests[-1]
        second = replace(second, sampling=replace(second.sampling, max_new_tokens=1))
        for caches in seconds:
            forget_everything(engine)
            engine.generate([first])
            if caches == "emptied":
                forget_everything(engine)
            (said,) = engine.generate([second])
            seconds[caches].append(said.seconds)
    warm, emptied = (statistics.median(times) for times in seconds.values())
    compared = f"(b) caches off: {emptied * 1000:.0f} ms; {emptied / warm:.1f}x"
    print(f"\nSecond stage over {STAGE2_PAGES} pages to its first token: {warm * 1000:.0f} ms; {compared}")
    return emptied / warm


def forget_everything(engine: VLLMEngine) -> None:
    async def reset() -> None:
        # blocks of a request that has just ended may be held a moment longer
        while not await engine._llm.reset_prefix_cache():
            await asyncio.sleep(0.05)
        await engine._llm.reset_mm_cache()
        await engine._llm.reset_encoder_cache()

    engine.run(reset())


# ── 3. The soak ──────────────────────────────────────────────────────────────────────────────────


def bench_soak(engine: VLLMEngine, count: int) -> dict[str, Any]:
    """Many conversations over small pages, in batches. Growth is measured after a fifth of them, when caches are full."""
    lost = invalid = done = 0
    before = 0
    batch = 50
    while done < count:
        asked = documents(min(batch, count - done), 10_000_000 + done, pages=2, small=True)
        run = asyncio_run(engine, converse_all(engine, asked, 32))
        for document, answer in zip(asked, run.answers, strict=True):
            lost += not given_its_own_pages(document, answer)
            invalid += any(step.deviations for step in answer.trace)
        done += len(asked)
        if not before and done >= count // 5:
            before = resident_bytes()
    growth = resident_bytes() / before - 1
    print(
        f"\nSoak: {done} conversations, {lost} lost or mixed up, {invalid} invalid; memory {before / 1e6:.0f} MB {growth:+.1%}"
    )
    return {"soak_growth": round(growth, 4), "lost_answers": lost, "invalid": invalid}


def given_its_own_pages(document: Document, answer: Answer) -> bool:
    """Did this conversation get an answer, from the exact text of the pages that it selected in its own document?"""
    excerpts = [excerpt for step in answer.trace for excerpt in step.turn.excerpts]
    replied = bool(answer.trace) and answer.trace[-1].turn.kind in ("think", "answer")
    return replied and [e.text for e in excerpts] == [document.page(n).text for n in answer.selected_pages]


def resident_bytes() -> int:
    """Memory of this process and of those it started."""
    import gc

    import psutil

    gc.collect()
    here = psutil.Process()
    return sum(process.memory_info().rss for process in [here, *here.children(recursive=True)])


# ── (a) transformers, one request at a time ──────────────────────────────────────────────────────


def bench_sequential(model: str, count: int) -> float:
    """Reasoning conversations a second with transformers' own generate: both stages anew, as many new tokens, no shared cache.

    Measured before vLLM is there, on one core and on all, and the better counts: where others use the machine too, threads
    that wait for each other are slower than one alone.
    """
    import torch

    from seer.models import load

    checkpoint = load(model, device="cpu")
    threads = {1, torch.get_num_threads()}
    rates = {}
    for number in sorted(threads):
        torch.set_num_threads(number)
        rates[number] = generate_sequentially(checkpoint, count)
    torch.set_num_threads(max(threads))
    best = max(rates, key=lambda number: rates[number])
    print(f"(a) transformers' generate, one request at a time on {best} thread(s): {rates[best]:.2f} conversations/s")
    return rates[best]


def generate_sequentially(checkpoint: Checkpoint, count: int) -> float:
    """Conversations a second over `count` documents, after one that warms up."""
    import numpy as np
    import torch

    from seer.protocol import observation
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
        if document.name != "document-600000":  # the first one warms up
            seconds += time.perf_counter() - started
    return count / seconds


# ── 4. A server of vLLM's own ────────────────────────────────────────────────────────────────────


def bench_server(model: str, size: Size) -> None:
    """The same loop through `vllm serve` and HTTP."""
    from seer.engines.openai import OpenAIEngine
    from seer.engines.vllm_serve import serving

    with serving(model, ["--max-model-len", "8192", "--dtype", "float32", "--enforce-eager"]) as address:
        engine = OpenAIEngine(address, tokenizer=model)
        try:
            asked = documents(size.compared, 800_000)
            run = asyncio_run(engine, converse_all(engine, asked, COMPARED))  # type: ignore[arg-type]
        finally:
            engine.close()
    lost = sum(not given_its_own_pages(d, a) for d, a in zip(asked, run.answers, strict=True))
    invalid = sum(bool(step.deviations) for answer in run.answers for step in answer.trace)
    p50, p95 = percentiles([answer.seconds for answer in run.answers])
    print(
        f"\nThrough `vllm serve` ({engine.abilities.structure}, {engine.abilities.continuation}): {run.rate:.2f} conversations/s "
        f"at {COMPARED}, p50 {p50:.2f} s, p95 {p95:.2f} s, {invalid} invalid, {lost} lost"
    )


# ── What is asked ────────────────────────────────────────────────────────────────────────────────


def documents(count: int, seed: int, pages: int = 3, small: bool = False) -> list[Document]:
    """Documents that no cache has seen, each with a number of its own on every page."""
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


def asyncio_run(engine: Any, work: Awaitable[Any]) -> Any:
    """In the engine's own loop: no thread stands between the conversations and vLLM."""
    return engine.run(work)


def percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(seconds)
    at: Callable[[float], float] = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))]  # noqa: E731
    return at(0.5), at(0.95)


if __name__ == "__main__":
    main()
