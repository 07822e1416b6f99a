"""Token accounting: what each task's prompts hold, and how much of a full-text prompt they save.

Per task, the mean over its samples; over tasks, the plain mean of the tasks' means. The compression of a run is the
mean over tasks of each task's own ratio of means, full text to actual prompt, as in the paper's tables 2, 11 and 12.
It is not the quotient of the two overall means.

    textual    prompt tokens that are text, retrieved ones included
    visual     prompt tokens that are pictures
    retrieved  the part of `textual` that retrieval brought in
    prompt     textual + visual, in the last stage
    completion tokens that the model wrote
    full_text  what the prompt would hold with the whole document as text

Samples without a prompt, those that failed before one was made, are left out and counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from seer.evaluation.analysis.scored_run import Predictions
from seer.schema import Prediction


@dataclass(frozen=True)
class TokenRow:
    """Means over the samples of a task, or over tasks."""

    textual: float
    visual: float
    retrieved: float
    prompt: float
    completion: float
    full_text: float
    compression: float
    """Full text over prompt: above 1 means saved. 0 where there is no prompt or the full text was not counted."""
    num_samples: int
    num_left_out: int

    @property
    def is_dearer(self) -> bool:
        """Whether the prompts are larger than full text."""
        return 0 < self.compression < 1


@dataclass(frozen=True)
class TokenTable:
    tasks: Mapping[str, TokenRow]
    overall: TokenRow

    @property
    def num_dearer(self) -> int:
        """Tasks whose prompts are larger than full text."""
        return sum(row.is_dearer for row in self.tasks.values())


def token_table(predictions: Predictions, full_text: Mapping[str, float] | None = None) -> TokenTable:
    """Account for a run. `full_text` gives each task's mean full-text prompt where another run measured it."""
    tasks = {
        name: task_tokens(by_id.values(), None if full_text is None else full_text.get(name, 0.0))
        for name, by_id in predictions.items()
    }
    counted = [row for row in tasks.values() if row.num_samples]
    overall = TokenRow(
        textual=_mean([row.textual for row in counted]),
        visual=_mean([row.visual for row in counted]),
        retrieved=_mean([row.retrieved for row in counted]),
        prompt=_mean([row.prompt for row in counted]),
        completion=_mean([row.completion for row in counted]),
        full_text=_mean([row.full_text for row in counted]),
        compression=_mean([row.compression for row in counted if row.compression]),
        num_samples=sum(row.num_samples for row in tasks.values()),
        num_left_out=sum(row.num_left_out for row in tasks.values()),
    )
    return TokenTable(tasks, overall)


def task_tokens(predictions: Iterable[Prediction], full_text: float | None = None) -> TokenRow:
    """One task's means."""
    every = list(predictions)
    usages = [one.usage for one in every if one.usage.prompt]
    prompt = _mean([usage.prompt for usage in usages])
    baseline = _mean([usage.full_text for usage in usages]) if full_text is None else full_text
    return TokenRow(
        textual=_mean([usage.prompt - usage.vision for usage in usages]),
        visual=_mean([usage.vision for usage in usages]),
        retrieved=_mean([usage.retrieved for usage in usages]),
        prompt=prompt,
        completion=_mean([usage.completion for usage in usages]),
        full_text=baseline,
        compression=baseline / prompt if prompt else 0.0,
        num_samples=len(usages),
        num_left_out=len(every) - len(usages),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
