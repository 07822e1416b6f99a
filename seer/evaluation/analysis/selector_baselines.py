"""Page selection compared with selectors that have the same page budgets (table 17).

For each input with page labels, the run's selection is compared with those of fixed selectors, each of which selects as
many pages as the run did, and at least one: the match-k rule of the paper's A.9. `all` selects every page and `oracle`
the labelled ones. No model is needed; the documents are rendered again for the text of their pages.

The subsets are low and high lexical overlap, split at the median over labelled samples, and more than three labelled
pages. Lexical overlap is the fraction of the question's words that occur on the labelled pages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.benchmarks.tasks import LONGBENCH, Benchmark, bare_question, build_context
from seer.evaluation.scoring.chinese import cut_words
from seer.evaluation.scoring.pages import GoldPages, PageMetric, PageScore, lexical_overlap, page_score, split_at_median
from seer.rendering.styles import with_newline
from seer.schema import PageStyle

Selections = Mapping[str, tuple[int, ...]]
"""Selected pages by input id."""
MATCHED_SELECTORS = ("bm25", "first", "random")
"""Selectors that are given the run's number of pages."""
MANY_GOLD_PAGES = 3
"""Samples with more labelled pages form the subset `many_pages`."""


@dataclass(frozen=True)
class SelectorRow:
    """Scores of one selector over the labelled inputs of a run. Subsets without a sample are None."""

    name: str
    gold_nonempty: PageScore
    all_samples: PageScore
    low_overlap: PageScore | None
    high_overlap: PageScore | None
    many_pages: PageScore | None


@dataclass(frozen=True)
class LabelledDocuments:
    """Selections of the fixed selectors, and the lexical overlap of each question with its labelled pages."""

    selections: Mapping[str, Selections]
    """Selections by selector."""
    overlaps: Mapping[str, float]
    """Overlap in [0, 1] by id, for inputs with a labelled page."""


def select_with_budgets(
    records: Sequence[LongBenchRecord],
    gold: GoldPages,
    budgets: Mapping[str, int],
    *,
    benchmark: Benchmark = LONGBENCH,
    style: str | PageStyle = "seer",
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> LabelledDocuments:
    """Run the fixed selectors over every record with labels and a budget in pages; `seed` is for the random selector."""
    from seer.rendering import render_text
    from seer.selection.base import Selector, build_selector

    # These three names always give a selector; `build_selector` returns None for selection by the model.
    selectors = {name: cast(Selector, build_selector(name, seed=seed)) for name in MATCHED_SELECTORS}
    selections: dict[str, dict[str, tuple[int, ...]]] = {name: {} for name in (*selectors, "all", "oracle")}
    overlaps: dict[str, float] = {}
    wanted = [record for record in records if record.id in gold and record.id in budgets]
    for done, record in enumerate(wanted, 1):
        task = benchmark.find(record.task)
        page_style = with_newline(style, task.newline)
        document = render_text(build_context(task, record.input, record.context), page_style, name=record.id)
        question = bare_question(task, record.input)
        for name, selector in selectors.items():
            selections[name][record.id] = selector.select(document, question, budgets[record.id])
        selections["all"][record.id] = tuple(page.number for page in document.pages)
        # Labels hold for one page style; with another style the document may have fewer pages.
        labelled = tuple(page for page in gold[record.id] if page <= len(document.pages))
        selections["oracle"][record.id] = labelled
        # Without a labelled page there is no evidence to compare the question with.
        if labelled:
            evidence = "\n".join(document.page(page).text for page in labelled)
            overlaps[record.id] = lexical_overlap(question, evidence, cut_words)
        if on_progress:
            on_progress(done, len(wanted))
    return LabelledDocuments(selections, overlaps)


def selector_rows(run_name: str, own: Selections, gold: GoldPages, documents: LabelledDocuments) -> list[SelectorRow]:
    """Return a row for the run, followed by its baselines, all over the same inputs."""
    # All rows use the same inputs. The overlap is split over them, not over all labelled documents.
    shared = [identifier for identifier in own if identifier in documents.selections["all"]]
    low, high = split_at_median({one: documents.overlaps[one] for one in shared if one in documents.overlaps})
    many = {identifier for identifier in shared if len(gold[identifier]) > MANY_GOLD_PAGES}
    selections = {run_name: own, **{_label(name): pages for name, pages in documents.selections.items()}}
    return [_row(name, pages, gold, shared, low, high, many) for name, pages in selections.items()]


def _row(
    name: str,
    selected: Selections,
    gold: GoldPages,
    shared: Sequence[str],
    low: set[str],
    high: set[str],
    many: set[str],
) -> SelectorRow:
    def score(identifiers: Sequence[str] | set[str], metric: PageMetric = PageMetric.GOLD_NONEMPTY) -> PageScore:
        return page_score([(selected[one], gold[one]) for one in identifiers], metric)

    return SelectorRow(
        name,
        gold_nonempty=score(shared),
        all_samples=score(shared, PageMetric.ALL_SAMPLES),
        low_overlap=score(low) if low else None,
        high_overlap=score(high) if high else None,
        many_pages=score(many) if many else None,
    )


def _label(selector: str) -> str:
    return f"{selector}, matched budget" if selector in MATCHED_SELECTORS else selector
