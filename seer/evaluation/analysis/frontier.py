"""Accuracy against cost: runs over print densities and retrieval budgets, and the Pareto front among them.

    specs = frontier_specs(densities(["seer"], fonts_pt=[9, 7]), budgets([0, 1, 4], [512]))
    for spec in specs: run_spec(spec, records, options, out, engines, model)
    points = mark_front([measure(spec, load_run(out / spec.name), records) for spec in specs])

A density is a page style: smaller print means fewer pages and vision tokens. A budget limits the exact text that may be
retrieved; a budget of 0 pages is reading from images only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seer.errors import InputError
from seer.evaluation.analysis.scored_run import ScoredRun
from seer.evaluation.analysis.tokens import token_table
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.benchmarks.tasks import build_context
from seer.evaluation.runs.sweep import RunSpec
from seer.schema import PageStyle

TEXT = RunSpec("text", "text")
"""The whole document as text: the baseline of every frontier."""


@dataclass(frozen=True)
class RetrievalBudget:
    """The limit on the exact text of one question: pages per call, and optionally tokens."""

    pages: int
    """0 for page images only."""
    tokens: int | None = None

    @property
    def label(self) -> str:
        """The budget in names of runs, such as `k4-t512`."""
        if not self.pages:
            return "pictures"
        return f"k{self.pages}" if self.tokens is None else f"k{self.pages}-t{self.tokens}"


@dataclass(frozen=True)
class Point:
    """One run of the sweep. Tokens are means of the task means."""

    run: str
    density: str
    budget: str
    characters_per_vision_token: float | None
    """Measured print density; None if the run shows no images."""
    score: float
    """Mean of the category means, 0 to 100."""
    prompt_tokens: float
    visual_tokens: float
    retrieved_tokens: float
    compression: float
    num_inputs: int
    num_failed: int
    is_on_front: bool = False
    """True if no other run is better in score or tokens without being worse in the other."""


# ── Runs of a sweep ──────────────────────────────────────────────────────────────────────────────


def densities(
    styles: Sequence[str | PageStyle], fonts_pt: Sequence[float] = (), pages_px: Sequence[tuple[int, int]] = ()
) -> list[PageStyle]:
    """Return each style with each font size and page size; an empty sequence keeps the style's own.

    The line height changes in proportion to the font size.
    """
    from seer.rendering import resolve_style

    made = []
    for base in map(resolve_style, styles):
        for font in fonts_pt or (base.font_size_pt,):
            for width, height in pages_px or ((base.page_width_px, base.page_height_px),):
                changes: dict[str, Any] = {}
                # Set only what changes, so that unchanged sizes keep their exact values.
                if font != base.font_size_pt:
                    ratio = font / base.font_size_pt
                    changes |= {"font_size_pt": font, "line_height_pt": base.line_height_pt * ratio}
                if (width, height) != (base.page_width_px, base.page_height_px):
                    changes |= {"page_width_px": width, "page_height_px": height}
                name = f"{base.name}-{font:g}pt" + (f"-{width}x{height}" if pages_px else "")
                made.append(resolve_style(base, **changes, name=name))
    return made


def budgets(pages: Sequence[int], tokens: Sequence[int] = ()) -> list[RetrievalBudget]:
    """Return one budget per number of pages, and one per token limit with the largest number of pages.

    Raises InputError if there is no number of pages, one is negative, or tokens are limited without pages.
    """
    if not pages or min(pages) < 0:
        raise InputError(f"budgets of {list(pages)} pages: give at least one number, from 0 (images only)")
    most = max(pages)
    if tokens and not most:
        raise InputError("a limit on retrieved tokens needs pages to retrieve; give a number of pages above 0")
    by_pages = [RetrievalBudget(number) for number in sorted(set(pages))]
    return [*by_pages, *(RetrievalBudget(most, limit) for limit in sorted(set(tokens)))]


def frontier_specs(
    styles: Sequence[PageStyle], allowed: Sequence[RetrievalBudget], policy: Mapping[str, Any] | None = None
) -> list[RunSpec]:
    """Return a run for each pair of style and budget. All runs share the settings of `policy`."""
    shared = dict(policy or {})
    return [
        RunSpec(f"{style.name}-{budget.label}", "visual", shared, style)
        if not budget.pages
        else RunSpec(
            f"{style.name}-{budget.label}",
            "seer",
            {**shared, "max_pages": budget.pages, "max_retrieved_tokens": budget.tokens},
            style,
        )
        for style in styles
        for budget in allowed
    ]


# ── Points ───────────────────────────────────────────────────────────────────────────────────────


def measure(spec: RunSpec, run: ScoredRun, records: Sequence[LongBenchRecord]) -> Point:
    """Return the point of a finished run; `records` give the lengths of its documents in characters."""
    spent = token_table(run.predictions).overall
    lengths = {
        (one.task, one.id): len(build_context(run.report.benchmark.find(one.task), one.input, one.context))
        for one in records
    }
    # Records without images, such as failed ones, would distort the density.
    shown = [
        (lengths[one.task, one.id], one.usage.vision)
        for one in run.each()
        if one.usage.vision and (one.task, one.id) in lengths
    ]
    vision = sum(tokens for _, tokens in shown)
    is_text = spec.system == "text"
    style = spec.style if isinstance(spec.style, str) else spec.style.name
    return Point(
        run=spec.name,
        density="text" if is_text else style,
        budget="text" if is_text else spec.name.removeprefix(f"{style}-"),
        characters_per_vision_token=sum(length for length, _ in shown) / vision if vision else None,
        score=run.report.macro,
        prompt_tokens=spent.prompt,
        visual_tokens=spent.visual,
        retrieved_tokens=spent.retrieved,
        compression=spent.compression,
        num_inputs=run.report.num_inputs,
        num_failed=run.report.failures,
    )


def mark_front(points: Sequence[Point]) -> list[Point]:
    """Mark the points on the Pareto front of score (higher is better) and prompt tokens (lower is better)."""

    def is_dominated(point: Point) -> bool:
        # The inequality at the end keeps points with equal figures from removing each other from the front.
        return any(
            other.score >= point.score
            and other.prompt_tokens <= point.prompt_tokens
            and (other.score, -other.prompt_tokens) != (point.score, -point.prompt_tokens)
            for other in points
        )

    return [replace(point, is_on_front=not is_dominated(point)) for point in points]
