"""Measure the speed of reading, and the tokens it saves.

    python scripts/bench/bench_reading.py [--quick] [--data ../shared/data/longbench/samples]

1. The second stage of a conversation over 6 pages with a small model: the fraction of positions that it reuses from the
   first stage, and its time to first token compared with the first.
2. Encoding 1,000 trajectories of 8k tokens.
3. Prompt tokens in mode `auto` over LongBench records; BM25 selects 1.59 pages on average, and tekken counts text. In
   style `paper`, each task has the newline mode of its benchmark.
4. Pages and vision tokens of the same records in style `paper`, compared with the paper's.

5. Tokens and containment of passages in place of whole pages (`passages.py`).

Prints tables and, as the last line, JSON. Without LongBench records the keys of 3 and 4 are null.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seer.engines.base import Request
    from seer.engines.hf.engine import HFEngine
    from seer.schema import Excerpt, NewlineMode

os.environ.setdefault("HF_HUB_OFFLINE", "1")
MEAN_PAGES = 1.59
"""Mean number of pages that the paper's model selects for a question (section 6.4)."""
PASSAGE_TOKENS = 1000
"""Retrieved tokens of a second stage with passages."""
STYLES = ("seer", "paper", "dense", "auto")
BEST_OF = ("seer", "dense", "auto")
"""The styles that `compression_mean_best` chooses from."""
PAPER_PAGES = 6.6
"""Mean number of pages of a record, over all 4,750 (section 6.4)."""
PAPER_PROMPT_TOKENS = 3522.5
"""Prompt tokens of the visual baseline, labels and question included; mean over tasks (table 2)."""
QUICK_RECORDS = 2
"""Records of each task with --quick."""


