"""Estimate what a build will cost before anything is sent: calls, tokens, hours and money, by source and teacher.

    estimate = estimate_build(config)
    print(estimate.table())

The estimate reads the first samples that the build would read, lays out their pages and counts the tokens of the requests
that the build would send. How many records pass each phase, how long replies are and how fast teachers work is assumed;
the ledger and the statistics of a pilot (`seer-data build --limit`) replace assumptions by measurements. The leakage guard
is not applied: it removes few records.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

from data_pipeline.collect import STATISTICS_NAME
from data_pipeline.progress import rows_of
from data_pipeline.records import PageSpan, Rejected, Rejection, Sample
from data_pipeline.settings import BuildConfig, SourceSpec
from data_pipeline.sources.posing import SUMMARY_WORDS, posed_question
from data_pipeline.sources.registry import load_source
from data_pipeline.steps.annotate import answer_spans, evidence_pages
from data_pipeline.steps.lengths import LengthLimit
from data_pipeline.steps.paging import Paginate, layout_pages, newline_of, pages_overlapping
from data_pipeline.steps.process import LEDGER_NAME
from data_pipeline.steps.prompts import reason_chat
from seer.engines.base import Chat
from seer.errors import ConfigError, InputError
from seer.models.counting import TextCounter, load_counter
from seer.rendering import resolve_style
from seer.teaching.settings import TeacherSpec
from seer.teaching.verdicts import judge_chat

ROLES = ("judge", "reason")
TOKENS_PER_MESSAGE = 4
"""Tokens of a chat template around each message, about."""


@dataclass(frozen=True)
class Assumptions:
    """What a sample of the sources cannot show. All values are ours, not measurements, unless a pilot replaced them."""

    samples: int = 20
    """Samples that are read from each source."""
    phase1: float = 0.8
    """Fraction of judged records with at least one necessary page."""
    phase2: float = 0.327
    """Fraction of these that the teacher answers correctly; the paper keeps 10,041 of 30,697."""
    judge_reply_tokens: float = 3.0
    reason_reply_tokens: float = 1500.0
    judge_prompt_tps: float = 30_000.0
    """Prompt tokens a second that the judge's server reads at full load."""
    judge_reply_tps: float = 3_000.0
    reason_prompt_tps: float = 8_000.0
    reason_reply_tps: float = 2_500.0
    usd_per_hour: float = 0.0
    """Price of the machines that serve the teachers."""


@dataclass(frozen=True)
class Pilot:
    """Measurements of a pilot: reply tokens and seconds of a call by role, and the retention of each source."""

    reply_tokens: Mapping[str, float]
    call_seconds: Mapping[str, float]
    phase1: Mapping[str, float]
    phase2: Mapping[str, float]


@dataclass(frozen=True)
class Work:
    """The calls of one teacher: their number and their tokens."""

    calls: float = 0.0
    prompt_tokens: float = 0.0
    reply_tokens: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Work)))


@dataclass(frozen=True)
class SourceEstimate:
    """The estimate of one source."""

    name: str
    sampled: int
    admitted: int
    """Samples that are short enough to be judged."""
    pages: float
    """Mean number of pages of these."""
    records: float
    """Records that will be judged; infinite if the number of rows is unknown and neither target nor limit is set."""
    kept: float
    judge: Work
    reason: Work


