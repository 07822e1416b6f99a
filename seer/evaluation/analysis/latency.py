"""Latency: the seconds recorded by a run, and the paper's protocol (A.7) for measuring prefill separately.

Each prediction has its total seconds and, in its trace, the seconds and tokens of every turn. The summary reports
medians, because a few samples run to the token limit, and counts the slow samples instead of hiding them in a mean.
Times are comparable only at the same batch size and concurrency, which the run's manifest records; the paper's are for
one sample at a time.

A prefill probe generates one token on a cold cache. The decode rate of a sample is then the number of tokens after the
first divided by the time that remains after the prefill.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from seer.evaluation.runs.probing import PrefillProbe
from seer.schema import Prediction, Status

SLOW_SECONDS = 30.0
"""The paper counts samples that take longer."""


@dataclass(frozen=True)
class LatencySummary:
    """Latency over answered samples: medians, unless stated otherwise; None if there is no measurement."""

    num_samples: int
    seconds: float | None
    p90_seconds: float | None
    num_slow: int
    completion_tokens: float | None
    generate_tokens_per_s: float | None
    """Completion tokens per second including the prefill: a lower bound of the decode rate."""
    prefill_seconds: float | None = None
    decode_tokens_per_s: float | None = None
    """Only for runs with probes."""


def latency_summary(
    predictions: Iterable[Prediction], probes: Mapping[str, PrefillProbe] | None = None
) -> LatencySummary:
    """Summarise the predictions of a run; `probes` are by input id."""
    answered = [one for one in predictions if one.status is not Status.FAILED and one.seconds > 0]
    seconds = [one.seconds for one in answered]
    rates = [rate for one in answered if (rate := _generate_rate(one)) is not None]
    held = [probes[one.id] for one in answered if probes and one.id in probes]
    # The probe covers the prefill and the first token, so the remaining tokens took the remaining time.
    decode = [
        (one.usage.completion - 1) / (one.seconds - probes[one.id].seconds)
        for one in answered
        if probes and one.id in probes and one.usage.completion > 1 and one.seconds > probes[one.id].seconds
    ]
    return LatencySummary(
        num_samples=len(answered),
        seconds=_median(seconds),
        p90_seconds=_quantile(seconds, 0.9),
        num_slow=sum(second > SLOW_SECONDS for second in seconds),
        completion_tokens=_median([one.usage.completion for one in answered]),
        generate_tokens_per_s=_median(rates),
        prefill_seconds=_median([probe.seconds for probe in held]),
        decode_tokens_per_s=_median(decode),
    )


@dataclass(frozen=True)
class PrefillBucket:
    """Prefill of prompts with between `least_tokens` and twice as many tokens (table 14)."""

    least_tokens: int
    num_probes: int
    median_tokens: float
    median_seconds: float


def prefill_by_length(probes: Iterable[PrefillProbe]) -> list[PrefillBucket]:
    """Group probes by prompt length; the lower bounds of the groups are powers of two."""
    grouped: dict[int, list[PrefillProbe]] = {}
    for probe in probes:
        # The largest power of two that is at most the number of tokens.
        grouped.setdefault(1 << max(0, probe.prompt_tokens.bit_length() - 1), []).append(probe)
    return [
        PrefillBucket(
            least,
            len(group),
            float(statistics.median(probe.prompt_tokens for probe in group)),
            float(statistics.median(probe.seconds for probe in group)),
        )
        for least, group in sorted(grouped.items())
    ]


def _generate_rate(prediction: Prediction) -> float | None:
    # Tool calls and page drawing also take time; only steps with completion tokens belong to the generation.
    written = [step for step in prediction.trace if step.usage.completion]
    seconds = sum(step.seconds for step in written)
    return sum(step.usage.completion for step in written) / seconds if seconds > 0 else None


def _median(values: Sequence[float]) -> float | None:
    return float(statistics.median(values)) if values else None


def _quantile(values: Sequence[float], level: float) -> float | None:
    """Return a quantile, interpolated linearly between neighbours."""
    if not values:
        return None
    ordered = sorted(values)
    place = level * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