def main() -> None:
    """Run all three parts and print the last line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the same keys in under 50 s")
    parser.add_argument(
        "--data", type=Path, default=Path(__file__).resolve().parents[3] / "shared/data/longbench/samples"
    )
    options = parser.parse_args()
    result: dict[str, object] = {"bench": "reading"}
    result |= bench_stages(repeats=3 if options.quick else 9)
    result |= bench_encoding(100 if options.quick else 1000)
    result |= bench_compression(options.data, QUICK_RECORDS if options.quick else None)
    from passages import bench_passages

    result |= bench_passages(options.data, QUICK_RECORDS if options.quick else None, MEAN_PAGES)
    result |= bench_pages(options.data, QUICK_RECORDS if options.quick else None)
    print(json.dumps(result))


# ── 1. Two stages ────────────────────────────────────────────────────────────────────────────────


def bench_stages(repeats: int) -> dict[str, float]:
    """Return medians over `repeats` documents that no cache contains, with one generated token in each stage."""
    from seer.engines.base import Conversation, Request, Sampling
    from seer.engines.hf.engine import HFEngine
    from seer.models.checkpoint import load
    from seer.models.small import build_small
    from seer.protocol.turns import observation
    from seer.rendering import render_text
    from seer.schema import Excerpt, Turn

    with tempfile.TemporaryDirectory() as folder:
        engine = HFEngine(load(build_small(folder), device="cpu"))
    first, second, third, reused = [], [], [], []
    for n in range(repeats):
        document = render_text(filler(n, characters=60_000), "seer")
        pages = {page.number: page for page in document.pages[:6]}
        assert len(pages) == 6
        prompt = Turn(kind="prompt", text="What does it say?", pages=tuple(pages))
        call = Turn(kind="call", pages=(3,))
        excerpt = Excerpt(page=3, start=document.page(3).start, text=document.page(3).text)
        engine.generate([Request(Conversation((prompt,), pages), "warm", sampling=Sampling(1))]) if n == 0 else None
        stage1 = Request(Conversation((prompt,), pages), str(n), sampling=Sampling(1))
        stage2 = Request(Conversation((prompt, call, observation([excerpt])), pages), str(n), sampling=Sampling(1))
        started = time.perf_counter()
        (one,) = engine.generate([stage1])
        between = time.perf_counter()
        (two,) = engine.generate([stage2])
        first.append(between - started)
        second.append(time.perf_counter() - between)
        reused.append(two.cached_tokens / one.prompt_tokens)
        engine.forget(str(n))
        third.append(passage_stage(engine, stage1, stage2, excerpt))
    ratio = statistics.median(b / a for a, b in zip(first, second, strict=True))
    print(f"\nTwo stages, 6 pages, small model, median of {repeats}")
    print(f"  stage 1: {one.prompt_tokens:,} tokens, first token after {statistics.median(first):.3f} s")
    print(
        f"  stage 2: {two.prompt_tokens - two.cached_tokens:,} new of {two.prompt_tokens:,} tokens, "
        f"{two.cached_tokens:,} reused,"
    )
    print(f"           first token after {statistics.median(second):.3f} s ({ratio:.1%} of stage 1)")
    passages = statistics.median(third)
    print(f"           with {PASSAGE_TOKENS:,} retrieved tokens: {passages:.1%} of stage 1")
    return {
        "stage2_reuse": round(min(reused), 4),
        "stage2_ttft_ratio": round(ratio, 4),
        "stage2_ttft_ratio_passages": round(passages, 4),
    }


def passage_stage(engine: HFEngine, stage1: Request, stage2: Request, excerpt: Excerpt) -> float:
    """Return the time to first token of the second stage with PASSAGE_TOKENS retrieved tokens, relative to the first."""
    from seer.protocol.turns import observation
    from seer.schema import Excerpt

    # Tokens grow with characters, so the longest beginning of the page's text within the limit is found by halving.
    low, high = 0, len(excerpt.text)
    while low < high:
        middle = (low + high + 1) // 2
        fits = engine.encoder.count_text(excerpt.text[:middle]) <= PASSAGE_TOKENS
        low, high = (middle, high) if fits else (low, middle - 1)
    shown = observation([Excerpt(page=excerpt.page, start=excerpt.start, text=excerpt.text[:low])])
    turns = (*stage2.prompt.turns[:-1], shown)
    started = time.perf_counter()
    engine.generate([replace(stage1, session="passages")])
    between = time.perf_counter()
    engine.generate([replace(stage2, session="passages", prompt=replace(stage2.prompt, turns=turns))])
    ended = time.perf_counter()
    engine.forget("passages")
    return (ended - between) / (between - started)


# ── 2. Encoding ──────────────────────────────────────────────────────────────────────────────────


def bench_encoding(count: int) -> dict[str, float]:
    """Encode `count` conversations of about 8k tokens on one thread, and return the seconds scaled to 1,000."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from seer.models.small import default_corpus, train_tokenizer
    from seer.protocol.encoding import Encoder
    from seer.protocol.turns import observation
    from seer.rendering import render_text
    from seer.schema import Excerpt, Turn

    encoder = Encoder(train_tokenizer(default_corpus(), 2048))
    document = render_text(filler(0, characters=60_000), "seer")
    pages = tuple(page.number for page in document.pages[:8])
    sizes = {page.number: (page.width_px, page.height_px) for page in document.pages}
    shown = [Excerpt(page=n, start=document.page(n).start, text=document.page(n).text) for n in (2, 5)]
    think = filler(1, characters=3_000)
    times, length = {}, 0
    for size in (count // 4, count):
        started = time.perf_counter()
        for n in range(size):
            turns = (
                Turn(kind="prompt", text=f"Question {n}?", pages=pages),
                Turn(kind="call", pages=(2, 5)),
                observation(shown),
                Turn(kind="think", text=f"{n} {think}"),
                Turn(kind="answer", text="It says so."),
            )
            encoded = encoder.encode(turns, sizes)
            encoded.positions()
            length = len(encoded)
        times[size] = time.perf_counter() - started
    seconds = times[count] * 1000 / count
    growth = times[count] / times[count // 4] / 4
    print(
        f"\nEncoding with positions: {length:,} tokens a conversation, 1,000 in {seconds:.1f} s; linear within {growth - 1:+.0%}"
    )
    return {"encode_1000_s": round(seconds, 2)}


# ── 3. Tokens saved ──────────────────────────────────────────────────────────────────────────────


def bench_compression(data: Path, limit: int | None) -> dict[str, float | int | None]:
    """Print the ratio of each task and style, and return the means. `limit`: records of each task."""
    if not data.is_dir():
        print(f"\nNo records at {data}: the token table is left out")
        keys = ("compression_mean", "compression_mean_best", "compression_paper", "records_over_text")
        return dict.fromkeys(keys)
    tables = {style: token_table(data, style, limit) for style in STYLES}
    tasks = sorted(next(iter(tables.values()))[0])
    print("\nFull-text prompt / prompt in mode auto, per task; text counted by tekken, BM25 selecting 1.59 pages")
    print(f"  {'task':22}" + "".join(f"{style:>9}" for style in STYLES))
    for task in tasks:
        print(f"  {task:22}" + "".join(f"{tables[style][0][task]:9.2f}" for style in STYLES))
    means = {style: statistics.mean(tables[style][0].values()) for style in STYLES}
    print(f"  {'mean over tasks':22}" + "".join(f"{means[style]:9.2f}" for style in STYLES))
    print(f"  {'records over full text':22}" + "".join(f"{tables[style][1]:9d}" for style in STYLES))
    return {
        "compression_mean": round(means["seer"], 3),
        "compression_mean_best": round(max(means[style] for style in BEST_OF), 3),
        "compression_paper": round(means["paper"], 3),
        "records_over_text": sum(over for _, over in tables.values()),
    }


def token_table(data: Path, style: str, limit: int | None) -> tuple[dict[str, float], int]:
    """Return ({task: full-text tokens / prompt tokens}, number of records whose prompt exceeds the full text).

    The ratio of a task is that of its means, as in the paper's Table 2. Page budgets alternate between 1 and 2 so that
    their mean is 1.59, counted in the pages of each style.
    """
    from seer.engines.scripted import ScriptedEngine, oracle_script
    from seer.evaluation.benchmarks.tasks import TASKS
    from seer.models.counting import tekken_encoder
    from seer.reading.conversation import converse
    from seer.reading.policy import ReadingPolicy
    from seer.reading.reader import read_batch
    from seer.rendering import render_text
    from seer.rendering.styles import with_newline
    from seer.selection.base import build_selector

    engine = ScriptedEngine(oracle_script(answer="x"), tekken_encoder(), max_positions=10**7)
    selector = build_selector("bm25")
    ratios, over, seen = {}, 0, 0
    for file in sorted(data.glob("*.jsonl")):
        full = prompt = 0
        for line in file.read_text(encoding="utf-8").splitlines()[:limit]:
            record = json.loads(line)
            budget = int((seen + 1) * MEAN_PAGES) - int(seen * MEAN_PAGES)
            seen += 1
            question = record["input"].strip() or "Summarise the text."
            policy = ReadingPolicy(mode="auto", selector_pages=budget)
            document = render_text(record["context"], with_newline(style, TASKS[file.stem].newline))
            usage = read_batch([converse(document, question, engine, selector, policy)], engine)[0].usage
            full, prompt = full + usage.full_text, prompt + usage.prompt
            over += usage.prompt > usage.full_text
        ratios[file.stem] = full / prompt
    return ratios, over


# ── 4. The paper's pages ─────────────────────────────────────────────────────────────────────────


def bench_pages(data: Path, limit: int | None) -> dict[str, float | None]:
    """Compare pages and vision tokens in style `paper` with the paper's.

    Pages are weighted by the tasks' records in the full benchmark, tokens are the mean over tasks, as in the paper.
    """
    if not data.is_dir():
        return {"pages_per_sample": None, "vision_tokens_paper": None}
    from seer.evaluation.benchmarks.tasks import TASKS

    print(f"\nStyle paper, a record\n  {'task':22}{'newline':>9}{'records':>9}{'pages':>9}{'tokens':>9}")
    measured = {}
    for file in sorted(data.glob("*.jsonl")):
        task = TASKS[file.stem]
        contexts = [json.loads(line)["context"] for line in file.read_text(encoding="utf-8").splitlines()[:limit]]
        pages, tokens = page_means(contexts, task.newline)
        measured[task.name] = (pages, tokens)
        print(f"  {task.name:22}{task.newline:>9}{len(contexts):9d}{pages:9.2f}{tokens:9.0f}")
    weights = {name: TASKS[name].num_records for name in measured}
    per_sample = sum(pages * weights[name] for name, (pages, _) in measured.items()) / sum(weights.values())
    mean_tokens = statistics.mean(tokens for _, tokens in measured.values())
    print(f"  pages a sample of {sum(weights.values()):,}: {per_sample:.2f}, the paper's: {PAPER_PAGES}")
    print(f"  vision tokens, mean over tasks: {mean_tokens:,.1f}, the paper's whole prompt: {PAPER_PROMPT_TOKENS:,}")
    return {"pages_per_sample": round(per_sample, 3), "vision_tokens_paper": round(mean_tokens, 1)}


def page_means(contexts: list[str], newline: NewlineMode | None) -> tuple[float, float]:
    """(mean pages, mean vision tokens) of the texts in style `paper` with a task's newline mode."""
    from seer.rendering.plan import plan
    from seer.rendering.styles import with_newline

    rows = [plan(context, [with_newline("paper", newline)])[0] for context in contexts]
    return statistics.mean(row.pages for row in rows), statistics.mean(row.vision_tokens for row in rows)


def filler(seed: int, characters: int) -> str:
    """Return prose that differs by seed: sentences of the sample text in random order."""
    import random

    from seer.models.small import SAMPLE_PATH

    sentences = [s.strip() for s in SAMPLE_PATH.read_text(encoding="utf-8").replace("\n", " ").split(". ") if s.strip()]
    draw = random.Random(seed)
    text = ""
    while len(text) < characters:
        text += draw.choice(sentences) + ". "
    return text[:characters]


if __name__ == "__main__":
    main()