@dataclass(frozen=True)
class Estimate:
    """The estimate of a build."""

    sources: tuple[SourceEstimate, ...]
    hours: Mapping[str, float]
    """Hours of each teacher at full load; both work at the same time."""
    usd: float
    assumptions: Assumptions
    measured: bool
    """True if a pilot replaced assumptions."""

    def as_json(self) -> dict[str, Any]:
        """Return the estimate as JSON values; an unknown number is null."""
        values = {
            "sources": [asdict(source) for source in self.sources],
            "hours": dict(self.hours),
            "usd": self.usd,
            "assumptions": asdict(self.assumptions),
            "measured": self.measured,
        }
        result: dict[str, Any] = json.loads(json.dumps(values), parse_constant=lambda name: None)
        return result

    def table(self) -> str:
        """Return the estimate as plain text."""
        names = ("judged", "kept", "pages", "judge calls", "tokens", "reason calls", "tokens")
        lines = [f"{'source':<16}" + "".join(f"{name:>14}" for name in names)]
        total = [0.0] * len(names)
        for source in self.sources:
            judge, reason = source.judge, source.reason
            judge_tokens, reason_tokens = (work.prompt_tokens + work.reply_tokens for work in (judge, reason))
            values = (source.records, source.kept, source.pages, judge.calls, judge_tokens, reason.calls, reason_tokens)
            total = [a + b for a, b in zip(total, values, strict=True)]
            lines.append(f"{source.name[:16]:<16}" + "".join(f"{_number(value):>14}" for value in values))
        total[2] = math.nan
        lines.append(f"{'all':<16}" + "".join(f"{_number(value):>14}" for value in total))
        for role, hours in self.hours.items():
            lines.append(f"{role}: {_number(hours, 1)} hours at full load")
        lines.append(f"cost: ${_number(self.usd, 2)}")
        origin = "measured by the pilot where it can" if self.measured else "not measured"
        assumed = ", ".join(f"{name}={value:g}" for name, value in asdict(self.assumptions).items())
        lines.append(f"assumptions ({origin}; change with --assume NAME=VALUE): {assumed}")
        return "\n".join(lines)


def _number(value: float, digits: int = 0) -> str:
    return "" if math.isnan(value) else "unknown" if math.isinf(value) else f"{value:,.{digits}f}"


def estimate_build(
    config: BuildConfig,
    assumptions: Assumptions | None = None,
    pilot: Pilot | None = None,
    paginate: Paginate | None = None,
) -> Estimate:
    """Estimate a build from the first samples of each source. Nothing is sent and nothing is written.

    Raises what `load_source` raises, InputError if the page style is unknown, and ModelError if `tokenizer` is unusable.
    """
    assumed = assumptions or Assumptions()
    reader = _Reader(config, paginate or layout_pages(resolve_style(config.style)))
    sources = tuple(_estimate_source(reader, spec, assumed, pilot) for spec in config.sources)
    work = {role: sum((getattr(source, role) for source in sources), Work()) for role in ROLES}
    specs = {"judge": config.judge.teacher, "reason": config.reason.teacher}
    hours = {role: _hours(work[role], role, assumed, pilot, specs[role]) for role in ROLES}
    usd = sum(_usd(work[role], specs[role]) for role in ROLES)
    if assumed.usd_per_hour:
        # Both teachers work at the same time.
        usd += max(hours.values()) * assumed.usd_per_hour
    return Estimate(sources, hours, usd, assumed, pilot is not None)


