"""Token costs of a benchmark without a model: a token table from the records alone.

Every prompt is built as for inference, with the scripted engine, and counted exactly by a checkpoint's tokenizer or, by
default, by tekken, a tokenizer of production size. The pages that a model would select are not known, so fixed rules
replace the selection:

    visual    all pages as images, without text
    select-1  the best page by BM25 as exact text
    select-2  the two best pages by BM25
    text      the whole document as text, the baseline of the other three

The scripted engine's completion tokens have no meaning and are omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from seer.evaluation.analysis.tokens import TokenRow, TokenTable, token_table
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.benchmarks.tasks import LONGBENCH, Benchmark
from seer.evaluation.runs.loop import answer_every, to_prediction
from seer.evaluation.runs.plan_longbench import PredictOptions, to_input
from seer.schema import Document, PageStyle, Prediction

if TYPE_CHECKING:
    from seer.protocol.encoding import Encoder

UNLIMITED_POSITIONS = 1 << 40
"""The context window is unlimited, so the table shows the length of uncut prompts."""
_BATCH = 16


def dry_token_tables(
    records: Sequence[LongBenchRecord],
    encoder: Encoder,
    style: str | PageStyle = "seer",
    *,
    benchmark: Benchmark = LONGBENCH,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, TokenTable]:
    """Return a token table per rule; `on_progress` receives the numbers of built prompts and of all prompts."""
    from seer.engines.scripted import ScriptedEngine
    from seer.reading.policy import ReadingPolicy
    from seer.reading.reader import Reader
    from seer.selection.base import TopRanked
    from seer.systems.seer import ReadingSystem

    engine = ScriptedEngine(encoder=encoder, max_positions=UNLIMITED_POSITIONS)
    best = TopRanked(_RankedOnce())
    rules = {
        "visual": (None, ReadingPolicy(mode="visual")),
        "select-1": (best, ReadingPolicy(selector_pages=1)),
        "select-2": (best, ReadingPolicy(selector_pages=2)),
    }
    options = PredictOptions(benchmark=benchmark)
    tables = {}
    for number, (name, (selector, policy)) in enumerate(rules.items()):
        # The cast is for the type checker: the engine's encoder is constant, which its protocol does not state.
        system = ReadingSystem(name, Reader(cast(Any, engine), selector, policy), style)
        predictions: dict[str, dict[str, Prediction]] = {}
        for first in range(0, len(records), _BATCH):
            batch = [to_input(record, options) for record in records[first : first + _BATCH]]
            answers = answer_every([one.to_task() for one in batch], system)
            for one, answer in zip(batch, answers, strict=True):
                predictions.setdefault(one.task, {})[one.id] = to_prediction(one, answer, name)
            engine.requests.clear()  # The engine records requests for tests; a whole benchmark would fill the memory.
            if on_progress:
                on_progress(number * len(records) + first + len(batch), len(rules) * len(records))
        tables[name] = token_table(predictions)
    return {**tables, "text": _as_text(tables["visual"])}


def _as_text(table: TokenTable) -> TokenTable:
    """Return the table of the same samples with the whole document as text, from the full-text counts."""

    def change(means: TokenRow) -> TokenRow:
        full = means.full_text
        return replace(means, textual=full, visual=0.0, retrieved=0.0, prompt=full, compression=1.0 if full else 0.0)

    return TokenTable({name: change(means) for name, means in table.tasks.items()}, change(table.overall))


class _RankedOnce:
    """BM25 with a cache, so that each document is ranked once for all rules."""

    name = "bm25"

    def __init__(self) -> None:
        from seer.selection.lexical import BM25

        self._ranker = BM25()
        self._known: dict[tuple[str, str, str], list[int]] = {}

    def rank(self, document: Document, question: str) -> list[int]:
        key = (document.name, document.style.digest, question)
        if key not in self._known:
            self._known[key] = self._ranker.rank(document, question)
        return self._known[key]
