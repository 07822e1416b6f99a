"""Time: what a run's own clock says, and the paper's protocol (A.7) for measuring prefill apart.

Every prediction carries the seconds it took and, in its trace, the seconds and tokens of each turn. Medians are
reported because a few samples run to the token limit, and the tail is counted instead of hidden in a mean. Times are
only worth comparing at one batch size and one concurrency, which the run's manifest records; the paper's are for one
sample at a time.

A prefill probe is a generation of one token on a cold cache. With it, a sample's decode rate is the tokens after
the first over the time left after the prefill.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from seer.schema import Prediction, Status

SLOW_SECONDS = 30.0
"""The paper counts samples slower than this."""


@dataclass(frozen=True)
class LatencySummary:
    """Over samples that were answered. Figures are medians where nothing else is said; None where none is known."""

    num_samples: int
    seconds: float | None
    p90_seconds: float | None
    num_slow: int
    completion_tokens: float | None
    generate_tokens_per_s: float | None
    """Completion tokens over seconds, prefill included: a lower bound of the decode rate."""
    prefill_seconds: float | None = None
    decode_tokens_per_s: float | None = None
    """Only with probes."""


@dataclass(frozen=True)
class PrefillProbe:
    """One generation of one token on a cold cache."""

    id: str
    prompt_tokens: int
    seconds: float
    """From the request to the token."""
    prepare_seconds: float = 0.0
    """Laying out the document and drawing its pages, before the request."""


def latency_summary(
    predictions: Iterable[Prediction], probes: Mapping[str, PrefillProbe] | None = None
) -> LatencySummary:
    """Summarise a run; `probes` are by input id."""
    answered = [one for one in predictions if one.status is not Status.FAILED and one.seconds > 0]
    seconds = [one.seconds for one in answered]
    rates = [rate for one in answered if (rate := _generate_rate(one)) is not None]
    held = [probes[one.id] for one in answered if probes and one.id in probes]
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
    """Prefill of prompts of about one length (table 14)."""

    least_tokens: int
    num_probes: int
    median_tokens: float
    median_seconds: float


def prefill_by_length(probes: Iterable[PrefillProbe]) -> list[PrefillBucket]:
    """Probes grouped by length, each group twice as long as the one before it."""
    grouped: dict[int, list[PrefillProbe]] = {}
    for probe in probes:
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
    written = [step for step in prediction.trace if step.usage.completion]
    seconds = sum(step.seconds for step in written)
    return sum(step.usage.completion for step in written) / seconds if seconds > 0 else None


def _median(values: Sequence[float]) -> float | None:
    return float(statistics.median(values)) if values else None


def _quantile(values: Sequence[float], share: float) -> float | None:
    """Linear between neighbours."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