class _Reader:
    """Turns samples into the requests that a build would send and counts their tokens."""

    def __init__(self, config: BuildConfig, paginate: Paginate) -> None:
        self.config, self.paginate = config, paginate
        self.limit = LengthLimit(config.max_tokens, config.tokenizer)
        self.counter: TextCounter = load_counter(None)

    def samples(self, spec: SourceSpec, count: int) -> tuple[list[Sample], int]:
        """Return the first samples of a source, and the number of its records that were rejected before them."""
        samples: list[Sample] = []
        rejected = 0
        wanted = spec.model_copy(update={"limit": min(count, spec.limit or count)})
        # A source whose first records are all broken must not be read to its end.
        for item in islice(load_source(wanted, seed=self.config.seed), 50 * count):
            rejected += isinstance(item, Rejection)
            samples += [item] if isinstance(item, Sample) else []
        return samples, rejected

    def tokens(self, chat: Chat) -> int:
        return sum(self.counter.count(message.text) + TOKENS_PER_MESSAGE for message in chat.messages)

    def admitted_pages(self, sample: Sample) -> Sequence[PageSpan] | None:
        """Return the pages of a sample, or None if it is rejected before it is judged."""
        pages = self.paginate(sample.context, newline_of(sample))
        if len(pages) > self.config.max_pages or not (sample.answerable or self.config.judge.keep_unanswerable):
            return None
        try:
            self.limit.check_pages(sample, pages)
        except Rejected:
            return None
        return pages

    def judge_work(self, sample: Sample, pages: Sequence[PageSpan]) -> Work:
        # Pages with equal text are one call.
        texts = {sample.context[page.start : page.end] for page in pages}
        prompts = [judge_chat(sample.question, sample.answers, text) for text in sorted(texts)]
        return Work(len(prompts), sum(map(self.tokens, prompts)))

    def reason_work(self, sample: Sample, pages: Sequence[PageSpan]) -> Work | None:
        """Return the work for one reply, or None if the retrieved text makes the record too long.

        The necessary pages are those with the source's evidence, or those with an answer, or all: a summary needs all.
        """
        relevant = evidence_pages(sample, pages) or pages_overlapping(answer_spans(sample), pages)
        relevant = relevant or tuple(page.number for page in pages)
        try:
            self.limit.check_retrieved(sample, pages, relevant)
        except Rejected:
            return None
        by_number = {page.number: page for page in pages}
        selected = [(n, sample.context[by_number[n].start : by_number[n].end]) for n in relevant]
        words = SUMMARY_WORDS.get(sample.task, 0)
        prompt = reason_chat(posed_question(sample), sample.kind, sample.context, selected, words)
        return Work(1, self.tokens(prompt))


def _estimate_source(reader: _Reader, spec: SourceSpec, assumed: Assumptions, pilot: Pilot | None) -> SourceEstimate:
    samples, rejected = reader.samples(spec, assumed.samples)
    pages = [(sample, found) for sample in samples if (found := reader.admitted_pages(sample)) is not None]
    judged = sum((reader.judge_work(*item) for item in pages), Work())
    replies = [work for item in pages if (work := reader.reason_work(*item)) is not None]
    phase1 = pilot.phase1.get(spec.label, assumed.phase1) if pilot else assumed.phase1
    phase2 = pilot.phase2.get(spec.label, assumed.phase2) if pilot else assumed.phase2
    admitted = len(pages) / len(samples) if samples else 0.0
    # A pilot's retention already contains the records that the retrieved text makes too long.
    fits = len(replies) / len(pages) if pages and not (pilot and spec.label in pilot.phase1) else 1.0
    phase1 *= fits
    available = _available(spec, samples, rejected) * admitted
    needed = spec.target / (phase1 * phase2) if spec.target and phase1 * phase2 else math.inf
    records = min(available, needed) if pages else 0.0
    draws = _draws(phase2, reader.config.reason.samples)
    uses_judge, uses_reason = (part.kind == "teacher" for part in (reader.config.judge, reader.config.reason))
    return SourceEstimate(
        spec.label,
        len(samples),
        len(pages),
        sum(len(found) for _, found in pages) / len(pages) if pages else 0.0,
        records,
        records * phase1 * phase2 if phase1 * phase2 else 0.0,
        _scaled(judged, len(pages), records, _reply_tokens("judge", assumed, pilot)) if uses_judge else Work(),
        _scaled(sum(replies, Work()), len(replies), records * phase1 * draws, _reply_tokens("reason", assumed, pilot))
        if uses_reason
        else Work(),
    )


def _scaled(work: Work, count: int, records: float, reply_tokens: float) -> Work:
    """Return the work of `count` sampled records scaled to `records`."""
    if not count or not records:
        return Work()
    factor = records / count
    return Work(work.calls * factor, work.prompt_tokens * factor, work.calls * factor * reply_tokens)


def _draws(correct: float, samples: int) -> float:
    """Return the mean number of replies drawn for a record, if each is correct with this probability."""
    return sum((1 - correct) ** draw for draw in range(samples))


