"""Page selection beside its baselines: what other selectors take with the same budgets (table 17).

For every input that has page labels, the run's own selection stands beside those of fixed selectors, each given as
many pages as the run selected there, at least one: the match-k rule of the paper's A.9. `all` takes every page and
`oracle` the labels themselves. No model is needed; the documents are laid out again to have their pages' text.

Subsets: by lexical overlap, the share of the question's words that stand on the labelled pages, split at the median
over samples with labels; and by more than three labelled pages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.benchmarks.tasks import LONGBENCH, Benchmark, bare_question, build_context
from seer.evaluation.scoring.chinese import cut_words
from seer.evaluation.scoring.pages import GoldPages, PageMetric, PageScore, lexical_overlap, page_score, split_at_median
from seer.schema import PageStyle

Selections = Mapping[str, tuple[int, ...]]
MATCHED_SELECTORS = ("bm25", "first", "random")
MANY_GOLD_PAGES = 3


@dataclass(frozen=True)
class SelectorRow:
    """One way to select, over the labelled inputs of a run. Subsets without a sample are None."""

    name: str
    gold_nonempty: PageScore
    all_samples: PageScore
    low_overlap: PageScore | None
    high_overlap: PageScore | None
    many_pages: PageScore | None


@dataclass(frozen=True)
class LabelledDocuments:
    """What fixed selectors take, and how far each question's words stand on its labelled pages."""

    selections: Mapping[str, Selections]
    """By selector, then by id."""
    overlaps: Mapping[str, float]
    """By id, for inputs with a labelled page."""


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
    """Run the fixed selectors over every record that has labels and a budget."""
    from seer.rendering import render_text
    from seer.selection.base import Selector, build_selector

    # These three select by themselves; other names may stand for the model.
    selectors = {name: cast(Selector, build_selector(name, seed=seed)) for name in MATCHED_SELECTORS}
    selections: dict[str, dict[str, tuple[int, ...]]] = {name: {} for name in (*selectors, "all", "oracle")}
    overlaps: dict[str, float] = {}
    wanted = [record for record in records if record.id in gold and record.id in budgets]
    for done, record in enumerate(wanted, 1):
        task = benchmark.find(record.task)
        document = render_text(build_context(task, record.input, record.context), style, name=record.id)
        question = bare_question(task, record.input)
        for name, selector in selectors.items():
            selections[name][record.id] = selector.select(document, question, budgets[record.id])
        selections["all"][record.id] = tuple(page.number for page in document.pages)
        labelled = tuple(page for page in gold[record.id] if page <= len(document.pages))
        selections["oracle"][record.id] = labelled
        if labelled:
            evidence = "\n".join(document.page(page).text for page in labelled)
            overlaps[record.id] = lexical_overlap(question, evidence, cut_words)
        if on_progress:
            on_progress(done, len(wanted))
    return LabelledDocuments(selections, overlaps)


def selector_rows(run_name: str, own: Selections, gold: GoldPages, documents: LabelledDocuments) -> list[SelectorRow]:
    """The run first, then its baselines, over the same inputs."""
    shared = [identifier for identifier in own if identifier in documents.selections["all"]]
    low, high = split_at_median({one: documents.overlaps[one] for one in shared if one in documents.overlaps})
    many = {identifier for identifier in shared if len(gold[identifier]) > MANY_GOLD_PAGES}
    ways = {run_name: own, **{_label(name): pages for name, pages in documents.selections.items()}}
    return [_row(name, pages, gold, shared, low, high, many) for name, pages in ways.items()]


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
