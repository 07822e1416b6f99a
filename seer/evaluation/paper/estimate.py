"""Prompt tokens, completion tokens and cost of each planned run, without a model.

A few records of each task are laid out and counted with tekken, a production tokenizer, and scaled to the whole task. The
prompt counted is that of the last stage, since an engine with a prefix cache computes the shared beginning once. Completion
tokens of a model that thinks are the paper's median; of any other, the task's limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.benchmarks.tasks import Benchmark
from seer.evaluation.paper.execute import first_of_each_task
from seer.evaluation.paper.models import PageModel, PaperModels, TextModel
from seer.evaluation.paper.plan import LATENCY_RECORDS, PlannedRun

SAMPLE = 2
"""Records of each task that are counted."""
THINKING_COMPLETION = 381
"""The paper's median completion of Seer (table 13)."""
JUDGE_PROMPT_TOKENS = 200
"""Question, answer and instructions around the text of one page."""
_READING = {"seer": "select-2", "seer-k0": "visual", "visual": "visual", "prompted": "text"}
"""The row of the dry token tables that a system's prompt is closest to."""


@dataclass(frozen=True)
class Estimate:
    """Estimated size of one run. All zero for a run that calls no model."""

    num_inputs: int = 0
    prompt_tokens: float = 0.0
    completion_tokens: float = 0.0
    usd: float = 0.0


@dataclass(frozen=True)
class TaskSize:
    """Means of one task's records."""

    prompts: Mapping[str, float]
    """Prompt tokens by reading: visual, select-2 and text."""
    retrieved: float
    """Retrieved tokens of one page."""
    max_new_tokens: int


def measure_tasks(
    records: Sequence[LongBenchRecord], benchmark: Benchmark, models: PaperModels, sample: int = SAMPLE
) -> dict[str, TaskSize]:
    """Return the mean prompt of each task by reading, counted on its first `sample` records."""
    from seer.evaluation.analysis.dryrun import dry_token_tables
    from seer.models.counting import tekken_encoder

    chosen = first_of_each_task(records, sample)
    tables = dry_token_tables(chosen, tekken_encoder(), models.style, benchmark=benchmark)
    return {
        name: TaskSize(
            {reading: tables[reading].tasks[name].prompt for reading in ("visual", "select-2", "text")},
            tables["select-1"].tasks[name].retrieved,
            benchmark.find(name).max_new_tokens,
        )
        for name in tables["visual"].tasks
    }


def estimate(
    run: PlannedRun, records: Sequence[LongBenchRecord], sizes: Mapping[str, TaskSize], models: PaperModels
) -> Estimate:
    """Return the size of a run; `sizes` are those of `measure_tasks`."""
    if run.missing or run.job == "foreign":
        return Estimate()
    if run.job == "prefill":
        return _estimate_prefill(sizes, models)
    counts = Counter(record.task for record in records)
    if run.job == "labels":
        return _estimate_labels(counts, sizes, models)
    if run.job == "latency":
        counts = Counter({name: min(number, LATENCY_RECORDS) for name, number in counts.items()})
    served = models.served(run.model)
    assert isinstance(served, PageModel | TextModel)
    thinks = served.thinks if isinstance(served, TextModel) else served.reasoning_tokens > 0
    limit = served.max_context_tokens if isinstance(served, TextModel) else None
    prompt = completion = 0.0
    for name, number in counts.items():
        size = sizes[name]
        one = (
            size.prompts["text"] + size.prompts["visual"]
            if run.selector == "all"
            else size.prompts[_READING[run.system]]
        )
        prompt += number * (min(one, limit) if limit else one)
        completion += number * (THINKING_COMPLETION if thinks else size.max_new_tokens)
    usd = prompt * served.usd_per_million_prompt_tokens + completion * served.usd_per_million_completion_tokens
    return Estimate(sum(counts.values()), prompt, completion, usd / 1e6)


def _estimate_labels(counts: Mapping[str, int], sizes: Mapping[str, TaskSize], models: PaperModels) -> Estimate:
    judge = models.judge
    assert judge is not None
    # Every page is one call: the document's text once, and the words around each page.
    calls = 0.0
    for name, number in counts.items():
        calls += number * max(1.0, sizes[name].prompts["text"] / max(1.0, sizes[name].retrieved))
    prompt = sum(number * sizes[name].prompts["text"] for name, number in counts.items()) + calls * JUDGE_PROMPT_TOKENS
    completion = calls * (THINKING_COMPLETION if judge.max_tokens > THINKING_COMPLETION else 4)
    usd = prompt * judge.usd_per_million_prompt_tokens + completion * judge.usd_per_million_completion_tokens
    return Estimate(sum(counts.values()), prompt, completion, usd / 1e6)


def _estimate_prefill(sizes: Mapping[str, TaskSize], models: PaperModels) -> Estimate:
    pages = sum(models.prefill_pages) * models.prefill_repetitions
    # The mean page of the benchmark, as text and as an image.
    text = sum(size.retrieved for size in sizes.values()) / len(sizes)
    ratios = [size.prompts["visual"] / size.prompts["text"] for size in sizes.values() if size.prompts["text"]]
    visual = text * sum(ratios) / len(ratios) if ratios else 0.0
    num_prompts = 2 * len(models.prefill_pages) * models.prefill_repetitions
    served = models.seer
    price = served.usd_per_million_prompt_tokens if served else 0.0
    prompt = pages * (text + visual)
    return Estimate(num_prompts, prompt, num_prompts, prompt * price / 1e6)
