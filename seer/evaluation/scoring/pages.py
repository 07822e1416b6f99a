"""Metrics of page selection, independent of the answer. Each published definition has its own name.

The definitions differ for samples without relevant pages, so figures of two papers are comparable only under the same
definition:

    gold_nonempty   Seer: precision, recall and F1 over the samples with relevant pages
    all_samples     Seer: F1 over all samples; without relevant pages, 1 for an empty selection and 0 otherwise
    doclens         over all samples; without relevant pages, recall 1, precision and F1 0
    simpledoc       over all samples; without relevant pages, recall 1, precision and F1 1 for an empty selection

All figures are macro means over samples. Rankings are measured by reciprocal rank, nDCG and hits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from seer.errors import InputError
from seer.evaluation.jsonlines import read_json_lines

Pages = Collection[int]
GoldPages = Mapping[str, tuple[int, ...]]
"""Relevant pages by input id, ascending from 1."""


class PageMetric(StrEnum):
    """A definition of precision, recall and F1; see the module docstring."""

    GOLD_NONEMPTY = "gold_nonempty"
    ALL_SAMPLES = "all_samples"
    DOCLENS = "doclens"
    SIMPLEDOC = "simpledoc"


@dataclass(frozen=True)
class PageScore:
    """Macro means in [0, 1] over `num_samples` samples; all 0 if there is no sample."""

    precision: float
    recall: float
    f1: float
    num_samples: int
    mean_pages: float
    """Mean number of selected pages per sample."""


def sample_score(selected: Pages, gold: Pages, metric: PageMetric) -> tuple[float, float, float] | None:
    """Return precision, recall and F1 of one sample; None if the definition excludes it."""
    chosen, relevant = set(selected), set(gold)
    if relevant:
        hits = len(chosen & relevant)
        precision = hits / len(chosen) if chosen else 0.0
        recall = hits / len(relevant)
        return precision, recall, 2 * precision * recall / (precision + recall) if hits else 0.0
    # No page is relevant: the definitions differ only in how they score an empty selection.
    abstained = float(not chosen)
    return {
        PageMetric.GOLD_NONEMPTY: None,
        PageMetric.ALL_SAMPLES: (abstained, abstained, abstained),
        PageMetric.DOCLENS: (0.0, 1.0, 0.0),
        PageMetric.SIMPLEDOC: (abstained, 1.0, abstained),
    }[metric]


def page_score(samples: Iterable[tuple[Pages, Pages]], metric: PageMetric = PageMetric.GOLD_NONEMPTY) -> PageScore:
    """Return the macro means over pairs of selected and relevant pages."""
    scored = [
        (*figures, len(set(selected)))
        for selected, gold in samples
        if (figures := sample_score(selected, gold, metric)) is not None
    ]
    if not scored:
        return PageScore(0.0, 0.0, 0.0, 0, 0.0)
    precision, recall, f1, pages = (math.fsum(column) / len(scored) for column in zip(*scored, strict=True))
    return PageScore(precision, recall, f1, len(scored), pages)


# ── Rankings ─────────────────────────────────────────────────────────────────────────────────────


def reciprocal_rank(ranking: Sequence[int], gold: Pages) -> float:
    """Return 1 / rank of the first relevant page; 0 if the ranking has none."""
    return next((1 / rank for rank, page in enumerate(ranking, 1) if page in gold), 0.0)


def ndcg(ranking: Sequence[int], gold: Pages, k: int) -> float:
    """Return nDCG@k with binary relevance: the sum of 1 / log2(rank + 1) over relevant pages, divided by its maximum.

    Returns 0 if no page is relevant.
    """
    relevant = set(gold)
    gain = math.fsum(1 / math.log2(rank + 1) for rank, page in enumerate(ranking[:k], 1) if page in relevant)
    # The best ranking has all relevant pages first, as far as k allows.
    best = math.fsum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(relevant)) + 1))
    return gain / best if best else 0.0


def hit(ranking: Sequence[int], gold: Pages, k: int) -> bool:
    """Return whether any relevant page is among the first k."""
    return not set(gold).isdisjoint(ranking[:k])


def all_hit(ranking: Sequence[int], gold: Pages, k: int) -> bool:
    """Return whether all relevant pages, at least one, are among the first k."""
    return bool(gold) and set(gold) <= set(ranking[:k])


# ── Subsets and labels ───────────────────────────────────────────────────────────────────────────


def lexical_overlap(question: str, evidence: str, cut: Callable[[str], Iterable[str]]) -> float:
    """Return the fraction of the question's distinct words that occur in the evidence; 0 for a question without words.

    `cut` splits a text into words; words without a letter or digit are ignored. The formula is our own, because the
    paper names this axis without defining it.
    """
    wanted = _content_words(cut(question))
    return len(wanted & _content_words(cut(evidence))) / len(wanted) if wanted else 0.0


def _content_words(words: Iterable[str]) -> set[str]:
    return {word.lower() for word in words if any(character.isalnum() for character in word)}


def split_at_median(values: Mapping[str, float]) -> tuple[set[str], set[str]]:
    """Split ids into those with values below the upper median and those at or above it."""
    if not values:
        return set(), set()
    # Values equal to the median all go to the upper half, so the halves may differ in size.
    ordered = sorted(values.values())
    median = ordered[len(ordered) // 2]
    low = {name for name, value in values.items() if value < median}
    return low, set(values) - low


def read_page_labels(path: str | Path) -> dict[str, tuple[int, ...]]:
    """Read relevant pages by input id from JSON lines with `id` and `pages`.

    Raises InputError if a line has other fields, a page number is not an integer from 1, or an id occurs twice.
    """
    labels: dict[str, tuple[int, ...]] = {}
    for place, fields in read_json_lines(path):
        identifier, pages = fields.get("id"), fields.get("pages")
        if not isinstance(identifier, str) or not isinstance(pages, list):
            raise InputError(f"{place}: needs a text 'id' and a list 'pages'; has {sorted(fields)}")
        if not all(type(page) is int and page >= 1 for page in pages):
            raise InputError(f"{place}: pages are {pages}; they must be integers from 1")
        if identifier in labels:
            raise InputError(f"{place}: the id '{identifier}' occurs twice; keep one of the lines")
        labels[identifier] = tuple(sorted(set(pages)))
    return labels