def _available(spec: SourceSpec, samples: Sequence[Sample], rejected: int) -> float:
    """Return the number of samples that a source holds, as far as it can be told cheaply; else infinity."""
    if spec.limit is not None:
        return float(spec.limit)
    rows = rows_of(spec)
    read = len(samples) + rejected
    return math.inf if rows is None or not read else rows * len(samples) / read


def _reply_tokens(role: str, assumed: Assumptions, pilot: Pilot | None) -> float:
    value = float(getattr(assumed, f"{role}_reply_tokens"))
    return pilot.reply_tokens.get(role, value) if pilot else value


def _hours(work: Work, role: str, assumed: Assumptions, pilot: Pilot | None, spec: TeacherSpec | None) -> float:
    if not work.calls or spec is None:
        return 0.0
    if pilot and role in pilot.call_seconds:
        return work.calls * pilot.call_seconds[role] / spec.concurrency / 3600
    prompt_s = work.prompt_tokens / float(getattr(assumed, f"{role}_prompt_tps"))
    return (prompt_s + work.reply_tokens / float(getattr(assumed, f"{role}_reply_tps"))) / 3600


def _usd(work: Work, spec: TeacherSpec | None) -> float:
    if not work.calls or spec is None:
        return 0.0
    if math.isinf(work.calls):
        # Infinitely many tokens at a price of 0 are not a number.
        priced = spec.usd_per_million_prompt_tokens or spec.usd_per_million_completion_tokens
        return math.inf if priced else 0.0
    prompt = work.prompt_tokens * spec.usd_per_million_prompt_tokens
    return (prompt + work.reply_tokens * spec.usd_per_million_completion_tokens) / 1e6


# ── What is measured, what is assumed ────────────────────────────────────────────────────────────


def parse_assumptions(given: Sequence[str]) -> Assumptions:
    """Parse --assume options: `phase2=0.4` sets that field.

    Raises ConfigError if a part is not NAME=NUMBER with a known name and a value in range.
    """
    assumed = Assumptions()
    types: dict[str, type] = {field.name: type(field.default) for field in fields(Assumptions)}
    for part in given:
        name, _, text = part.partition("=")
        try:
            value = types[name.strip()](text)
        except (KeyError, ValueError):
            raise ConfigError(f"--assume '{part}': must be NAME=NUMBER with NAME one of {', '.join(types)}") from None
        is_fraction = name.strip() in ("phase1", "phase2")
        if not 0 <= value < math.inf or (value == 0 and name.strip() != "usd_per_hour") or (is_fraction and value > 1):
            raise ConfigError(f"--assume '{part}': must be above 0{' and at most 1' if is_fraction else ''}")
        assumed = replace(assumed, **{name.strip(): value})
    return assumed


def read_pilot(folder: str | Path) -> Pilot:
    """Read the ledger and the statistics of a finished pilot. Raises InputError if one is missing or unreadable."""
    place = Path(folder)
    calls: dict[str, list[tuple[float, float]]] = defaultdict(list)
    phase1, phase2 = {}, {}
    try:
        for line in (place / LEDGER_NAME).read_bytes().splitlines():
            values = json.loads(line)
            calls[values["role"]].append((values["completion_tokens"], values["seconds"]))
        for name, source in json.loads((place / STATISTICS_NAME).read_bytes())["sources"].items():
            kept = source["retention"]
            if kept["render"] and kept["judge"]:
                phase1[name], phase2[name] = kept["judge"] / kept["render"], kept["reason"] / kept["judge"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"'{folder}' is not a finished build with teachers ({error}); pass the pilot's --out"
        ) from None
    means = {role: [sum(part) / len(pairs) for part in zip(*pairs, strict=True)] for role, pairs in calls.items()}
    return Pilot(
        {role: mean[0] for role, mean in means.items()}, {role: mean[1] for role, mean in means.items()}, phase1, phase2
    )
