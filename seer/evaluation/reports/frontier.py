"""What accuracy costs: print density x retrieval budget, each pair an ordinary run, and which of them no other beats.

    variants = frontier_variants(densities(["seer"], fonts_pt=[9, 7]), budgets([0, 1, 4], [512]))
    for variant in variants: run_variant(variant, records, options, out, engines, model)
    points = mark_front([measure(variant, load_run(out / variant.name), records) for variant in variants])

A density is a page style: the smaller the print, the fewer pages and vision tokens. A budget is how much exact text may
be retrieved; none at all is pictures alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seer.errors import InputError
from seer.evaluation.analysis.runs import Run
from seer.evaluation.analysis.tokens import token_table
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.benchmarks.tasks import build_context
from seer.evaluation.reports.conditions import conditions
from seer.evaluation.reports.scores import runs_section
from seer.evaluation.runs.variants import Variant
from seer.schema import PageStyle
from seer.web.tables import Dot, Plot, Report, Section, Table, columns, row

TEXT = Variant("text", "text")
"""The whole document as text: what pictures are compared with."""


@dataclass(frozen=True)
class Budget:
    """How much text may be retrieved."""

    pages: int
    """0: pictures alone."""
    tokens: int | None = None

    @property
    def label(self) -> str:
        if not self.pages:
            return "pictures"
        return f"k{self.pages}" if self.tokens is None else f"k{self.pages}-t{self.tokens}"


@dataclass(frozen=True)
class Point:
    """One run of the sweep. Tokens are means of task means."""

    run: str
    density: str
    budget: str
    characters_per_vision_token: float | None
    """Print density as it turned out; None where nothing was shown as pictures."""
    score: float
    """Mean of categories, 0 to 100."""
    prompt_tokens: float
    visual_tokens: float
    retrieved_tokens: float
    compression: float
    num_inputs: int
    num_failed: int
    is_on_front: bool = False
    """No other run has as high a score for as few tokens."""


# ── What is swept ────────────────────────────────────────────────────────────────────────────────


def densities(
    styles: Sequence[str | PageStyle], fonts_pt: Sequence[float] = (), pages_px: Sequence[tuple[int, int]] = ()
) -> list[PageStyle]:
    """Every style in every font size (line height in proportion) on every page size; as it is where none is given."""
    from seer.rendering import resolve_style

    made = []
    for base in map(resolve_style, styles):
        for font in fonts_pt or (base.font_size_pt,):
            for width, height in pages_px or ((base.page_width_px, base.page_height_px),):
                changes: dict[str, Any] = {}
                if font != base.font_size_pt:
                    ratio = font / base.font_size_pt
                    changes |= {"font_size_pt": font, "line_height_pt": base.line_height_pt * ratio}
                if (width, height) != (base.page_width_px, base.page_height_px):
                    changes |= {"page_width_px": width, "page_height_px": height}
                name = f"{base.name}-{font:g}pt" + (f"-{width}x{height}" if pages_px else "")
                made.append(resolve_style(base, **changes, name=name))
    return made


def budgets(pages: Sequence[int], tokens: Sequence[int] = ()) -> list[Budget]:
    """A budget for each number of pages, and one for each cap of tokens, over the largest number of pages."""
    if not pages or min(pages) < 0:
        raise InputError(f"budgets of {list(pages)} pages arrived; give numbers from 0, which is pictures alone")
    most = max(pages)
    if tokens and not most:
        raise InputError("a cap of retrieved tokens needs a number of pages to retrieve; give one above 0")
    return [*(Budget(number) for number in sorted(set(pages))), *(Budget(most, cap) for cap in sorted(set(tokens)))]


def frontier_variants(
    styles: Sequence[PageStyle], allowed: Sequence[Budget], policy: Mapping[str, Any] | None = None
) -> list[Variant]:
    """A run for each pair. `policy`: what all runs share."""
    shared = dict(policy or {})
    return [
        Variant(f"{style.name}-{budget.label}", "visual", shared, style)
        if not budget.pages
        else Variant(
            f"{style.name}-{budget.label}",
            "seer",
            {**shared, "max_pages": budget.pages, "max_retrieved_tokens": budget.tokens},
            style,
        )
        for style in styles
        for budget in allowed
    ]


# ── What comes out ───────────────────────────────────────────────────────────────────────────────


def measure(variant: Variant, run: Run, records: Sequence[LongBenchRecord]) -> Point:
    spent = token_table(run.predictions).overall
    lengths = {
        (one.task, one.id): len(build_context(run.report.benchmark.find(one.task), one.input, one.context))
        for one in records
    }
    shown = [
        (lengths[one.task, one.id], one.usage.vision)
        for one in run.each()
        if one.usage.vision and (one.task, one.id) in lengths
    ]
    vision = sum(tokens for _, tokens in shown)
    is_text = variant.system == "text"
    style = variant.style if isinstance(variant.style, str) else variant.style.name
    return Point(
        run=variant.name,
        density="text" if is_text else style,
        budget="text" if is_text else variant.name.removeprefix(f"{style}-"),
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
    """Mark those that no other point beats: in one of score and tokens, without being worse in the other."""

    def is_beaten(point: Point) -> bool:
        return any(
            other.score >= point.score
            and other.prompt_tokens <= point.prompt_tokens
            and (other.score, -other.prompt_tokens) != (point.score, -point.prompt_tokens)
            for other in points
        )

    return [replace(point, is_on_front=not is_beaten(point)) for point in points]


def frontier_report(points: Sequence[Point], runs: Sequence[Run], note: str = "") -> Report:
    """A plot of score against prompt tokens, the table behind it, and how the runs were made."""
    dots = [Dot(one.prompt_tokens, one.score, one.budget, one.density, one.is_on_front) for one in points]
    rows = [
        row(
            *(one.density, one.budget, one.characters_per_vision_token, one.score, one.prompt_tokens),
            *(one.visual_tokens, one.retrieved_tokens, one.compression, "yes" if one.is_on_front else ""),
            *(one.num_inputs, one.num_failed),
        )
        for one in points
    ]
    heads = columns(
        *("density", "budget", "characters a vision token:2", "score:2", "prompt tokens:1", "visual:1"),
        *("retrieved:1", "compression:2", "on the front", "inputs", "failed"),
    )
    text = (
        "Each point is a run: a density of print and a budget of retrieved text (k: pages a call, t: tokens; pictures: none). "
        "The score is the mean of categories, tokens are those of the last prompt. The dashed line joins the runs that "
        "no other beats. " + note
    )
    plot = Plot("Score against prompt tokens", "prompt tokens", "score", dots)
    section = Section(
        "Frontier", text.strip(), [Table("Runs of the sweep", heads, rows, conditions(runs))], plots=[plot]
    )
    best = max(points, key=lambda one: (one.score, -one.prompt_tokens))
    front = ", ".join(one.run for one in sorted(points, key=lambda one: one.prompt_tokens) if one.is_on_front)
    summary = [
        f"Best score: {best.score:.2f} by {best.run} with {best.prompt_tokens:,.1f} prompt tokens",
        f"On the front, from the cheapest: {front}",
    ]
    return Report(
        f"Frontier of {runs[0].report.benchmark.name}",
        summary,
        [section, runs_section(runs)],
        {run.name: run.report.to_json() for run in runs},
    )
