"""How good a page selection is, apart from the answer: each published definition under its own name.

The definitions differ where no page is relevant, and two papers' figures cannot be compared without saying which
one was used:

    gold_nonempty   Seer: precision, recall and F1 over the samples that have relevant pages
    all_samples     Seer: F1 over every sample; where none is relevant, 1 for an empty selection and else 0
    doclens         over every sample; where none is relevant, recall 1, precision and F1 0
    simpledoc       over every sample; where none is relevant, recall 1, precision and F1 1 for an empty selection

All are macro means: the mean of each sample's own figure. Rankings are measured by reciprocal rank, nDCG and hits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from seer.errors import InputError
from seer.evaluation.benchmarks.custom import from_manifest
from seer.evaluation.files import read_manifest, read_predictions
from seer.evaluation.jsonlines import read_json_lines

Pages = Collection[int]


class PageMetric(StrEnum):
    GOLD_NONEMPTY = "gold_nonempty"
    ALL_SAMPLES = "all_samples"
    DOCLENS = "doclens"
    SIMPLEDOC = "simpledoc"


@dataclass(frozen=True)
class PageScore:
    """Macro means in [0, 1] over `num_samples` samples. All are 0 where there is no sample."""

    precision: float
    recall: float
    f1: float
    num_samples: int
    mean_pages: float
    """Pages selected per sample."""


def sample_score(selected: Pages, gold: Pages, metric: PageMetric) -> tuple[float, float, float] | None:
    """Precision, recall and F1 of one sample; None where the definition leaves it out."""
    chosen, relevant = set(selected), set(gold)
    if relevant:
        hits = len(chosen & relevant)
        precision = hits / len(chosen) if chosen else 0.0
        recall = hits / len(relevant)
        return precision, recall, 2 * precision * recall / (precision + recall) if hits else 0.0
    abstained = float(not chosen)
    return {
        PageMetric.GOLD_NONEMPTY: None,
        PageMetric.ALL_SAMPLES: (abstained, abstained, abstained),
        PageMetric.DOCLENS: (0.0, 1.0, 0.0),
        PageMetric.SIMPLEDOC: (abstained, 1.0, abstained),
    }[metric]


def page_score(samples: Iterable[tuple[Pages, Pages]], metric: PageMetric = PageMetric.GOLD_NONEMPTY) -> PageScore:
    """Macro means over (selected, gold) pairs."""
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
    """1 over the rank of the first relevant page; 0 where none is ranked."""
    return next((1 / rank for rank, page in enumerate(ranking, 1) if page in gold), 0.0)


def ndcg(ranking: Sequence[int], gold: Pages, k: int) -> float:
    """Discounted gain of the first k pages over that of the best ranking; 0 where no page is relevant."""
    relevant = set(gold)
    gain = math.fsum(1 / math.log2(rank + 1) for rank, page in enumerate(ranking[:k], 1) if page in relevant)
    best = math.fsum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(relevant)) + 1))
    return gain / best if best else 0.0


def hit(ranking: Sequence[int], gold: Pages, k: int) -> bool:
    """Whether any relevant page is among the first k."""
    return not set(gold).isdisjoint(ranking[:k])


def all_hit(ranking: Sequence[int], gold: Pages, k: int) -> bool:
    """Whether every relevant page, and there is one, is among the first k."""
    return bool(gold) and set(gold) <= set(ranking[:k])


# ── Subsets and budgets ──────────────────────────────────────────────────────────────────────────


def lexical_overlap(question: str, evidence: str, cut: Callable[[str], Iterable[str]]) -> float:
    """The share of the question's different words that stand in the evidence; 0 for a question without words.

    `cut` splits a text into words; words without a letter or a digit do not count. (ours: the paper names the axis,
    not its formula)
    """
    asked = _content_words(cut(question))
    return len(asked & _content_words(cut(evidence))) / len(asked) if asked else 0.0


def _content_words(words: Iterable[str]) -> set[str]:
    return {word.lower() for word in words if any(character.isalnum() for character in word)}


def split_at_median(values: Mapping[str, float]) -> tuple[set[str], set[str]]:
    """Ids below the median and ids at or above it."""
    if not values:
        return set(), set()
    ordered = sorted(values.values())
    median = ordered[len(ordered) // 2]
    low = {name for name, value in values.items() if value < median}
    return low, set(values) - low


def matched_budgets(run: str | Path, *, least: int = 1) -> dict[str, int]:
    """Page budget for each input of a run: as many pages as it selected there, at least one (the paper's A.9).

    Raises InputError: no predictions there, an id that stands twice."""
    folder = Path(run)
    tasks = from_manifest(read_manifest(folder), f"the manifest of '{run}'").tasks
    files = [folder / f"{name}.jsonl" for name in tasks if (folder / f"{name}.jsonl").is_file()]
    if not files:
        raise InputError(f"'{run}' holds no predictions to match; give the folder of a run")
    budgets: dict[str, int] = {}
    for file in files:
        for prediction in read_predictions(file):
            if prediction.id in budgets:
                raise InputError(
                    f"'{run}': the id '{prediction.id}' stands in two tasks, so that budgets by id would mix"
                )
            budgets[prediction.id] = max(least, len(prediction.selected_pages))
    return budgets


def read_page_labels(path: str | Path) -> dict[str, tuple[int, ...]]:
    """Relevant pages by input id, from JSON lines with `id` and `pages`."""
    labels: dict[str, tuple[int, ...]] = {}
    for place, fields in read_json_lines(path):
        identifier, pages = fields.get("id"), fields.get("pages")
        if not isinstance(identifier, str) or not isinstance(pages, list):
            raise InputError(f"{place}: needs a text 'id' and a list 'pages'; has {sorted(fields)}")
        if not all(type(page) is int and page >= 1 for page in pages):
            raise InputError(f"{place}: pages are numbers from 1, not {pages}")
        if identifier in labels:
            raise InputError(f"{place}: the id '{identifier}' stands twice")
        labels[identifier] = tuple(sorted(set(pages)))
    return labels
